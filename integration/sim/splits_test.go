package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/digest"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/owner"
)

// Partitions are split while all else happens. The judge follows the logs, and not the catalog:
//
//	log of 0     1 ... s: split into 1 and 2      nothing behind it, and s < first
//	log of 1        first: genesis, Prev is the checksum of s, first+1 ...
//	log of 2        first: genesis, likewise
//
// What is at the ends of these lines must be what the catalog names when all is at rest.

// split is asked for once, or again until somebody answers.
type split struct {
	At time.Duration
	// Pick chooses among the partitions that there are then, Where a boundary; 0 is the middle.
	Pick, Where uint64
}

func (s split) String() string {
	if s.Where == 0 {
		return fmt.Sprintf("split partition %d, counted round, in the middle", s.Pick)
	}
	return fmt.Sprintf("split partition %d, counted round, at a boundary drawn from %d", s.Pick, s.Where)
}

// splitsOf draws the splits of a plan: none in half of the plans, and else some, of which one may be asked for while
// another is under way.
func splitsOf(rng *rand.Rand) (all []split) {
	if rng.IntN(2) == 0 {
		return nil
	}
	at := upTo(rng, 12*time.Second)
	for range 1 + rng.IntN(3) {
		s := split{At: at, Pick: rng.Uint64N(8)}
		if rng.IntN(3) == 0 {
			s.Where = 1 + rng.Uint64N(1000)
		}
		all = append(all, s)
		if rng.IntN(3) == 0 {
			at += upTo(rng, 300*time.Millisecond)
		} else {
			at += upTo(rng, 8*time.Second)
		}
	}
	return all
}

// boundaryIn draws a boundary inside of a range.
func boundaryIn(within feed.Range, seed uint64) feed.EPK {
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 1000 {
		var at [store.BoundaryBytes]byte
		binary.BigEndian.PutUint64(at[:], rng.Uint64()&(1<<62-1))
		binary.BigEndian.PutUint64(at[8:], rng.Uint64())
		if e := feed.EPK(at[:]); within.Contains(e) && e != within.Min {
			return e
		}
	}
	return "" // it is narrow
}

// split asks for the splits of the plan, as an operator does.
func (w *world) split() {
	nc, js := connect(w.server.host("splitter"))
	defer nc.Close()
	o := w.open(context.Background(), nc, js)
	began := time.Now()
	for _, s := range w.plan.Splits {
		elapse(s.At - time.Since(began))
		for range 5 {
			if w.askSplit(o, s) {
				break
			}
			elapse(500 * time.Millisecond)
		}
	}
}

// askSplit asks for a split once; it is false if nobody decided.
func (w *world) askSplit(o *opened, s split) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	o.again(ctx, "things")
	ct := o.containers["things"]
	info := ct.Info()
	of := info.Partitions[s.Pick%uint64(len(info.Partitions))]
	r := store.SplitPartition{}
	if s.Where != 0 {
		r.At = boundaryIn(of.Range, s.Where)
	}
	result, err := ct.Split(ctx, feed.Partition{Container: info.ID, Number: of.Number}, r)
	w.net.note("splitter", fmt.Sprintf("split %d of %s: %+v, %v", of.Number, of.Range, result, err))
	refusal, refused := errors.AsType[*store.Error](err)
	switch {
	case err == nil && info.PlannedOf(of.Number) != nil:
		w.failf("partition %d is planned to be split twice: %+v, %+v", of.Number, info.PlannedOf(of.Number), result)
	case err == nil:
		w.mu.Lock()
		w.asked = append(w.asked, result)
		w.mu.Unlock()
	case refused && refusal.Status == store.StatusConflict:
	case refused && !slices.Contains([]store.Status{store.StatusGone, store.StatusUnavailable, store.StatusTooManyRequests}, refusal.Status):
		w.failf("split of partition %d with %s at %q: %v", of.Number, of.Range, r.At.Hex(), err)
	default:
		return false
	}
	return true
}

// again takes a container anew from the catalog, if that answers.
func (o *opened) again(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if ct, err := o.client.Container(ctx, "default", name); err == nil {
		o.containers[name] = ct
	}
}

// awaitSplits waits until no split is half done, and takes the containers as they are then.
func (w *world) awaitSplits(js jetstream.JetStream) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	catalog, err := store.OpenCatalog(ctx, js, store.CatalogConfig{})
	if err != nil {
		w.failf("a minute after the last fault the catalog does not answer: %v", err)
		return
	}
	for {
		now := slices.Clone(w.roots)
		left := ""
		for i := range now {
			is, err := catalog.Get(ctx, now[i].Database, now[i].Name)
			if err != nil {
				left += err.Error()
				continue
			}
			now[i] = is
			for _, s := range is.Splits {
				left += fmt.Sprintf("split %s of %d; ", s.ID, s.Parent)
			}
		}
		w.containers = now
		if left == "" {
			return
		}
		if ctx.Err() != nil {
			w.failf("a minute after the last fault the catalog does not answer, or splits are half done: %s", left)
			return
		}
		elapse(500 * time.Millisecond)
	}
}

// lineage is a log and those that it goes on from, the root first.
type lineage []*strand

// strand is one log of a lineage.
type strand struct {
	id      feed.Partition
	info    store.PartitionInfo
	st      *stream
	genesis feed.CommitID // of a child
	first   feed.LSN
	commits []*feed.Commit
	split   *feed.Split // with which it ends; nil if it goes on
}

func (l lineage) last() *strand { return l[len(l)-1] }

// logOf returns the stream of a log, also of one that was deleted.
func (w *world) logOf(id feed.Partition) (st *stream, gone bool) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	is, was := w.server.streams[id.Stream()], w.server.gone[id.Stream()]
	if len(was) > 1 || len(was) == 1 && is != nil {
		w.failf("the log of %s was deleted with all that it held, and made anew", id)
	}
	if is == nil && len(was) > 0 {
		return was[0], true
	}
	return is, false
}

// judgeLine reads a log, and those of the partitions into which its own was split, into the ledger.
func (w *world) judgeLine(l *ledger, above lineage, s *strand) (leaves []lineage) {
	gone := false
	if s.st, gone = w.logOf(s.id); s.st == nil {
		w.failf("the log of %s is not there", s.id)
		return nil
	}
	w.ranges[s.id] = s.info.Range
	all := append(slices.Clone(above), s)
	point := w.read(l, all)
	if !gone {
		w.judgeTrim(s.st, point)
	}
	if s.split == nil {
		if gone {
			w.failf("the log of %s was deleted, and was not split", s.id)
		}
		return []lineage{all}
	}
	at := s.info.Range.Min
	for _, c := range s.split.Children {
		if c.Range.Min != at || c.Range.Max <= at {
			w.failf("%s with %s was split into %+v", s.id, s.info.Range, s.split.Children)
		}
		at = c.Range.Max
		info := store.PartitionInfo{Number: c.Number, Range: c.Range, Log: c.Log}
		child := &strand{id: feed.Partition{Container: s.id.Container, Number: c.Number}, info: info, genesis: c.Genesis, first: s.split.First}
		leaves = append(leaves, w.judgeLine(l, all, child)...)
	}
	if at != s.info.Range.Max {
		w.failf("%s with %s was split into %+v", s.id, s.info.Range, s.split.Children)
	}
	return leaves
}

// begins looks whether a log begins as its partition does, and returns what its first commit stands behind.
func (w *world) begins(all lineage) feed.Commit {
	s := all.last()
	if s.st.born != uint64(s.first) {
		w.failf("the log of %s begins at %d, and is to begin at %s", s.id, s.st.born, s.first)
	}
	if len(all) == 1 {
		return feed.Commit{}
	}
	parent := all[len(all)-2]
	end := parent.commits[len(parent.commits)-1]
	if len(s.st.history) == 0 {
		w.failf("the log of %s is empty, and that of %s has ended", s.id, parent.id)
	}
	if s.first <= end.LSN {
		w.failf("the log of %s begins at %s, and that of its parent ends at %s", s.id, s.first, end.LSN)
	}
	return feed.Commit{Sum: end.Sum, Time: end.Time, Trimmed: s.first - 1}
}

// judgeSplitCommit looks at what a commit says of splits and of beginnings.
func (w *world) judgeSplitCommit(s *strand, c *feed.Commit) {
	if s.split != nil {
		w.failf("%s has commit %s of %s behind its split commit", s.id, c.LSN, c.Owner)
	}
	is, err := feed.SplitOf(c)
	if err != nil {
		w.failf("%s, commit %s: %v", s.id, c.LSN, err)
	}
	if is != nil {
		s.split = is
		if k := c.Transactions[len(c.Transactions)-1].Control; k == nil || k.Kind != feed.ControlSplit {
			w.failf("the split commit %s of %s has more behind the split", c.LSN, s.id)
		}
	}
	for i := range c.Transactions {
		k := c.Transactions[i].Control
		if k != nil && k.Kind == store.ControlGenesis && c.LSN != s.first {
			w.failf("%s has another genesis at %s", s.id, c.LSN)
		}
	}
	if first := c.LSN == s.first; s.first > 1 && first != (c.ID == s.genesis) {
		w.failf("commit %s of %s has id %s, its genesis is %s", c.LSN, s.id, c.ID, s.genesis)
	}
}

// judgeCatalog compares what the catalog names with what the logs say.
func (w *world) judgeCatalog(info *store.ContainerInfo, leaves []lineage) {
	var want []store.PartitionInfo
	for _, l := range leaves {
		want = append(want, l.last().info)
	}
	if !slices.Equal(info.Partitions, want) {
		w.failf("the catalog names %+v, the logs say %+v", info.Partitions, want)
	}
	w.mu.Lock()
	asked := slices.Clone(w.asked)
	w.mu.Unlock()
	for _, a := range asked {
		for _, c := range a.Children {
			if st, _ := w.logOf(feed.Partition{Container: info.ID, Number: c.Number}); st == nil && info.Name == "things" {
				w.failf("split %s was acknowledged, and there is no child %d", a.ID, c.Number)
			}
		}
	}
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	for _, st := range w.server.sorted() {
		if !st.isLog() || !strings.Contains(st.name, string(info.ID)) {
			continue
		}
		if !slices.ContainsFunc(info.Named(), func(p store.PartitionInfo) bool {
			return feed.Partition{Container: info.ID, Number: p.Number}.Stream() == st.name
		}) {
			w.failf("stream %s is there, and the catalog does not name it", st.name)
		}
	}
}

// replayed applies all commits of a line to an engine of its own, as far as they lie in the range of the last log, and
// returns its digest.
func (w *world) replayed(all lineage) (sum uint64, lsn feed.LSN) {
	db := must(engine.Open(filepath.Join(w.dir, "line-"+all.last().id.Stream()), engine.Config{}, quiet))
	defer func() { _ = db.Close() }()
	p := must(db.Partition(all.last().id))
	r := must(owner.NewReplayer(p, slog.New(slog.DiscardHandler)))
	for i, s := range all {
		made := map[feed.LSN]digest.Digest{}
		for k, c := range s.commits {
			if err := r.Apply(c); err != nil {
				w.failf("I3: replay of %s, commit %s of %s: %v", all.last().id, c.LSN, s.id, err)
				return 0, 0
			}
			if i == len(all)-1 { // before, there is only what lies in the range
				w.judgeTold(s, r, c, made)
			}
			if i == 0 && k == 0 && len(all) > 1 {
				r.Only(all.last().info.Range)
			}
		}
		if i == len(all)-1 {
			break
		}
		state := must(p.State())
		next := all[i+1]
		if i == len(all)-2 {
			p.SetShare(nil) // its own log is all its own
		}
		b := p.NewBatch(nil)
		b.SetState(engine.State{Log: next.info.Log, Applied: next.first - 1, Sum: state.Sum, Time: state.Time, Settings: state.Settings})
		if err := b.Commit(); err != nil {
			panic(err)
		}
		r = must(owner.NewReplayer(p, slog.New(slog.DiscardHandler)))
		if i < len(all)-2 {
			r.Only(all.last().info.Range)
		}
	}
	return must(p.Digest()), must(p.State()).Applied
}
