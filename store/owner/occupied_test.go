package owner

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
)

// heavyRegexp takes more than a minute to match heavyBody.
var heavyRegexp = strings.Repeat("a?", 1350) + "b"

var heavyBody = `{"id":"1","a":"x","s":"` + strings.Repeat("a", 1_500_000) + `"}`

// A condition that takes too long is refused, and the writes behind it are decided.
func TestOneConditionDoesNotHoldThePartition(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	if _, err := n.one(k, create(heavyBody)); err != nil {
		t.Fatal(err)
	}
	slow := patch("1", set("/n", "1"))
	slow.Condition = `from c where RegexMatch(c.s, "` + heavyRegexp + `")`
	_, err := n.one(k, slow)
	if statusOf(t, err) != store.StatusBadRequest || !strings.Contains(err.Error(), "not decided within 100ms") {
		t.Errorf("the condition: %v", err)
	}
	if _, err := n.one(k, upsert(`{"id":"2","a":"x"}`)); err != nil {
		t.Errorf("the write behind it: %v", err)
	}
	// All conditions of a batch have the time of one.
	ops := make([]store.Operation, store.BatchOpsMax)
	for i := range ops {
		ops[i] = patch("1", set("/n", "1"))
		ops[i].Condition = `NOT RegexMatch(c.s, "[b-z]+1")`
	}
	r, err := n.batch(k, ops...)
	if err != nil || !r.Failed {
		t.Errorf("a batch of %d such conditions: %v", len(ops), err)
	}
}

func TestAConditionTooLargeIsRefused(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	if _, err := n.one(k, create(`{"id":"1","a":"x"}`)); err != nil {
		t.Fatal(err)
	}
	op := patch("1", set("/n", "1"))
	op.Condition = `RegexMatch(c.s, "` + strings.Repeat("(a{1000})", 100) + `")`
	if _, err := n.one(k, op); statusOf(t, err) != store.StatusBadRequest || !strings.Contains(err.Error(), "instructions, and 10000 are allowed") {
		t.Error(err)
	}
}

// What holds the decider is told: to whoever asks whether the process is ready, and
// once in the log, with its end.
func TestWhatHoldsTheDeciderIsTold(t *testing.T) {
	w := newWorld(t, byA)
	n := w.open(t.TempDir())
	var log Journal
	n.Partition.log = slog.New(slog.NewTextHandler(&log, nil))
	n.begin()
	s := &Server{open: map[feed.Partition]*serving{w.id: {p: n.Partition}}}
	told := map[*Partition]*occupation{}
	if !n.onDecider(t.Context(), func(d *decider) {
		d.p.occupation.Store(&occupation{"patch of item 7", time.Now().Add(-3 * time.Second)})
		held := s.Held()
		if len(held) != 1 || held[0].Partition != w.id || held[0].By != "patch of item 7" || held[0].For < 3*time.Second {
			t.Errorf("held: %+v", held)
		}
		s.tellHeld(t.Context(), told)
		s.tellHeld(t.Context(), told)
		if got := strings.Count(log.String(), "all writes of the partition wait for one thing"); got != 1 {
			t.Errorf("it was told %d times: %s", got, log.String())
		}
	}) {
		t.Fatal("the partition stopped")
	}
	if _, err := n.one(pk(t, "x"), create(`{"id":"1","a":"x"}`)); err != nil { // what was done is done
		t.Fatal(err)
	}
	s.tellHeld(t.Context(), told)
	if held := s.Held(); held != nil || !strings.Contains(log.String(), "the partition decides writes again") {
		t.Errorf("%+v is held still: %s", held, log.String())
	}
}

// heavyQuery reads one item for more than a minute.
func heavyQuery() *store.Query {
	return &store.Query{Text: `SELECT VALUE c.id FROM c WHERE RegexMatch(c.s, "` + heavyRegexp + `")`, Now: time.Now()}
}

// A query stops in the middle of an item when its time is over.
func TestQueryEndsWithItsTime(t *testing.T) {
	w := newWorld(t, byA)
	n := w.open(t.TempDir())
	n.cfg.QueryTime = time.Millisecond
	n.begin()
	if _, err := n.one(pk(t, "x"), create(heavyBody)); err != nil {
		t.Fatal(err)
	}
	resp := n.Handle(t.Context(), &store.Request{Partition: w.id, Query: heavyQuery()})
	if resp.Err == nil || resp.Err.Status != store.StatusBadRequest || !strings.Contains(resp.Err.Message, "took too long") && !strings.Contains(resp.Err.Message, "found no end") {
		t.Errorf("%+v", resp.Err)
	}
}

// begin serves a node whose configuration was changed.
func (n *node) begin() {
	n.w.t.Helper()
	if err := n.open(n.w.t.Context(), n.w.info.Partitions[0].Log); err != nil {
		n.w.t.Fatal(err)
	}
	n.serve()
}

// A query stops in the middle of an item when nobody waits for it any more, in the
// process and over NATS.
func TestQueryEndsWhenItsClientHasGone(t *testing.T) {
	w := newWorld(t, byA)
	n := w.open(t.TempDir())
	n.cfg.QueryTime = time.Hour
	n.begin()
	if _, err := n.one(pk(t, "x"), create(heavyBody)); err != nil {
		t.Fatal(err)
	}
	nc := w.js.Conn()
	sub, err := (&Server{cfg: n.cfg, nc: nc}).subscribe(t.Context(), n.Partition)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.stop()
	remote := store.NewClient(nc, w.catalog, store.ClientConfig{Timeout: time.Hour})
	for name, ask := range map[string]func(ctx context.Context, r *store.Request) error{
		"in the process": func(ctx context.Context, r *store.Request) error {
			if resp := n.Handle(ctx, r); resp.Err != nil {
				return resp.Err
			}
			return nil
		},
		"over NATS": func(ctx context.Context, r *store.Request) error {
			_, err := remote.Do(ctx, r)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- ask(ctx, &store.Request{Partition: w.id, Query: heavyQuery()}) }()
			poll.Until(t, func() error { return poll.Unless(len(n.queries) == 1, "the query is not under way") })
			leave()
			if err := <-ended; err == nil {
				t.Error("the query was answered")
			}
			poll.Until(t, func() error { return poll.Unless(len(n.queries) == 0, "the query goes on") })
		})
	}
}
