package feed

import (
	"bytes"
	"context"
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/nats-io/nats.go"
)

// CodeRefused is with what a guard refuses a consumer.
const CodeRefused = codeRefused

// AskAgain sets the time after which a question of the log to JetStream is asked again.
func (l *Log) AskAgain(d time.Duration) { l.api.again = d }

// Lose makes the log and its tails treat messages for which f is true as if
// they had not arrived. f is called by the goroutines that append and read.
func (l *Log) Lose(f func(*nats.Msg) bool) { l.lose = f }

// Seal puts the right checksum at the end of data, in place of its last bytes.
func Seal(data []byte) []byte {
	data = bytes.Clone(data)
	body := data[:len(data)-sumBytes]
	return binary.LittleEndian.AppendUint64(body, xxhash.Sum64(body))
}

// Buffered is the number of messages that have arrived and were not yet asked
// for.
func (t *Tail) Buffered() int { return len(t.messages) }

// CheckSilence does what Next does when nothing was delivered for WatchInterval.
func (t *Tail) CheckSilence(ctx context.Context) *Commit { return t.checkSilence(ctx) }

// Consumer is the name of the present consumer, empty while there is none.
func (t *Tail) Consumer() string { return t.consumer }

// Own reports whether the reader reads from a tail of its own.
func (r *Reader) Own() bool { return r.own != nil }

// Held returns how much memory the commits in the ring of a partition take.
func (h *Hub) Held(p Partition) int {
	h.mu.Lock()
	s := h.shared[p]
	h.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ring.bytes
}

// NewTailCacheOf makes a TailCache that keeps so many bytes of one log, and of all.
func NewTailCacheOf(logBytes, bytes int) *TailCache {
	c := NewTailCache()
	c.logBytesMax, c.bytesMax = logBytes, bytes
	return c
}

// Kept returns how many logs and bytes are kept.
func (c *TailCache) Kept() (logs, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.logs), int(c.bytes.Load())
}

// Taken returns how many commits tails had from the cache.
func (c *TailCache) Taken() int64 { return c.taken.Load() }
