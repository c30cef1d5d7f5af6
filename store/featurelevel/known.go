package featurelevel

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// followInterval is the time between two looks at a level that may still be raised.
const followInterval = 2 * time.Second

// Known is the level of the data as a process has read it last, for those that cannot wait
// for an answer each time. A level is never lowered, so it may be too low and is never too
// high. The zero value is level 0: nothing was read yet.
type Known struct{ level atomic.Int32 }

// Level returns the level.
func (k *Known) Level() int { return int(k.level.Load()) }

// Set takes a level that was read. Only one goroutine may call it, or Follow.
func (k *Known) Set(level int) { k.level.Store(int32(max(level, k.Level()))) }

// Follow reads the level until it is the newest, and then never again, or until ctx ends.
func (k *Known) Follow(ctx context.Context, js jetstream.JetStream, log *slog.Logger) {
	said := ""
	for {
		level, err := Read(ctx, js)
		if err == nil {
			k.Set(level)
			said = ""
		} else if text := err.Error(); text != said && ctx.Err() == nil {
			said = text
			log.Warn("the feature level of the data cannot be read; trying again", "error", err)
		}
		if k.Level() >= Newest {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(followInterval):
		}
	}
}
