package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// outcome is what a client learned.
type outcome string

const (
	acknowledged outcome = "acknowledged"
	refused      outcome = "refused"
	unknown      outcome = "unknown"
)

// call is one operation of a client, as it was seen from outside.
type call struct {
	client, number int
	kind           store.OpKind
	container      string
	item           string
	tag            string // in the body that it writes
	partition      feed.Partition
	ifMatch        store.ETag
	idempotent     bool
	stale          stale // what a read asks for; "": all that was acknowledged

	// began and ended order all calls: one that ended before another began has a lower number.
	began, ended     int64
	beganAt, endedAt time.Time
	outcome          outcome
	status           store.Status
	err              error
	etag             store.ETag
	body             string   // that was read
	refusedAt        feed.LSN // as of which it was refused, if that was told
}

func (c *call) String() string {
	return fmt.Sprintf("client %d, operation %d: %s %s %s %s if-match %q: %s %d, etag %s, body %.60s, %v",
		c.client, c.number, c.kind, c.stale, c.item, c.tag, c.ifMatch, c.outcome, c.status, c.etag, c.body, c.err)
}

// client writes and reads until it has made its calls.
func (w *world) client(ctx context.Context, number int) {
	nc, js := connect(w.hosts[number])
	defer nc.Close()
	rng := rand.New(rand.NewPCG(w.plan.Seed, uint64(1000+number)))
	o := w.open(ctx, nc, js)
	last, s := map[string]store.ETag{}, w.session(number)
	for i := range w.plan.Ops {
		elapse(upTo(rng, w.plan.Pause))
		c := w.draw(rng, number, i, last)
		s.draw(c)
		w.begin(c)
		var item store.Item
		item, c.err = w.make(ctx, o, c, s, rng)
		w.end(c, item)
		s.learn(c)
		if c.outcome == acknowledged {
			last[c.container+c.item] = c.etag
		}
	}
}

// opened is what a client has of the containers.
type opened struct {
	client     *store.Client
	containers map[string]*store.Container // by names
}

// open opens the containers for a client.
func (w *world) open(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) *opened {
	for {
		catalog, err := store.OpenCatalog(ctx, js, store.CatalogConfig{})
		if err == nil {
			o := &opened{store.NewClient(nc, catalog, store.ClientConfig{Timeout: cmp.Or(w.plan.Timeout, 8*time.Second)}), map[string]*store.Container{}}
			for _, info := range w.containers {
				o.containers[info.Name] = must(o.client.Open(info))
			}
			return o
		}
		elapse(time.Second)
	}
}

// draw draws the next call.
func (w *world) draw(rng *rand.Rand, client, number int, last map[string]store.ETag) *call {
	kinds := []store.OpKind{store.OpUpsert, store.OpUpsert, store.OpUpsert, store.OpCreate, store.OpReplace, store.OpReplace, store.OpDelete, store.OpRead, store.OpRead}
	c := &call{
		client: client, number: number, kind: kinds[rng.IntN(len(kinds))], container: "things", item: fmt.Sprintf("i%d", rng.IntN(w.plan.Items)),
		idempotent: rng.IntN(2) == 0,
	}
	if w.plan.Pipelines > 0 && rng.IntN(4) == 0 {
		c.container, c.item = "cats", fmt.Sprintf("k%d", rng.IntN(catsMax))
	}
	if w.plan.Reads > 0 && rng.IntN(100) < w.plan.Reads {
		c.kind = store.OpRead
	}
	if c.kind != store.OpRead {
		c.tag = fmt.Sprintf("c%d-%d", client, number)
	}
	if rng.IntN(2) == 0 && (c.kind == store.OpReplace || c.kind == store.OpDelete) {
		c.ifMatch = last[c.container+c.item]
	}
	return c
}

func (w *world) make(ctx context.Context, o *opened, c *call, s *session, rng *rand.Rand) (store.Item, error) {
	body := fmt.Appendf(nil, `{"id":%q,"a":%q,"tag":%q,"cat":"k%d","n":%d,"pad":"%0*d"}`,
		c.item, c.item, c.tag, rng.IntN(catsMax), rng.IntN(100), 1+rng.IntN(300), 0)
	opt := store.WriteOptions{IfMatch: c.ifMatch}
	if c.idempotent {
		opt.IdempotencyKey = c.tag
	}
	key, ct := keyOf(c.item), o.containers[c.container]
	// Behind the call the container knows of the splits that the call has met, so the partition is the one that answered.
	defer func() { c.partition = ct.PartitionFor(key) }()
	switch c.kind {
	case store.OpCreate:
		return ct.Create(ctx, body, opt)
	case store.OpReplace:
		return ct.Replace(ctx, c.item, body, opt)
	case store.OpDelete:
		return store.Item{}, ct.Delete(ctx, key, c.item, opt)
	case store.OpRead:
		return s.asks(c, ct).Read(ctx, key, c.item)
	default:
		return ct.Upsert(ctx, body, opt)
	}
}

func keyOf(item string) feed.PartitionKey {
	key, err := feed.NewPartitionKey(item)
	if err != nil {
		panic(err)
	}
	return key
}

func (w *world) begin(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock++
	c.began, c.beganAt = w.clock, time.Now()
	w.calls = append(w.calls, c)
}

func (w *world) end(c *call, item store.Item) {
	w.mu.Lock()
	w.clock++
	c.ended, c.endedAt = w.clock, time.Now()
	c.etag, c.body = item.ETag, string(item.Body)
	c.outcome = acknowledged
	refusal, isRefusal := errors.AsType[*store.Error](c.err)
	switch {
	case c.err == nil:
	case isRefusal:
		c.outcome, c.status, c.refusedAt = refused, refusal.Status, refusal.LSN
	case errors.Is(c.err, store.ErrUnknown):
		c.outcome = unknown
	default: // nobody answered: nothing happened
		c.outcome, c.status = refused, store.StatusUnavailable
	}
	w.mu.Unlock()
	w.net.note(fmt.Sprintf("client%d", c.client), c.String())
}
