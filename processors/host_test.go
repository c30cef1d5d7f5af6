package processors_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// stage is a NATS server with one log, to which a test appends and which a Host
// reads.
type stage struct {
	t       testing.TB
	log     *feed.Log
	host    *processors.Host
	js      jetstream.JetStream
	client  *store.Client
	letters *processors.DeadLetters
	last    feed.LSN
	sum     feed.Checksum
}

var partition = feed.Partition{Container: "c7k2x4ab", Number: 1}

var resource = processors.Resource{Pipeline: "names", Generation: 1, Role: processors.RoleSource, Partition: partition}

func newStage(t testing.TB, cfg processors.Config) *stage {
	t.Helper()
	below := storetest.Start(t) // first: a catalog is not made beside logs
	js := below.JS
	deadLetters, err := processors.OpenDeadLetters(t.Context(), below.Client)
	if err != nil {
		t.Fatal(err)
	}
	if err := feed.CreateLog(t.Context(), js, partition, feed.NewLogID(), feed.LogConfig{}); err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, js: js, client: below.Client, letters: deadLetters}
	if s.log, err = feed.OpenLog(t.Context(), js, partition, feed.LogConfig{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.log.Close)
	cfg.Logger = slog.New(slog.DiscardHandler)
	if s.host, err = processors.NewHost(below.Hub(t), s.letters, cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

// append commits creates of items, one transaction.
func (s *stage) append(ids ...string) {
	s.t.Helper()
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		s.t.Fatal(err)
	}
	var changes []feed.Change
	for _, id := range ids {
		changes = append(changes, feed.Change{Op: feed.OpCreate, Key: key, ID: id, After: fmt.Appendf(nil, `{"id":%q}`, id)})
	}
	s.appendTransaction(feed.Transaction{Changes: changes})
}

// appendTransaction commits a transaction.
func (s *stage) appendTransaction(t feed.Transaction) {
	s.t.Helper()
	c := &feed.Commit{
		ID: feed.NewCommitID(), Log: s.log.ID(), Prev: s.sum, Epoch: 1, Owner: "test", Time: time.Now().UnixMilli(),
		Transactions: []feed.Transaction{t},
	}
	data := feed.AppendCommit(nil, c)
	var err error
	if s.last, err = s.log.Append(s.t.Context(), s.last, c.ID, data); err != nil {
		s.t.Fatal(err)
	}
	s.sum = c.Sum
}

// lease is a lease in memory that a test can take away.
type lease struct {
	mu         sync.Mutex
	epoch      uint64
	checkpoint []byte
	lost       bool
	saves      chan *processors.Checkpoint
	// onSave, unless it is nil, sees each checkpoint before it is durable; its error is Save's.
	// Set before a term begins.
	onSave func(*processors.Checkpoint) error
	// beforeAmend, unless it is nil, is called before the next amendment.
	beforeAmend atomic.Pointer[func()]
}

func newLease() *lease { return &lease{epoch: 1, saves: make(chan *processors.Checkpoint, 1000)} }

var errLost = errors.New("lease lost")

func (l *lease) Epoch() uint64 { return l.epoch }
func (l *lease) Progress()     {}
func (l *lease) Checkpoint() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checkpoint
}

func (l *lease) Save(_ context.Context, checkpoint []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	cp, err := processors.DecodeCheckpoint(checkpoint)
	if err == nil && l.onSave != nil {
		err = l.onSave(cp)
	}
	if l.lost {
		return errLost
	}
	if err == nil {
		l.checkpoint = checkpoint
		l.saves <- cp
	}
	return err
}

// waitCheckpoint waits for a checkpoint of which ok is true.
func (l *lease) waitCheckpoint(t testing.TB, ok func(*processors.Checkpoint) bool) *processors.Checkpoint {
	t.Helper()
	deadline := time.After(poll.Most)
	var last *processors.Checkpoint
	for {
		select {
		case last = <-l.saves:
			if ok(last) {
				return last
			}
		case <-deadline:
			t.Fatalf("no such checkpoint; the last was %+v", last)
		}
	}
}

func at(lsn feed.LSN) func(*processors.Checkpoint) bool {
	return func(cp *processors.Checkpoint) bool { return cp.Position.LSN == lsn }
}

// recorder is a processor that notes what it is given and fails as it is told.
type recorder struct {
	term *processors.Term
	fail func(ids []string) error // may be nil
	// processed gets a token for each batch, unless it is nil.
	processed chan struct{}

	mu   sync.Mutex
	ids  []string
	jobs []processors.Job
}

func (r *recorder) Open(_ context.Context, t *processors.Term, s processors.State) error {
	r.term, r.jobs = t, s.Jobs
	return nil
}

func (r *recorder) Process(_ context.Context, b *processors.Batch) error {
	var ids []string
	for _, ch := range b.Changes() {
		ids = append(ids, ch.ID)
	}
	if r.fail != nil {
		if err := r.fail(ids); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, ids...)
	if r.processed != nil {
		r.processed <- struct{}{}
	}
	return nil
}

func (r *recorder) State() processors.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return processors.State{Jobs: slices.Clone(r.jobs)}
}

func (r *recorder) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (r *recorder) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ids)
}

// run starts a term; the returned function ends it and returns Run's error.
func (s *stage) run(l *lease, p processors.Processor) (stop func() error) {
	return s.runTask(l, processors.Task{Resource: resource, Processor: p})
}

func (s *stage) runTask(l *lease, task processors.Task) (stop func() error) {
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- s.host.Run(ctx, l, task) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	s.t.Cleanup(func() { _ = stop() })
	return stop
}

func TestI4_ATermGoesOnBehindTheCheckpoint(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	l := newLease()
	first := &recorder{}
	stop := s.run(l, first)
	s.append("a", "b")
	s.append("c")
	l.waitCheckpoint(t, at(2))
	if err := stop(); err != nil {
		t.Fatalf("a term that is ended returns %v", err)
	}
	s.append("d", "e")
	second := &recorder{}
	stop = s.run(l, second)
	l.waitCheckpoint(t, at(3))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, first.seen()); diff != "" {
		t.Errorf("first term (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"d", "e"}, second.seen()); diff != "" {
		t.Errorf("second term (-want +got):\n%s", diff)
	}
}

func TestADrainWritesTheLastCheckpoint(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Hour})
	l := newLease()
	r := &recorder{processed: make(chan struct{}, 1)}
	stop := s.run(l, r)
	s.append("a")
	<-r.processed
	s.append("b") // taken only when the batch before is in the checkpoint-to-be
	<-r.processed
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if cp, err := processors.DecodeCheckpoint(l.Checkpoint()); err != nil || cp.Position.LSN < 1 {
		t.Errorf("last checkpoint %+v, %v", cp, err)
	}
}

func TestRetryGoesOnWhatCannotBeReached(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond, CheckpointBusyInterval: time.Millisecond})
	l := newLease()
	failures := 0
	r := &recorder{fail: func([]string) error {
		if failures++; failures <= processors.AttemptsMax+2 {
			return &store.Error{Status: store.StatusUnavailable, Message: "no owner", RetryAfter: time.Millisecond}
		}
		return nil
	}}
	s.run(l, r)
	s.append("a", "b")
	stuck := l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return cp.Attempts > 0 })
	if stuck.LastError == "" || stuck.Position.LSN != 0 {
		t.Errorf("while it fails the checkpoint is %+v", stuck)
	}
	done := l.waitCheckpoint(t, at(1))
	if done.Attempts != 0 || done.LastError != "" || len(done.Parked) != 0 {
		t.Errorf("when it has succeeded the checkpoint is %+v", done)
	}
}

// One change of many cannot be processed: it alone is given up.
func TestABadChangeIsIsolated(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]error{
		"rejected": processors.Reject(errors.New("it is bad")),
		"doubtful": errors.New("who knows"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
			l := newLease()
			heal := make(chan struct{})
			r := &superseder{recorder{fail: func(ids []string) error {
				select {
				case <-heal:
					return nil
				default:
				}
				if slices.Contains(ids, "c") {
					return bad
				}
				return nil
			}}}
			s.append("a", "b")
			s.append("c", "d", "e")
			stop := s.run(l, r)
			s.append("f")
			cp := l.waitCheckpoint(t, at(3))
			if len(cp.Parked) != 1 || cp.Parked[0].Source != `["k"]/c` || cp.Parked[0].Position != (feed.Position{LSN: 2}) {
				t.Fatalf("parked: %+v", cp.Parked)
			}
			for _, id := range []string{"a", "b", "d", "e", "f"} {
				if !slices.Contains(r.seen(), id) {
					t.Errorf("%s was not processed", id)
				}
			}
			deadLetters, err := s.letters.List(t.Context(), "names", 10)
			if err != nil || len(deadLetters) != 1 {
				t.Fatalf("dead letters %+v, %v, want one", deadLetters, err)
			}
			want := processors.DeadLetter{
				Pipeline: "names", Generation: 1, Role: processors.RoleSource, Partition: partition.String(), Item: `["k"]/c`,
				Position: feed.Position{LSN: 2}, Reason: bad.Error(),
			}
			got := deadLetters[0]
			if got.Attempts == 0 || got.Time.IsZero() {
				t.Errorf("dead letter without attempts or time: %+v", got)
			}
			got.Attempts, got.Time, got.ID = 0, time.Time{}, ""
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("dead letter (-want +got):\n%s", diff)
			}

			// A later change of the item that makes up for it ends its being parked,
			// in a later term too.
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			close(heal)
			s.run(l, r)
			s.append("c")
			if cp := l.waitCheckpoint(t, at(4)); len(cp.Parked) != 0 {
				t.Errorf("still parked: %+v", cp.Parked)
			}
		})
	}
}

func TestTooManyParkedItemsStopTheTerm(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{ParkedMax: 2})
	s.append("a", "b", "c", "d")
	err := s.host.Run(t.Context(), newLease(), processors.Task{Resource: resource, Processor: &recorder{fail: func([]string) error {
		return processors.Reject(errors.New("all are bad"))
	}}})
	var many *processors.TooManyParkedError
	if !errors.As(err, &many) || many.Parked != 3 {
		t.Errorf("the term ended with %v", err)
	}
}

func TestI5_AFencedWriteEndsTheTerm(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{})
	s.append("a")
	l := newLease()
	l.lost = true
	err := s.host.Run(t.Context(), l, processors.Task{Resource: resource, Processor: &recorder{fail: func([]string) error {
		return fmt.Errorf("page: %w", store.ErrFenced)
	}}})
	if !errors.Is(err, processors.ErrFenced) {
		t.Errorf("the term ended with %v, want ErrFenced", err)
	}
}

// A stream that is not the one of the checkpoint is refused, not waited for.
func TestI3_AnotherLogIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	s.append("a")
	s.append("b")
	l := newLease()
	stop := s.run(l, &recorder{})
	cp := l.waitCheckpoint(t, at(2))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*processors.Checkpoint){
		"made anew":      func(cp *processors.Checkpoint) { cp.Log = feed.NewLogID() },
		"restored older": func(cp *processors.Checkpoint) { cp.Position.LSN = 5 },
		"other end":      func(cp *processors.Checkpoint) { cp.Sum = 1234 },
		"other contents": func(cp *processors.Checkpoint) { cp.Position.LSN, cp.Sum = 1, 1234 },
	} {
		other := *cp
		change(&other)
		l.checkpoint = other.Encode()
		l.lost = true
		err := s.host.Run(t.Context(), l, processors.Task{Resource: resource, Processor: &recorder{}})
		if _, ok := errors.AsType[*feed.MismatchError](err); !ok {
			t.Errorf("%s: %v, want a MismatchError", name, err)
		}
	}
}

func TestJobsOutliveTheTerm(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	l := newLease()
	first := &recorder{}
	stop := s.run(l, first)
	s.append("a")
	l.waitCheckpoint(t, at(1))
	job := processors.Job{Source: `["k"]/a`, Position: feed.Position{LSN: 1}}
	first.mu.Lock()
	first.jobs = []processors.Job{job}
	first.mu.Unlock()
	first.term.Changed("")
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return len(cp.Jobs) == 1 })
	if got := s.host.Activities(); len(got) != 1 || got[0].Waiting {
		t.Errorf("with an open job the activity is %+v", got)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	second := &recorder{}
	s.run(l, second)
	s.append("b")
	l.waitCheckpoint(t, at(2))
	if diff := cmp.Diff([]processors.Job{job}, second.State().Jobs); diff != "" {
		t.Errorf("jobs of the second term (-want +got):\n%s", diff)
	}
}
