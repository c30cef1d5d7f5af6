package parquetsink_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/processors/project/sinktest"
	"github.com/millrace/millrace/store"
)

// orderRow returns a row of Orders.
func orderRow(source, id string, cents int64) project.Row {
	values := []project.Value{project.TextOf(id), project.TextOf("Ann"), project.SmallDecimalOf(cents, 2), {}}
	return project.Row{Table: sinktest.Orders, Key: values[:1:1], Values: values, Source: source}
}

func openWriter(t testing.TB, s *parquetsink.Sink, partition int, epoch uint64) project.Writer {
	t.Helper()
	w, _, err := s.Open(t.Context(), sinktest.Schema(1), termOf(1, partition, epoch))
	must(t, err)
	return w
}

func writeRows(t testing.TB, w project.Writer, lsn int, rows ...project.Row) {
	t.Helper()
	_, err := w.Write(t.Context(), &project.Batch{After: at(lsn - 1), UpTo: at(lsn), Put: rows})
	must(t, err)
}

func ids(t testing.TB, s *parquetsink.Sink) []string {
	t.Helper()
	var all []string
	for r, err := range s.Rows(t.Context(), sinktest.Schema(1), sinktest.Orders) {
		must(t, err)
		all = append(all, r.Values[0].Text()+"="+r.Values[2].String())
	}
	slices.Sort(all)
	return all
}

// TestRivals_CommitAtTheSameTime has several processes commit all the time to the
// same tables, some of the rows under the same keys.
func TestRivals_CommitAtTheSameTime(t *testing.T) {
	t.Parallel()
	const processes, batches = 4, 40
	storage := newMemory()
	cfg := quick()
	cfg.FileRowsMax = 60
	var wg sync.WaitGroup
	for p := range processes {
		w := openWriter(t, open(t, storage, cfg), p, 1)
		wg.Go(func() {
			for n := 1; n <= batches; n++ {
				own := fmt.Sprintf("customer/[\"c%d\"]/o", p)
				rows := []project.Row{
					orderRow(own+fmt.Sprint(n), fmt.Sprintf("p%d-%d", p, n), int64(n)),
					orderRow(own+"x", fmt.Sprintf("p%d-all", p), int64(n)),
					orderRow(own+"s", fmt.Sprintf("shared-%d", n%5), int64(p)),
				}
				_, err := w.Write(t.Context(), &project.Batch{After: at(n - 1), UpTo: at(n), Put: rows})
				if err == nil && n%3 == 0 {
					_, err = w.Flush(t.Context())
				}
				if err != nil {
					t.Errorf("process %d: %v", p, err)
					return
				}
			}
			flush(t, w)
		})
	}
	wg.Wait()
	got := ids(t, open(t, storage, cfg))
	if want := processes*batches + processes + 5; len(got) != want {
		t.Errorf("%d rows, want %d", len(got), want)
	}
	for p := range processes {
		if want := fmt.Sprintf("p%d-all=0.40", p); !slices.Contains(got, want) {
			t.Errorf("%s is missing: the last update of its row is lost", want)
		}
	}
	if read := deltaIDs(t, storage); !slices.Equal(read, got) {
		t.Errorf("the Delta log has %d rows, the tables %d", len(read), len(got))
	}
	claims := 0
	for r, err := range open(t, storage, cfg).Rejects(t.Context(), sinktest.Schema(1), sinktest.Orders) {
		must(t, err)
		if r.Pending() {
			claims++
		}
	}
	if want := (processes - 1) * 5; claims != want {
		t.Errorf("%d claims wait, want %d", claims, want)
	}
}

// pausing is a store in which something happens before the nth manifest of a
// process.
type pausing struct {
	objects
	mu     sync.Mutex
	nth    int
	before func()
}

func (p *pausing) PutExclusive(ctx context.Context, name string, data []byte) error {
	p.mu.Lock()
	p.nth--
	now := p.nth == 0
	p.mu.Unlock()
	if now {
		p.before()
	}
	return p.objects.PutExclusive(ctx, name, data)
}

// TestRivals_OneThatStoodStill lets a process stand still before it makes a
// manifest, until that number has been used and forgotten: it must not think that
// it has won.
func TestRivals_OneThatStoodStill(t *testing.T) {
	storage := newMemory()
	paused := &pausing{objects: storage}
	late := openWriter(t, open(t, paused, quick()), 0, 1)
	writeRows(t, late, 1, orderRow("customer/[\"a\"]/o", "late", 1))
	flush(t, late) // proves the store
	writeRows(t, late, 2, orderRow("customer/[\"a\"]/o", "late", 2))
	var number string
	paused.nth, paused.before = 1, func() {
		w := openWriter(t, open(t, storage, quick()), 1, 1)
		_, _, n, err := parquetsink.Newest(t.Context(), storage)
		must(t, err)
		number = fmt.Sprintf("_manifest/%020d.json", n)
		for n := 1; n <= 40; n++ {
			writeRows(t, w, n, orderRow("customer/[\"b\"]/o", fmt.Sprint("o", n), 0))
			flush(t, w)
		}
		if slices.Contains(storage.names("_manifest/"), number) {
			t.Fatalf("%s has not been removed", number)
		}
	}
	flush(t, late)
	got := ids(t, open(t, storage, quick()))
	if len(got) != 41 || !slices.Contains(got, "late=0.02") {
		t.Errorf("%d rows %v, want 40 and late=0.02", len(got), got)
	}
}

// TestRivals_OneThatStoodStillBeforeItsLog lets a process stand still between its manifest
// and the commit in the Delta log that shows it, while another goes on.
func TestRivals_OneThatStoodStillBeforeItsLog(t *testing.T) {
	storage := newMemory()
	paused := &pausing{objects: storage}
	late := openWriter(t, open(t, paused, quick()), 0, 1)
	other := openWriter(t, open(t, storage, quick()), 1, 1)
	writeRows(t, late, 1, orderRow("customer/[\"a\"]/o", "late", 1))
	flush(t, late)
	writeRows(t, late, 2, orderRow("customer/[\"a\"]/o", "late", 2))
	var still *memory
	paused.nth, paused.before = 2, func() { // the first is the manifest; this runs in a goroutine of the sink
		write(t, other, &project.Batch{UpTo: at(1), Put: []project.Row{orderRow("customer/[\"b\"]/o", "other", 1)}})
		flush(t, other)
		still = storage.copied()
	}
	flush(t, late)
	if still == nil {
		t.Fatal("the process did not stand still")
	}
	if got, want := deltaIDs(t, still), []string{"late=0.02", "other=0.01"}; !slices.Equal(got, want) {
		t.Errorf("while it stands still: %q, want %q", got, want)
	}
	if got, want := deltaIDs(t, storage), []string{"late=0.02", "other=0.01"}; !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
	if shows := replay(t, storage, "orders", -1).shows; !slices.IsSorted(shows) {
		t.Errorf("the commits show the manifests %v", shows)
	}
}

// TestRivals_OneKey lets a process stand still before it makes a manifest, until
// another has put a row under the same key, and changed one that it changes too.
func TestRivals_OneKey(t *testing.T) {
	storage := newMemory()
	paused := &pausing{objects: storage}
	late := openWriter(t, open(t, paused, quick()), 0, 1)
	other := openWriter(t, open(t, storage, quick()), 1, 1)
	writeRows(t, late, 1, orderRow("customer/[\"a\"]/o", "mine", 1))
	flush(t, late)
	writeRows(t, other, 1, orderRow("customer/[\"b\"]/o", "theirs", 1))
	flush(t, other)
	writeRows(t, late, 2, orderRow("customer/[\"a\"]/o", "mine", 2), orderRow("customer/[\"a\"]/p", "new", 3))
	paused.nth, paused.before = 1, func() {
		writeRows(t, other, 2, orderRow("customer/[\"b\"]/o", "theirs", 4), orderRow("customer/[\"b\"]/p", "new", 5))
		flush(t, other)
	}
	flush(t, late)
	s := open(t, storage, quick())
	if got, want := ids(t, s), []string{"mine=0.02", "new=0.05", "theirs=0.04"}; !slices.Equal(got, want) {
		t.Errorf("rows %v, want %v", got, want)
	}
	for r, err := range s.Rejects(t.Context(), sinktest.Schema(1), sinktest.Orders) {
		must(t, err)
		if r.Source != "customer/[\"a\"]/p" || r.Reason != project.HeldBy("customer/[\"b\"]/p") {
			t.Errorf("reject %+v", r)
		}
		return
	}
	t.Error("no claim waits")
}

// TestRivals_StagedFilesAreCollected lets a process stand still before it makes a
// manifest, until another has removed its files as garbage: it must write them
// again.
func TestRivals_StagedFilesAreCollected(t *testing.T) {
	storage := newMemory()
	cfg := quick()
	cfg.Grace = time.Nanosecond
	paused := &pausing{objects: storage}
	late := openWriter(t, open(t, paused, quick()), 0, 1)
	writeRows(t, late, 1, orderRow("customer/[\"a\"]/o", "late", 1))
	flush(t, late)
	writeRows(t, late, 2, orderRow("customer/[\"a\"]/p", "more", 2))
	paused.nth, paused.before = 1, func() {
		before := len(storage.names("orders/"))
		openWriter(t, open(t, storage, cfg), 1, 1)
		if after := len(storage.names("orders/")); after >= before {
			t.Fatalf("%d files of orders, were %d: nothing was collected", after, before)
		}
	}
	flush(t, late)
	if got := ids(t, open(t, storage, quick())); !slices.Equal(got, []string{"late=0.01", "more=0.02"}) {
		t.Errorf("rows %v", got)
	}
}

// careless makes objects that are there.
type careless struct{ objects }

func (c careless) PutExclusive(ctx context.Context, name string, data []byte) error {
	return c.Put(ctx, name, data)
}

func TestStore_ThatDoesNotRefuseIsRefused(t *testing.T) {
	_, _, err := open(t, careless{newMemory()}, quick()).Open(t.Context(), sinktest.Schema(1), termOf(1, 0, 1))
	if err == nil || !strings.Contains(err.Error(), "If-None-Match") || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("open: %v, want it to be refused", err)
	}
}

// failing fails as long as it is told to.
type failing struct {
	objects
	mu  sync.Mutex
	bad error
}

func (f *failing) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bad = err
}

func (f *failing) Put(ctx context.Context, name string, data []byte) error {
	f.mu.Lock()
	bad := f.bad
	f.mu.Unlock()
	if bad != nil {
		return bad
	}
	return f.objects.Put(ctx, name, data)
}

func TestStore_AwayForAWhile(t *testing.T) {
	storage := &failing{objects: newMemory()}
	cfg := quick()
	cfg.BufferRowsMax = 10
	s := open(t, storage, cfg)
	w := openWriter(t, s, 0, 1)
	storage.fail(errors.New("connection refused"))
	// What is taken is bounded, also while nothing can be committed.
	taken := 0
	var err error
	for n := 1; n <= 1000 && err == nil; n++ {
		_, err = w.Write(t.Context(), &project.Batch{After: at(n - 1), UpTo: at(n), Put: []project.Row{orderRow("customer/[\"a\"]/o", fmt.Sprint("o", n), 1)}})
		if err == nil {
			taken = n
		}
	}
	if taken < 20 || taken > 25 {
		t.Errorf("%d rows were taken, want about 20", taken)
	}
	if f := processors.FailureOf(t.Context(), err); f != processors.Unavailable {
		t.Errorf("write: %v is a failure of kind %d, want one that is tried without end", err, f)
	}
	if _, err := w.Flush(t.Context()); processors.FailureOf(t.Context(), err) != processors.Unavailable {
		t.Errorf("flush: %v, want an error that is tried without end", err)
	}
	storage.fail(nil)
	position, err := w.Flush(t.Context())
	if err != nil || position != at(taken) {
		t.Errorf("flush: %s, %v; want %s", position, err, at(taken))
	}
	if got := ids(t, s); len(got) != taken {
		t.Errorf("%d rows, want %d", len(got), taken)
	}
}

func TestWriter_RefusesWhatCannotBe(t *testing.T) {
	w := openWriter(t, open(t, newMemory(), quick()), 0, 1)
	good := orderRow("customer/[\"a\"]/o", "a", 1)
	for name, spoil := range map[string]func(r *project.Row){
		"another type":      func(r *project.Row) { r.Values[1] = project.IntOf(1) },
		"a key of null":     func(r *project.Row) { r.Values[0] = project.Value{} },
		"another scale":     func(r *project.Row) { r.Values[2] = project.SmallDecimalOf(1, 3) },
		"too few columns":   func(r *project.Row) { r.Values = r.Values[:2] },
		"no table":          func(r *project.Row) { r.Table = 7 },
		"a table below all": func(r *project.Row) { r.Table = -1 },
	} {
		bad := good
		bad.Values = slices.Clone(good.Values)
		spoil(&bad)
		_, err := w.Write(t.Context(), &project.Batch{UpTo: at(1), Put: []project.Row{good, bad}})
		if processors.FailureOf(t.Context(), err) != processors.Permanent {
			t.Errorf("%s: %v, want it to be rejected", name, err)
		}
	}
	if position, err := w.Flush(t.Context()); err != nil || position != (feed.Position{}) {
		t.Errorf("flush: %s, %v: something was taken", position, err)
	}
}
