package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/digest"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/standby"
)

// Where stores have standbys, each partition is followed by the node that does not own it, which answers some of the clients'
// reads, and opens it from its copy. Owners have digests compared all the time. Nobody damages anything, so:
//
//   - no standby finds that its copy differs;
//   - what an owner tells is the digest of what the log makes, replayed from its beginning;
//   - a read in a session is true of a state that is not older than what that session has learned before, by
//     what it wrote, read or was refused for. An eventual read is true of some state.

// digestInterval is the time between two comparisons of a partition.
const digestInterval = 2 * time.Second

// stale says what a client asks of a read.
type stale string

const (
	inSession stale = "in session"
	eventual  stale = "eventual"
)

// standBy runs an owner's server, with standbys beside it, until one of them ends.
func (w *world) standBy(ctx context.Context, name string, p *process, js jetstream.JetStream, manager *leases.Manager,
	serve func(*standby.Standbys) (*owner.Server, error),
) error {
	hub := feed.NewHub(func(ctx context.Context, id feed.Partition) (*feed.Log, error) {
		return feed.OpenLog(ctx, js, id, logConfig)
	}, feed.HubConfig{})
	defer hub.Close()
	log := slog.New(&verdicts{logLines{n: w.net, name: name}, w})
	standbys := standby.New(standby.Config{Hub: hub, Leases: manager, Settle: 500 * time.Millisecond, File: p.dir + "/standbys.json", Logger: log})
	server, err := serve(standbys)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer w.damage(ctx, p)()
		return errEndedBy(server.Run(ctx))
	})
	g.Go(func() error {
		standbys.Run(ctx, server)
		return nil
	})
	return g.Wait()
}

// errEndedBy is err, and an error where there is none: what ended ends what runs beside it.
func errEndedBy(err error) error {
	if err == nil {
		return errEnded
	}
	return err
}

// verdicts reads in the log what standbys find.
type verdicts struct {
	logLines
	w *world
}

func (v *verdicts) Enabled(context.Context, slog.Level) bool { return true }

func (v *verdicts) Handle(ctx context.Context, r slog.Record) error {
	switch {
	case strings.Contains(r.Message, "differs from what its owner holds"):
		text := ""
		r.Attrs(func(a slog.Attr) bool {
			text += " " + a.String()
			return true
		})
		v.w.failf("a digest differs: %s finds that %s%s", v.name, r.Message, text)
	case strings.Contains(r.Message, "has the digest of what its owner holds"):
		v.w.mu.Lock()
		v.w.compared++
		v.w.mu.Unlock()
	}
	if !v.logLines.Enabled(ctx, r.Level) {
		return nil
	}
	return v.logLines.Handle(ctx, r)
}

func (v *verdicts) WithAttrs([]slog.Attr) slog.Handler { return v }

// damage changes a byte of an item in a node's engine some time after its start, where the plan says so, until stop is called.
func (w *world) damage(ctx context.Context, p *process) (stop func()) {
	if w.plan.Mutation != harmsEngines {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-time.After(5 * time.Second):
			for _, id := range must(p.db.Partitions()) {
				harm(must(p.db.Partition(id)))
			}
		case <-ctx.Done():
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// harm changes a byte of an item behind the back of everybody.
func harm(p *engine.Partition) {
	for e := range dump(p) {
		if at := strings.LastIndex(string(e.Value), `"pad":"0`); e.IsItem() && at > 0 {
			e.Value[at+len(`"pad":"`)] = '1'
			if err := p.LoadMore(func(yield func(engine.DumpEntry, error) bool) { yield(e, nil) }); err != nil {
				panic(err)
			}
			return
		}
	}
}

// dump yields copies of all entries.
func dump(p *engine.Partition) func(func(engine.DumpEntry) bool) {
	snap := p.Snapshot()
	defer snap.Close()
	var all []engine.DumpEntry
	for e, err := range snap.Dump() {
		if err != nil {
			panic(err)
		}
		all = append(all, engine.DumpEntry{Key: []byte(string(e.Key)), Value: []byte(string(e.Value))})
	}
	return func(yield func(engine.DumpEntry) bool) {
		for _, e := range all {
			if !yield(e) {
				return
			}
		}
	}
}

// asks is a container as a client reads it, and what it asks of the read.
func (s *session) asks(c *call, ct *store.Container) *store.Container {
	switch c.stale {
	case inSession:
		return ct.InSession(s.seen[ct.Info().Name])
	case eventual:
		return ct.Eventual()
	}
	return ct
}

// session is what a client has learned, by containers and partitions.
type session struct {
	seen map[string]map[uint32]feed.LSN
	rng  *rand.Rand // of what it asks of reads; nil: all that was acknowledged
}

func (w *world) session(client int) *session {
	s := &session{seen: map[string]map[uint32]feed.LSN{}}
	if w.plan.Standbys {
		s.rng = rand.New(rand.NewPCG(w.plan.Seed, uint64(3000+client)))
	}
	return s
}

// draw says what a read asks for.
func (s *session) draw(c *call) {
	if s.rng == nil || c.kind != store.OpRead {
		return
	}
	c.stale = []stale{"", inSession, inSession, eventual}[s.rng.IntN(4)]
}

// learn takes what a call has told. What is eventual tells a session nothing here.
func (s *session) learn(c *call) {
	if c.told() == 0 || c.stale == eventual {
		return
	}
	if s.seen[c.container] == nil {
		s.seen[c.container] = map[uint32]feed.LSN{}
	}
	seen := s.seen[c.container]
	seen[c.partition.Number] = max(seen[c.partition.Number], c.told())
}

// told is the LSN of which a call has told; 0 if of none.
func (c *call) told() feed.LSN {
	if c.outcome == acknowledged {
		return c.etag.LSN
	}
	return c.refusedAt
}

// judgeTold compares what owners have told of their engines with what a replay gives.
func (w *world) judgeTold(s *strand, r *owner.Replayer, c *feed.Commit, made map[feed.LSN]digest.Digest) {
	ordered, told := digest.Of(c)
	if ordered {
		made[c.LSN] = must(r.Digest(context.Background(), r.View()))
	}
	if told == nil {
		return
	}
	w.told++
	is, ok := made[told.LSN]
	if differ := is.Differ(*told); !ok || differ != "" {
		w.failf("a digest differs: %s tells at %s of %s, and a replay (%t) differs in %s", s.id, c.LSN, told.LSN, ok, differ)
	}
}

func (c *counts) standbys() string {
	if c.Told == 0 {
		return ""
	}
	return fmt.Sprintf(", %d digests told, %d compared, %d reads by standbys that the owner would have answered otherwise", c.Told, c.Compared, c.Old)
}
