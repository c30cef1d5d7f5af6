//go:build linux

package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	otelattribute "go.opentelemetry.io/otel/attribute"
	oteltrace "go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
)

const (
	registerClients = 8
	registerKeys    = 10 // of a generation
	registerPace    = 100 * time.Millisecond
)

// registers are items of the container "ledger" that clients write, compare and set, and read. At each fault they go on to
// other items, a generation, so that no history becomes long; at the end all are read once more.
type registers struct {
	t          *testing.T
	began      time.Time
	seed       uint64
	generation atomic.Int64
	writes     atomic.Int64 // numbers them: no value is written twice

	mu    sync.Mutex // guards what follows
	ops   []registerOp
	looks []registerLook
	waits []registerWait
}

// The kinds of operations.
const (
	opWrite = "write"
	opSet   = "compare and set"
	opRead  = "read"
)

// registerOp is one operation as a client saw it. Times count from registers.began.
type registerOp struct {
	client      int
	kind, key   string
	value, want string // written, and expected by one that compares; or read, "" if nothing was there
	refused     bool   // of one that compares: the item had another etag
	unknown     bool   // it may have happened, and may yet
	etag        store.ETag
	from, to    time.Duration
}

// registerLook is a read that may be answered by a standby.
type registerLook struct {
	client      int
	key         string
	session     bool     // else of who takes any state
	least       feed.LSN // that the session had of the partition
	value       string   // "" if nothing was there
	etag        store.ETag
	standby     bool // answered
	from, until time.Duration
}

// registerWait is a write that was acknowledged.
type registerWait struct{ from, to time.Duration }

func newRegisters(t *testing.T, seed uint64) *registers {
	t.Helper()
	return &registers{t: t, began: time.Now(), seed: seed}
}

func (r *registers) now() time.Duration { return time.Since(r.began) }

// registerClient is one client, with a session of its own.
type registerClient struct {
	*registers
	n      int
	rand   *rand.Rand
	ledger *store.Container
	seen   map[uint32]feed.LSN   // by partition: the session
	last   map[string]registerOp // by key: what it has read or written last
}

// run makes operations until ctx ends. Those that are under way then are ended.
func (r *registers) run(ctx context.Context, n int, ledger *store.Container) {
	c := &registerClient{
		registers: r, n: n, rand: rand.New(rand.NewPCG(r.seed, uint64(100+n))), ledger: ledger, seen: map[uint32]feed.LSN{}, last: map[string]registerOp{},
	}
	tick := time.NewTicker(registerPace)
	defer tick.Stop()
	for ctx.Err() == nil {
		key := fmt.Sprintf("g%d-%d", r.generation.Load(), c.rand.IntN(registerKeys))
		switch p := c.rand.IntN(10); {
		case p < 4:
			c.write(key)
		case p < 6:
			c.set(key)
		case p < 8:
			c.read(key)
		default:
			c.look(key, p == 8)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func registerBody(key, value string) []byte {
	return fmt.Appendf(nil, `{"id":%q,"k":%q,"value":%q}`, key, key, value)
}

// attempt makes a write until it is decided, all its attempts under one idempotency key. unknown says that an attempt before
// the last may have happened, though the last was refused.
func (c *registerClient) attempt(write func(context.Context, store.WriteOptions) (store.Item, error)) (item store.Item, unknown bool, err error) {
	o := store.WriteOptions{IdempotencyKey: fmt.Sprint("register-", c.writes.Add(1))}
	for deadline := time.Now().Add(poll.Most); ; {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
		item, err = write(ctx, o)
		cancel()
		if err == nil || errors.Is(err, store.ErrPreconditionFailed) || c.t.Context().Err() != nil {
			return item, unknown, err
		}
		if time.Now().After(deadline) {
			c.t.Errorf("client %d: a write is not acknowledged within %s: %v", c.n, poll.Most, err)
			return item, unknown, err
		}
		if !unknown { // the next ones are much alike
			c.t.Logf("client %d, at %s: %v", c.n, c.now().Round(time.Millisecond), err)
		}
		unknown = true
		pause(c.t, registerPace)
	}
}

func (c *registerClient) write(key string) {
	op := registerOp{client: c.n, kind: opWrite, key: key, value: fmt.Sprint(c.n, "-", c.writes.Add(1)), from: c.now()}
	item, _, err := c.attempt(func(ctx context.Context, o store.WriteOptions) (store.Item, error) {
		return c.ledger.Upsert(ctx, registerBody(key, op.value), o)
	})
	op.unknown = err != nil
	c.wrote(op, item, err)
}

// set replaces what the client knows of a key, if it knows something.
func (c *registerClient) set(key string) {
	knows, ok := c.last[key]
	if !ok || knows.value == "" {
		c.read(key)
		return
	}
	op := registerOp{client: c.n, kind: opSet, key: key, value: fmt.Sprint(c.n, "-", c.writes.Add(1)), want: knows.value, from: c.now()}
	item, unknown, err := c.attempt(func(ctx context.Context, o store.WriteOptions) (store.Item, error) {
		o.IfMatch = knows.etag
		return c.ledger.Replace(ctx, key, registerBody(key, op.value), o)
	})
	op.unknown = unknown && err != nil || err != nil && !errors.Is(err, store.ErrPreconditionFailed)
	op.refused = err != nil && !op.unknown
	if op.refused {
		delete(c.last, key)
	}
	c.wrote(op, item, err)
}

// wrote notes a write.
func (c *registerClient) wrote(op registerOp, item store.Item, err error) {
	op.to = c.now()
	if err == nil {
		op.etag = item.ETag
		c.last[op.key] = op
	}
	c.saw(op.key, item, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ops = append(c.ops, op)
	if err == nil {
		c.waits = append(c.waits, registerWait{op.from, op.to})
	}
}

// saw adds what an answer tells to the session.
func (c *registerClient) saw(key string, item store.Item, err error) {
	lsn := item.ETag.LSN
	if refusal, ok := errors.AsType[*store.Error](err); ok {
		lsn = refusal.LSN
	}
	at := c.ledger.PartitionFor(keyOf(c.t, key)).Number
	c.seen[at] = max(c.seen[at], lsn)
}

// read reads a key from its owner.
func (c *registerClient) read(key string) {
	op := registerOp{client: c.n, kind: opRead, key: key, from: c.now()}
	value, item, err := c.ask(c.t.Context(), c.ledger, key)
	if err != nil {
		return // nobody answered
	}
	op.to, op.value, op.etag = c.now(), value, item.ETag
	c.last[key] = op
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ops = append(c.ops, op)
}

// ask reads a key, and adds it to the session. What is not there is "", and no error.
func (c *registerClient) ask(ctx context.Context, from *store.Container, key string) (value string, item store.Item, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	item, err = from.Read(ctx, keyOf(c.t, key), key)
	c.saw(key, item, err)
	if errors.Is(err, store.ErrNotFound) {
		return "", store.Item{}, nil
	}
	if err != nil {
		return "", store.Item{}, err
	}
	var doc struct{ Value string }
	if err := json.Unmarshal(item.Body, &doc); err != nil {
		c.t.Errorf("item %s is %s: %v", key, item.Body, err)
	}
	return doc.Value, item, nil
}

// look reads a key as somebody whom a standby may answer: in the client's session, or with any state.
func (c *registerClient) look(key string, session bool) {
	look := registerLook{client: c.n, key: key, session: session, from: c.now()}
	at := c.ledger.PartitionFor(keyOf(c.t, key)).Number
	look.least = c.seen[at]
	from := c.ledger.Eventual()
	before := maps.Clone(c.seen)
	if session {
		from = c.ledger.InSession(before)
	}
	var span standbySpan // the client begins none of its own in the background
	value, item, err := c.ask(oteltrace.ContextWithSpan(store.Background(c.t.Context()), &span), from, key)
	if !session {
		c.seen = before // who takes any state has not seen it in the session
	}
	if err != nil {
		return
	}
	look.until, look.value, look.etag, look.standby = c.now(), value, item.ETag, span.answered.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks = append(c.looks, look)
}

// standbySpan learns whether a standby has answered.
type standbySpan struct {
	noop.Span
	answered atomic.Bool
}

func (s *standbySpan) SetAttributes(all ...otelattribute.KeyValue) {
	for _, a := range all {
		if a.Key == store.AttrStandby && a.Value.AsBool() {
			s.answered.Store(true)
		}
	}
}

// since counts the clients that have an acknowledgement of a write that was begun after a moment.
func (r *registers) since(from time.Duration) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	heard := map[int]bool{}
	for i := len(r.ops) - 1; i >= 0 && r.ops[i].to > from; i-- {
		if op := &r.ops[i]; op.from > from && op.kind == opWrite && !op.unknown {
			heard[op.client] = true
		}
	}
	return len(heard)
}

// longest is the longest that a write waited that was under way at some time between two moments.
func (r *registers) longest(from, to time.Duration) (most time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.waits {
		if w.to > from && w.from < to {
			most = max(most, w.to-w.from)
		}
	}
	return most
}
