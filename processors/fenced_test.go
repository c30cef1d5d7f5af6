package processors_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// seenEpoch returns the epoch of which a term tells its lease that it was refused by it.
func seenEpoch(err error) uint64 {
	if behind, ok := errors.AsType[*leases.EpochBehindError](err); ok {
		return behind.Seen
	}
	return 0
}

// failing fails where fenced says.
type failing struct {
	retrier
	open, run error
}

func (p *failing) Open(ctx context.Context, t *processors.Term, s processors.State) error {
	return errors.Join(p.open, p.recorder.Open(ctx, t, s))
}

func (p *failing) Run(ctx context.Context) error {
	if p.run != nil {
		return errors.Join(processors.ErrFenced, p.run)
	}
	return p.recorder.Run(ctx)
}

// TestI5_ATermTellsWhichEpochHasFencedIt, wherever it was fenced and whoever did it.
func TestI5_ATermTellsWhichEpochHasFencedIt(t *testing.T) {
	t.Parallel()
	byOwner := func(epoch uint64) error {
		return fmt.Errorf("page: %w", &store.Error{Status: store.StatusFenced, Message: "the lease has passed on", Epoch: epoch})
	}
	for name, c := range map[string]struct {
		err  error
		want uint64
	}{
		"an owner":                       {byOwner(57), 57},
		"a sink":                         {fmt.Errorf("flush: %w", &processors.FencedError{Seen: 57}), 57},
		"an owner of an earlier release": {byOwner(0), 0},
		"a later generation":             {byOwner(processors.EpochOver), 0},
		"a sink's later generation":      {fmt.Errorf("flush: %w", processors.ErrFenced), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, processors.Config{})
			s.append("a")
			process := &failing{}
			process.fail = func([]string) error { return c.err }
			for where, p := range map[string]processors.Processor{"Process": process, "Open": &failing{open: c.err}, "Run": &failing{run: c.err}} {
				err := s.host.Run(t.Context(), newLease(), processors.Task{Resource: resource, Processor: p})
				if processors.FailureOf(t.Context(), err) != processors.Fenced || seenEpoch(err) != c.want {
					t.Errorf("%s: the term ended with %v and tells epoch %d, want %d", where, err, seenEpoch(err), c.want)
				}
			}
		})
	}
}

func TestI5_AFencedRetryTellsTheEpoch(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	p := &failing{}
	p.fail = func([]string) error { return processors.Reject(errors.New("it is bad")) }
	p.retry = func(string) error { return &store.Error{Status: store.StatusFenced, Epoch: 57} }
	s.append("a")
	l := newLease()
	stop := s.run(l, p)
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return len(cp.Parked) == 1 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	deadLetters, err := s.letters.List(t.Context(), "names", 10)
	if err != nil || len(deadLetters) != 1 {
		t.Fatalf("dead letters: %+v, %v", deadLetters, err)
	}
	if err := s.letters.Retry(t.Context(), "names", deadLetters[0].ID); err != nil {
		t.Fatal(err)
	}
	err = s.host.Run(t.Context(), l, processors.Task{Resource: resource, Processor: p})
	if seenEpoch(err) != 57 {
		t.Errorf("the term ended with %v", err)
	}
}

// fence is a target that refuses older epochs than it has seen.
type fence struct {
	mu    sync.Mutex
	seen  uint64
	terms []uint64 // the epoch of each term that has written
}

func (f *fence) write(epoch uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.terms) == 0 || f.terms[len(f.terms)-1] != epoch {
		f.terms = append(f.terms, epoch)
	}
	if epoch < f.seen {
		return &store.Error{Status: store.StatusFenced, Message: "written under an older lease epoch", Epoch: f.seen}
	}
	f.seen = epoch
	return nil
}

// worker holds the stage's lease in the bucket, and writes to f until it is stopped. before, unless
// it is nil, is called before each write; ended, unless it is nil, gets the error of each term.
func (s *stage) worker(f *fence, processed chan struct{}, before func(), ended chan<- error) (stop func()) {
	s.t.Helper()
	m := storetest.Manager(s.t, s.js, "worker")
	m.SetResources([]string{resource.String()}, nil)
	return storetest.Run(s.t, func(ctx context.Context) error {
		return m.Run(ctx, func(ctx context.Context, held *leases.Held) error {
			p := &recorder{processed: processed}
			p.fail = func([]string) error {
				if before != nil {
					before()
				}
				return f.write(held.Epoch())
			}
			err := s.host.Run(ctx, held, processors.Task{Resource: resource, Processor: p})
			if ended != nil {
				ended <- err
			}
			return err
		})
	})
}

// setLease writes the record of the stage's lease, whoever has it.
func (s *stage) setLease(owner string, epoch uint64) {
	s.t.Helper()
	kv, err := s.js.KeyValue(s.t.Context(), leases.DefaultBucket)
	if err != nil {
		s.t.Fatal(err)
	}
	record, err := json.Marshal(map[string]any{"v": 1, "resource": resource.String(), "owner": owner, "epoch": epoch, "write": 1, "ttlMs": (10 * time.Minute).Milliseconds()})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := kv.Put(s.t.Context(), "lease.worker."+resource.String(), record); err != nil {
		s.t.Fatal(err)
	}
}

// TestI5_AWorkerGoesOnAfterItsLeaseIsLost loses the bucket of the leases, and makes it again, while
// a target remembers the epoch. One more holding passes the fence.
func TestI5_AWorkerGoesOnAfterItsLeaseIsLost(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	f, processed := &fence{}, make(chan struct{}, 10)
	storetest.Manager(t, s.js, "worker") // makes the bucket
	s.setLease("", 9999)
	stop := s.worker(f, processed, nil, nil)
	s.append("a")
	<-processed
	stop()
	if err := s.js.DeleteKeyValue(t.Context(), leases.DefaultBucket); err != nil {
		t.Fatal(err)
	}
	s.append("b")
	s.worker(f, processed, nil, nil)
	<-processed // from the beginning again: the checkpoint is lost too
	f.mu.Lock()
	defer f.mu.Unlock()
	if diff := cmp.Diff([]uint64{10_000, 1, 10_001}, f.terms); diff != "" {
		t.Errorf("epochs of the terms that have written (-want +got):\n%s", diff)
	}
}

// TestI5_AnOlderWorkerStaysFenced takes a lease from a worker whose write is on its way. It is fenced,
// and the lease's record stays as the later holder wrote it.
func TestI5_AnOlderWorkerStaysFenced(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	f, writes := &fence{}, make(chan struct{})
	there, ended := make(chan struct{}, 9), make(chan error, 9)
	stop := s.worker(f, nil, func() { there <- struct{}{}; <-writes }, ended)
	s.append("a")
	<-there
	s.setLease("other/1", 2)
	if err := f.write(2); err != nil {
		t.Fatal(err)
	}
	close(writes)
	if err := <-ended; !errors.Is(err, processors.ErrFenced) {
		t.Errorf("the older term ended with %v, want ErrFenced", err)
	}
	stop()
	all, err := leases.List(t.Context(), s.js, "")
	all = slices.DeleteFunc(all, func(l leases.Lease) bool { return l.Group != "worker" })
	if err != nil || len(all) != 1 || all[0].Owner != "other/1" || all[0].Epoch != 2 {
		t.Errorf("the lease of the later holder: %+v, %v", all, err)
	}
	if diff := cmp.Diff([]uint64{2, 1}, f.terms); diff != "" || f.seen != 2 {
		t.Errorf("the target has seen epoch %d, of the terms (-want +got):\n%s", f.seen, diff)
	}
}
