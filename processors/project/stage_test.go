package project_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/sinktest"
	"github.com/millrace/millrace/store"
)

// stage is a store with the log of a source partition, to which a test appends, and
// a Host that runs the projection's processor.
type stage struct {
	t testing.TB
	*node
	log       *feed.Log
	host      *processors.Host
	letters   *processors.DeadLetters
	partition feed.Partition    // that is read
	items     map[string]string // as they are, by id
	last      feed.LSN
	sum       feed.Checksum
}

var partition = feed.Partition{Container: "c7k2x4ab"}

func newStage(t testing.TB) *stage {
	t.Helper()
	s := &stage{t: t, node: newNode(t), partition: partition, items: map[string]string{}}
	s.makeLog(t)
	var err error
	if s.log, err = feed.OpenLog(t.Context(), s.JS, partition, feed.LogConfig{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.log.Close)
	if s.letters, err = processors.OpenDeadLetters(t.Context(), s.Client); err != nil {
		t.Fatal(err)
	}
	cfg := processors.Config{CheckpointInterval: time.Millisecond, CheckpointBusyInterval: time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	if s.host, err = processors.NewHost(s.Hub(t), s.letters, cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

// makeLog makes the log by hand, so that the test alone appends to it. A record of a container that is not ready yet
// names it: no store serves it, and the catalog counts as whole however late it is looked at.
func (s *stage) makeLog(t testing.TB) {
	t.Helper()
	log := feed.NewLogID()
	info := store.ContainerInfo{
		Database: "default", Name: "by-hand", ID: partition.Container, State: store.ContainerCreating, Created: time.Now().UTC(),
		Spec: store.ContainerSpec{PartitionKey: []string{"/customerId"}, Partitions: 1}, Partitions: []store.PartitionInfo{{Log: log}},
	}
	record, err := json.Marshal(info)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := s.JS.KeyValue(t.Context(), store.CatalogBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Create(t.Context(), store.CatalogKey(info.Database, info.Name), record); err != nil {
		t.Fatal(err)
	}
	if err := feed.CreateLog(t.Context(), s.JS, partition, log, feed.LogConfig{}); err != nil {
		t.Fatal(err)
	}
}

// set is a change of an item of one logical partition: what it is now, "" for
// nothing.
type set struct {
	op   feed.Op // 0: as it comes
	id   string
	body string
}

// append commits changes, one transaction.
func (s *stage) append(changes ...set) {
	s.t.Helper()
	c := &feed.Commit{
		ID: feed.NewCommitID(), Log: s.log.ID(), Prev: s.sum, Epoch: 1, Owner: "test", Time: time.Now().UnixMilli(),
		Transactions: []feed.Transaction{{}},
	}
	for _, change := range changes {
		before, was := s.items[change.id]
		ch := feed.Change{Op: feed.OpCreate, Key: key(s.t, "c1"), ID: change.id}
		if was {
			ch.Op, ch.Before = feed.OpReplace, []byte(before)
		}
		if s.items[change.id] = change.body; change.body == "" {
			ch.Op = feed.OpDelete
			delete(s.items, change.id)
		} else {
			ch.After = []byte(change.body)
		}
		if change.op != 0 {
			ch.Op = change.op
		}
		c.Transactions[0].Changes = append(c.Transactions[0].Changes, ch)
	}
	data := feed.AppendCommit(nil, c)
	var err error
	if s.last, err = s.log.Append(s.t.Context(), s.last, c.ID, data); err != nil {
		s.t.Fatal(err)
	}
	s.sum = c.Sum
}

// lease is a lease in memory.
type lease struct {
	mu         sync.Mutex
	epoch      uint64
	checkpoint []byte
	saves      chan *processors.Checkpoint
}

func newLease() *lease { return &lease{saves: make(chan *processors.Checkpoint, 10_000)} }

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
	l.checkpoint = checkpoint
	cp, err := processors.DecodeCheckpoint(checkpoint)
	l.saves <- cp
	return err
}

// wait waits for a checkpoint of which ok is true.
func (l *lease) wait(t testing.TB, ok func(*processors.Checkpoint) bool) *processors.Checkpoint {
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

// done waits until everything is durable.
func (s *stage) done(l *lease) *processors.Checkpoint {
	s.t.Helper()
	return l.wait(s.t, func(cp *processors.Checkpoint) bool { return cp.Position.LSN == s.last })
}

// run begins a term; the returned function ends it and returns its error.
func (s *stage) run(l *lease, p *project.Projection) (stop func() error) {
	l.epoch++
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	task := processors.Task{Resource: p.Resource(s.partition), Processor: p.Rows(s.partition)}
	go func() { done <- s.host.Run(ctx, l, task) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	s.t.Cleanup(func() { _ = stop() })
	return stop
}

// ends waits for the term to end by itself.
func (s *stage) ends(l *lease, p *project.Projection) error {
	s.t.Helper()
	l.epoch++
	done := make(chan error, 1)
	go func() {
		done <- s.host.Run(s.t.Context(), l, processors.Task{Resource: p.Resource(s.partition), Processor: p.Rows(s.partition)})
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(poll.Most):
		s.t.Fatal("the term does not end")
		return nil
	}
}

// held returns the items as they are.
func (s *stage) held() (items []store.Item) {
	for id, body := range s.items {
		items = append(items, store.Item{Key: key(s.t, "c1"), ID: id, Body: []byte(body)})
	}
	return items
}

// equal compares what the sink has with what the items say.
func (s *stage) equal(p *project.Projection) {
	s.t.Helper()
	sinktest.Equal(s.t, p, s.held())
}

// noDeadLetters fails if there are dead letters.
func (s *stage) noDeadLetters() {
	s.t.Helper()
	deadLetters, err := s.letters.List(s.t.Context(), "analytics", 10)
	if err != nil || len(deadLetters) > 0 {
		s.t.Errorf("dead letters: %+v, %v", deadLetters, err)
	}
}

// tap is a Memory that shows what is written.
type tap struct {
	*sinktest.Memory
	write func(*project.Batch) error // its error is that of Write
}

func (s *tap) Open(ctx context.Context, schema *project.Schema, t project.Term) (project.Writer, feed.Position, error) {
	w, at, err := s.Memory.Open(ctx, schema, t)
	if err != nil {
		return nil, at, err
	}
	return &tapped{w, s}, at, nil
}

type tapped struct {
	project.Writer
	tap *tap
}

func (w *tapped) Write(ctx context.Context, b *project.Batch) (project.Written, error) {
	if err := w.tap.write(b); err != nil {
		return project.Written{}, err
	}
	return w.Writer.Write(ctx, b)
}

// flaky fails some steps of a Memory so many times.
type flaky struct {
	mu    sync.Mutex
	left  map[string]int
	cause error
}

func (f *flaky) fail(step string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left[step] > 0 {
		f.left[step]--
		return f.cause
	}
	return nil
}

func orderItem(id, date string, skus ...string) string {
	details := ""
	for i, sku := range skus {
		if i > 0 {
			details += ","
		}
		details += fmt.Sprintf(`{"sku":%q,"price":%d.5,"quantity":1}`, sku, i)
	}
	return fmt.Sprintf(`{"id":%q,"customerId":"c1","type":"salesOrder","orderDate":%q,"details":[%s]}`, id, date, details)
}

var errAway = errors.New("the sink is away")
