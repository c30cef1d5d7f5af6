// Package live lets who looks ask the workers what their checkpoints do not say yet.
//
// A checkpoint is written about once a second, so what it counts may be a second old.
// Each worker answers on a subject of its own, which readers may ask too:
//
//	Ask    millrace.read.worker.NODE.INCARNATION   {"v":1,"resources":["pipe/..."]}
//	Serve                                          {"v":1,"counts":{"pipe/...":{"copies":7}}}
//
// What a worker does not run, and what a worker does not answer that is of an earlier
// release or does not come to it, is left out: the checkpoint counts then.
package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed/guard"
	"github.com/millrace/millrace/processors"
)

const (
	version = 1
	prefix  = "millrace.read.worker."
	// askMax bounds the wait for workers: who looks is not held up by one that is stuck.
	askMax = time.Second
	// askedMax bounds the workers that are asked at a time, and resourcesMax the
	// processors of one question, whose answer fits into any message then.
	askedMax     = 16
	resourcesMax = 1000
)

type question struct {
	Version   int      `json:"v"`
	Resources []string `json:"resources"`
}

type answer struct {
	Version int                          `json:"v"`
	Counts  map[string]processors.Counts `json:"counts"`
}

// subject is that of a holder of leases, "node/incarnation"; "" if it cannot be one.
func subject(holder string) string {
	node, incarnation, ok := strings.Cut(holder, "/")
	if !ok || node == "" || incarnation == "" || strings.ContainsAny(holder, ". *>\t\r\n") {
		return ""
	}
	return prefix + node + "." + incarnation
}

// Serve answers for the processors of host, whose leases holder has, until ctx ends.
func Serve(ctx context.Context, nc *nats.Conn, holder string, host *processors.Host, log *slog.Logger) error {
	at := subject(holder)
	if at == "" {
		return fmt.Errorf("live: %q cannot be part of a subject", holder)
	}
	sub, err := nc.Subscribe(at, func(m *nats.Msg) {
		// A reader could have the answer written to a subject that is no inbox.
		if !guard.IsInbox(m.Reply) {
			return
		}
		if err := respond(m, host); err != nil && !nc.IsClosed() {
			log.WarnContext(ctx, "what was done since the last checkpoints cannot be told", slog.Any("error", err))
		}
	})
	if err != nil {
		return fmt.Errorf("live: subscribe: %w", err)
	}
	<-ctx.Done()
	if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
		return fmt.Errorf("live: unsubscribe: %w", err)
	}
	return nil
}

func respond(m *nats.Msg, host *processors.Host) error {
	var q question
	if err := json.Unmarshal(m.Data, &q); err != nil {
		return err
	}
	if q.Version > version || len(q.Resources) > resourcesMax {
		return fmt.Errorf("a question of version %d about %d processors was not understood", q.Version, len(q.Resources))
	}
	asked := make(map[string]bool, len(q.Resources))
	for _, r := range q.Resources {
		asked[r] = true
	}
	a := answer{Version: version, Counts: map[string]processors.Counts{}}
	for _, one := range host.Activities() {
		if name := one.String(); asked[name] {
			a.Counts[name] = one.Checkpoint.Counts
		}
	}
	data, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return m.Respond(data)
}

// Ask returns what processors have counted up to now, by resource. held are their
// resources by the holder of their leases.
func Ask(ctx context.Context, nc *nats.Conn, held map[string][]string) map[string]processors.Counts {
	ctx, cancel := context.WithTimeout(ctx, askMax)
	defer cancel()
	var (
		g   errgroup.Group
		mu  sync.Mutex
		all = map[string]processors.Counts{}
	)
	g.SetLimit(askedMax)
	for holder, resources := range held {
		at := subject(holder)
		if at == "" {
			continue
		}
		for some := range slices.Chunk(resources, resourcesMax) {
			g.Go(func() error {
				counts := ask(ctx, nc, at, some)
				mu.Lock()
				defer mu.Unlock()
				for _, r := range some {
					if c, ok := counts[r]; ok {
						all[r] = c
					}
				}
				return nil
			})
		}
	}
	_ = g.Wait() // nobody fails: who does not answer is left out
	return all
}

func ask(ctx context.Context, nc *nats.Conn, at string, resources []string) map[string]processors.Counts {
	data, err := json.Marshal(question{version, resources})
	if err != nil {
		return nil
	}
	m, err := nc.RequestWithContext(ctx, at, data)
	if err != nil {
		return nil
	}
	var a answer
	if json.Unmarshal(m.Data, &a) != nil || a.Version > version {
		return nil
	}
	return a.Counts
}
