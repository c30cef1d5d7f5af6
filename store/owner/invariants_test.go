package owner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
)

func TestI1_SecondOwnerFencesTheFirst(t *testing.T) {
	w := newWorld(t, byA)
	k := pk(t, "x")
	first := w.start(t.TempDir())
	first.mustOne(k, create(`{"id":"1","a":"x"}`))
	arrived, release := first.log.hold()
	late := make(chan error, 1)
	go func() {
		_, err := first.one(k, create(`{"id":"late","a":"x"}`))
		late <- err
	}()
	<-arrived // decided, not yet in the log
	second := w.start(t.TempDir())
	release()
	if err := <-late; !errors.Is(err, store.ErrNotOwner) {
		t.Errorf("the late write was answered %v", err)
	}
	if err := first.ended(); !errors.Is(err, feed.ErrFenced) {
		t.Errorf("the first owner stopped with %v", err)
	}
	if _, err := first.one(k, create(`{"id":"2","a":"x"}`)); !errors.Is(err, store.ErrNotOwner) || retryAfter(err) != 0 {
		t.Errorf("a write to the fenced owner was answered %v", err)
	}
	if second.read(k, "1") == "" || second.read(k, "late") != "" {
		t.Error("the second owner does not show what is in the log")
	}
}

func TestI1_TakeoverReplaysWhatCameBetween(t *testing.T) {
	w := newWorld(t, byA)
	k := pk(t, "x")
	first := w.start(t.TempDir())
	second := w.open(t.TempDir())
	n := 0
	second.log.fault(func(_ context.Context, appendIt func() (feed.LSN, error)) (feed.LSN, error) {
		n++
		first.mustOne(k, create(fmt.Sprintf(`{"id":"%d","a":"x"}`, n)))
		return appendIt()
	})
	if err := second.open(t.Context(), w.info.Partitions[0].Log); err != nil {
		t.Fatal(err)
	}
	second.serve()
	if n != 1 || second.read(k, "1") == "" {
		t.Errorf("after %d refusals the new owner shows %q", n, second.read(k, "1"))
	}
}

func TestI1_AnOlderLeaseDoesNotTakeOver(t *testing.T) {
	w := newWorld(t, byA)
	old := w.open(t.TempDir())
	w.start(t.TempDir())
	err := old.open(t.Context(), w.info.Partitions[0].Log)
	if _, ok := errors.AsType[*SupersededError](err); !ok {
		t.Errorf("open under the older lease: %v", err)
	}
}

// TestI1_AnOlderLeaseDoesNotTakeOverBehindWhatItFollowed opens a copy that holds the takeover of
// a later owner: nothing of that is replayed any more.
func TestI1_AnOlderLeaseDoesNotTakeOverBehindWhatItFollowed(t *testing.T) {
	w := newWorld(t, byA)
	old := w.open(t.TempDir())
	w.start(t.TempDir()).mustOne(pk(t, "x"), create(`{"id":"1","a":"x"}`))
	r, err := NewReplayer(old.engine, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	commits := w.commits()
	for _, c := range commits {
		if err := r.Apply(c); err != nil {
			t.Fatal(err)
		}
	}
	err = old.open(t.Context(), w.info.Partitions[0].Log)
	if superseded, ok := errors.AsType[*SupersededError](err); !ok || superseded.Seen != 2 {
		t.Errorf("open under the older lease: %v", err)
	}
	if behind, ok := errors.AsType[*leases.EpochBehindError](err); !ok || behind.Seen != 2 {
		t.Errorf("the next lease is not told to be greater: %v", err)
	}
	if now := w.commits(); len(now) != len(commits) {
		t.Errorf("%d commits were appended under the older lease", len(now)-len(commits))
	}
}

func TestI1_NoServiceWithoutTheLease(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	n.mustOne(pk(t, "x"), create(`{"id":"1","a":"x"}`))
	n.lease.valid.Store(false)
	n.lease.cancel(errStopped)
	for _, op := range []store.Operation{{Kind: store.OpRead, ID: "1"}, create(`{"id":"2","a":"x"}`)} {
		if _, err := n.one(pk(t, "x"), op); !errors.Is(err, store.ErrNotOwner) {
			t.Errorf("%s without a lease: %v", op.Kind, err)
		}
	}
}

// TestI1_ALeaseInDoubtAnswersNobody has a process that was late to renew its lease:
// until it is known whether it has it still, requests wait, and then they are
// answered, or refused.
func TestI1_ALeaseInDoubtAnswersNobody(t *testing.T) {
	for _, kept := range []bool{true, false} {
		w := newWorld(t, byA)
		n := w.start(t.TempDir())
		n.mustOne(pk(t, "x"), create(`{"id":"1","a":"x"}`))
		n.doubtMax = time.Hour // nobody asks before
		n.lease.valid.Store(false)
		ops := []store.Operation{{Kind: store.OpRead, ID: "1"}, create(`{"id":"2","a":"x"}`)}
		answers := make(chan error, len(ops))
		var waiting sync.WaitGroup
		waiting.Add(len(ops))
		for _, op := range ops {
			go func() {
				waiting.Done()
				_, err := n.one(pk(t, "x"), op)
				answers <- err
			}()
		}
		waiting.Wait()
		select {
		case err := <-answers:
			t.Errorf("answered in doubt: %v", err)
		default:
		}
		if kept {
			n.lease.valid.Store(true)
		} else {
			n.lease.cancel(errStopped)
		}
		for range ops {
			if err := <-answers; kept && err != nil || !kept && !errors.Is(err, store.ErrNotOwner) {
				t.Errorf("lease kept %t: %v", kept, err)
			}
		}
	}
}

func TestI2_NobodyIsAnsweredBeforeTheAppend(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	arrived, release := n.log.hold()
	answers := make(chan error, 2)
	go func() {
		_, err := n.one(k, create(`{"id":"1","a":"x"}`))
		answers <- err
	}()
	<-arrived
	if n.read(k, "1") != "" {
		t.Error("a read shows what is not durable")
	}
	go func() { // rests on the create that is in flight
		_, err := n.one(k, create(`{"id":"1","a":"x"}`))
		answers <- err
	}()
	n.decided(1)
	select {
	case err := <-answers:
		t.Fatalf("answered (%v) while the append is in flight", err)
	default:
	}
	release()
	first, second := <-answers, <-answers
	if (first == nil) == (second == nil) {
		t.Errorf("answers %v and %v", first, second)
	}
}

func TestI2_AnAppendThatDidNotHappenVoidsWhatRestedOnIt(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	in, out := make(chan struct{}), make(chan struct{})
	n.log.fault(func(context.Context, func() (feed.LSN, error)) (feed.LSN, error) {
		close(in)
		<-out
		return 0, feed.ErrStorage
	})
	errs := make(chan error, 2)
	go func() {
		_, err := n.one(k, create(`{"id":"1","a":"x"}`))
		errs <- err
	}()
	<-in
	go func() {
		_, err := n.one(k, patch("1", set("/b", "1")))
		errs <- err
	}()
	n.decided(1)
	close(out)
	for range 2 {
		if err := <-errs; !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrDiskFull) {
			t.Errorf("answered %v", err)
		}
	}
	if n.read(k, "1") != "" {
		t.Error("the item is there")
	}
	n.mustOne(k, create(`{"id":"1","a":"x"}`))
	if got := n.read(k, "1"); got != `{"id":"1","a":"x"}` {
		t.Errorf("after the trouble: %s", got)
	}
}

func TestI2_UnknownOutcomeIsNotAnsweredAsEither(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	n.log.fault(func(_ context.Context, appendIt func() (feed.LSN, error)) (feed.LSN, error) {
		if _, err := appendIt(); err != nil {
			return 0, err
		}
		return 0, feed.ErrUnknown
	})
	_, err := n.one(k, create(`{"id":"1","a":"x"}`))
	if statusOf(t, err) != store.StatusUnknown {
		t.Errorf("answered %v", err)
	}
	if err := n.ended(); !errors.Is(err, feed.ErrUnknown) {
		t.Errorf("stopped with %v", err)
	}
	if next := w.start(t.TempDir()); next.read(k, "1") == "" {
		t.Error("what was appended is not there")
	}
}

// TestI2_WhatMayBeInTheLogIsNotSaidToHaveFailed appends a commit, and then the log is found to be gone or damaged.
func TestI2_WhatMayBeInTheLogIsNotSaidToHaveFailed(t *testing.T) {
	for name, found := range map[string]error{
		"gone":                              fmt.Errorf("%w: %w", feed.ErrUnknown, feed.ErrNoLog),
		"not ours":                          &feed.MismatchError{What: "stored at 9 of stream another"},
		"with a gap":                        &feed.GapError{Want: 3, Got: 5},
		"an error that nobody has foreseen": errors.New("unforeseen"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, byA)
			n := w.start(t.TempDir())
			k := pk(t, "x")
			n.log.fault(func(_ context.Context, appendIt func() (feed.LSN, error)) (feed.LSN, error) {
				if _, err := appendIt(); err != nil {
					t.Error(err)
				}
				return 0, found
			})
			if _, err := n.one(k, create(`{"id":"1","a":"x"}`)); statusOf(t, err) != store.StatusUnknown {
				t.Errorf("answered %v", err)
			}
			err := n.ended()
			if !errors.Is(err, found) || opensAnew(err) != (name != "an error that nobody has foreseen") {
				t.Errorf("stopped with %v; opens anew: %t", err, opensAnew(err))
			}
			if next := w.start(t.TempDir()); next.read(k, "1") == "" {
				t.Error("what was appended is not there")
			}
		})
	}
}

func TestI2_GroupCommit(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	before := n.state.Load().lsn
	arrived, release := n.log.hold()
	var wg sync.WaitGroup
	write := func(i int) {
		if _, err := n.one(k, create(fmt.Sprintf(`{"id":"%d","a":"x"}`, i))); err != nil {
			t.Error(err)
		}
	}
	wg.Go(func() { write(0) })
	<-arrived
	for i := 1; i <= 50; i++ {
		wg.Go(func() { write(i) })
	}
	n.decided(50)
	release()
	wg.Wait()
	if got := n.state.Load().lsn - before; got != 2 {
		t.Errorf("51 writes took %d commits, want 2", got)
	}
}

func TestI3_StateIsAFunctionOfTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.ContainerSpec{
		PartitionKey: []string{"/a"}, Indexes: []string{"/tags/*/id", "/n"}, UniqueKeys: [][]string{{"/u"}}, TTL: -1,
	})
	dir := t.TempDir()
	n := w.start(dir)
	m := newModel(t, n, 1)
	m.run(400)
	digest := func(n *node) uint64 {
		t.Helper()
		d, err := n.engine.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	// Another node, and the same with an engine that is brought up in two steps.
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	again := w.start(dir)
	m.n = again
	fresh := w.openAt(t.TempDir(), again.state.Load().lsn)
	if got, want := fresh, digest(again); got != want {
		t.Errorf("digest of a rebuilt engine is %x, of the other %x", got, want)
	}
	m.run(100)
	m.check()
}

// openAt builds an engine from the log alone and returns its digest: commit by commit, each twice, which is harmless, and
// again with as many at once as are applied together, which must come to the same.
func (w *world) openAt(dir string, lsn feed.LSN) uint64 {
	w.t.Helper()
	all := slices.DeleteFunc(w.commits(), func(c *feed.Commit) bool { return c.LSN > lsn })
	single := w.applied(filepath.Join(dir, "single"), func(a *applier) error {
		for _, c := range all {
			if err := errors.Join(a.apply(c), a.apply(c)); err != nil {
				return err
			}
		}
		return nil
	})
	together := w.applied(filepath.Join(dir, "together"), func(a *applier) error { return a.apply(all...) })
	if single != together {
		w.t.Errorf("digest of an engine is %x if commits are applied together, and %x one by one", together, single)
	}
	return single
}

// applied returns the digest of an engine in dir that f fills.
func (w *world) applied(dir string, f func(a *applier) error) uint64 {
	w.t.Helper()
	n := w.open(dir)
	defer func() { _ = n.db.Close() }()
	if err := f(&applier{p: n.engine, log: n.Partition.log}); err != nil {
		w.t.Fatal(err)
	}
	d, err := n.engine.Digest()
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func TestI5_LateWorkerIsRefused(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	item := n.mustOne(k, create(`{"id":"1","a":"x","name":"old"}`))
	producer := feed.Producer{Pipeline: "p", Generation: 1, Source: "s/0"}
	repair := func(epoch uint64, etag store.ETag, name string) *store.Response {
		return n.ask(&store.Request{Repair: &store.Repair{Producer: producer, Epoch: epoch, Items: []store.RepairItem{{
			Ref: store.ItemRef{Key: k, ID: "1"}, IfMatch: etag,
			Copies: []store.Copy{{Action: store.CopySet, Set: []store.Field{{Path: "name", Value: []byte(name)}}}},
		}}}})
	}
	r := repair(5, item.ETag, `"new"`)
	if r.Err != nil || r.Repair.Statuses[0] != store.StatusOK {
		t.Fatalf("%+v", r)
	}
	item = n.mustOne(k, store.Operation{Kind: store.OpRead, ID: "1"})
	if r := repair(4, item.ETag, `"older"`); !errors.Is(r.Err, store.ErrFenced) || r.Err.Epoch != 5 {
		t.Errorf("an older epoch was answered %+v", r)
	}
	page := &store.PatchMany{
		Producer: producer, Epoch: 4, Source: "c", Position: feed.Position{LSN: 1}, Scope: store.Scope{Key: k},
		Copy: store.Copy{Action: store.CopySet, Set: []store.Field{{Path: "name", Value: []byte(`"older"`)}}},
	}
	if r := n.ask(&store.Request{PatchMany: page}); !errors.Is(r.Err, store.ErrFenced) || r.Err.Epoch != 5 {
		t.Errorf("a page of an older epoch was answered %+v", r)
	}
	if got := n.read(k, "1"); got != `{"id":"1","a":"x","name":"new"}` {
		t.Errorf("the item is %s", got)
	}
}

func TestI7_APipelineWritesNothingWhereNothingChanges(t *testing.T) {
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/a"}, TTL: 100})
	n := w.start(t.TempDir())
	k := pk(t, "x")
	item := n.mustOne(k, create(`{"id":"1","a":"x","name":"n"}`))
	w.clock.Add(50_000)
	repair := func(etag store.ETag, name string) store.Status {
		t.Helper()
		r := n.ask(&store.Request{Repair: &store.Repair{
			Producer: feed.Producer{Pipeline: "p", Generation: 1, Source: "s/0"}, Epoch: 1, Items: []store.RepairItem{{
				Ref: store.ItemRef{Key: k, ID: "1"}, IfMatch: etag,
				Copies: []store.Copy{{Action: store.CopySet, Set: []store.Field{{Path: "name", Value: []byte(name)}}}},
			}},
		}})
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return r.Repair.Statuses[0]
	}
	if got := repair(item.ETag, `"n"`); got != store.StatusNotModified {
		t.Errorf("status %d", got)
	}
	planted := n.state.Load().lsn
	if got := repair(item.ETag, `"n"`); got != store.StatusNotModified || n.state.Load().lsn != planted {
		t.Errorf("status %d, %d commits", got, n.state.Load().lsn-planted)
	}
	if got := repair(item.ETag, `"m"`); got != store.StatusOK {
		t.Errorf("status %d", got)
	}
	after := n.mustOne(k, store.Operation{Kind: store.OpRead, ID: "1"})
	if after.Modified != item.Modified || after.Written != item.Written {
		t.Errorf("a pipeline's write moved the TTL clock: %+v, before %+v", after, item)
	}
	w.clock.Add(50_000)
	if n.read(k, "1") != "" {
		t.Error("the item outlived its time to live")
	}
}

func TestClientsPatchAlwaysCommits(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	first := n.mustOne(k, create(`{"id":"1","a":"x","n":1}`))
	second := n.mustOne(k, patch("1", set("/n", "1")))
	if first.ETag == second.ETag || string(first.Body) != string(second.Body) {
		t.Errorf("first %+v, second %+v", first, second)
	}
}
