package project_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/sinktest"
	"github.com/millrace/millrace/store"
)

// pages is a Memory that shows the pages of a backfill.
type pages struct {
	*sinktest.Memory
	rows  []int                      // of each page that was written
	write func(*project.Batch) error // before that; its error is that of Write; may be nil
	made  func()                     // after a page was made durable; may be nil
}

func (s *pages) Open(ctx context.Context, schema *project.Schema, t project.Term) (project.Writer, feed.Position, error) {
	w, at, err := s.Memory.Open(ctx, schema, t)
	if _, _, part := t.Producer.Parent(); part && err == nil {
		w = &pageWriter{w, s}
	}
	return w, at, err
}

type pageWriter struct {
	project.Writer
	pages *pages
}

func (w *pageWriter) Write(ctx context.Context, b *project.Batch) (project.Written, error) {
	if w.pages.write != nil {
		if err := w.pages.write(b); err != nil {
			return project.Written{}, err
		}
	}
	w.pages.rows = append(w.pages.rows, len(b.Put))
	return w.Writer.Write(ctx, b)
}

func (w *pageWriter) Flush(ctx context.Context) (feed.Position, error) {
	at, err := w.Writer.Flush(ctx)
	if err == nil && w.pages.made != nil {
		w.pages.made()
	}
	return at, err
}

func sum(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// backfilledBefore puts customers with first names into a source, and lets the projection
// make the rows of them before it gains columns. It returns the lease.
func (s *stage) backfilledBefore(p *project.Projection, source *store.Container, customers int, first func(i int) string) *lease {
	s.t.Helper()
	var ops []store.Operation
	for i := range customers {
		id := fmt.Sprintf("c%04d", i)
		body := fmt.Sprintf(`{"id":%q,"customerId":"c1","type":"customer","firstName":%q,"lastName":"Lee","addresses":[{"city":"Rome"}]}`, id, first(i))
		s.items[id] = body
		ops = append(ops, store.Operation{Kind: store.OpUpsert, Body: []byte(body)})
	}
	for some := range slices.Chunk(ops, min(store.BatchOpsMax, 1+1<<20/len(ops[0].Body))) {
		if r, err := source.Batch(s.t.Context(), key(s.t, "c1"), some, ""); err != nil || r.Failed {
			s.t.Fatal(r, err)
		}
	}
	s.applied(source)
	l := newLease()
	stop := s.run(l, p)
	s.done(l)
	if err := stop(); err != nil {
		s.t.Fatal(err)
	}
	return l
}

// applied notes where the log of the source ends.
func (s *stage) applied(source *store.Container) {
	s.t.Helper()
	status, err := source.Status(s.t.Context(), s.partition)
	if err != nil {
		s.t.Fatal(err)
	}
	s.last = status.Applied
}

// TestI5_ABackfillThatIsKilledGoesOn kills the process that backfills added columns when a page
// is in the sink and not in the checkpoint. The next one writes that page again, those
// behind it, and none before it.
func TestI5_ABackfillThatIsKilledGoesOn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	source := s.container(t, "customer", 1, "/customerId")
	s.partition = source.Partitions()[0]
	cfg := analytics(t)
	disk := sinktest.NewDisk()
	all := cfg.Tables[0].Columns
	all[1].Expr = "CONCAT(firstName, firstName, firstName)" // a page of items is one of rows
	cfg.Source, cfg.Sink, cfg.Tables[0].Columns = source, sinktest.NewMemory(disk, true), slices.Clone(all[:len(all)-1])

	const customers = 20 // three pages of bytes
	long := strings.Repeat("x", 500_000)
	l := s.backfilledBefore(compile(t, cfg), source, customers, func(int) string { return long })

	reached, killed := make(chan struct{}), make(chan struct{})
	first := &pages{Memory: sinktest.NewMemory(disk, true)}
	first.made = func() {
		if len(first.rows) == 2 {
			close(reached)
			<-killed
		}
	}
	cfg.Tables[0].Columns, cfg.Backfill.Number, cfg.Sink = all, 1, first
	stop := s.run(l, compile(t, cfg))
	<-reached
	cp := l.wait(t, func(cp *processors.Checkpoint) bool { return cp.Backfill != nil && cp.Backfill.Scanned > 0 })
	if cp.Backfill.Number != 1 || cp.Backfill.Done || cp.Backfill.Total != customers || len(cp.Jobs) != 1 || cp.Open() != 1 {
		t.Errorf("in the middle the checkpoint is %+v", cp)
	}
	crashed := l.Checkpoint()
	close(killed)
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	second := &pages{Memory: sinktest.NewMemory(disk, true)}
	cfg.Sink, l.checkpoint = second, crashed
	p := compile(t, cfg)
	s.run(l, p)
	cp = l.wait(t, func(cp *processors.Checkpoint) bool { return cp.Backfill != nil && cp.Backfill.Done })
	if cp.Backfill.Scanned != customers || len(cp.Jobs) != 0 {
		t.Errorf("when it is done the checkpoint is %+v", cp)
	}
	if first.rows[0]+sum(second.rows) != customers || len(second.rows) < 2 {
		t.Errorf("the first process wrote pages of %v rows, the second of %v; %d items", first.rows, second.rows, customers)
	}
	s.equal(p)
}

// behind passes requests on when wait returns.
type behind struct {
	client *store.Client
	wait   func(*store.Request)
}

func (b behind) Handle(ctx context.Context, r *store.Request) *store.Response {
	b.wait(r)
	resp, err := b.client.Do(ctx, r)
	if err != nil {
		return &store.Response{Err: store.Refuse(store.StatusUnavailable, "%v", err)}
	}
	return resp
}

// TestI5_ALatePageOfABackfillIsRefused lets a process hang between the reading and the
// writing of a page. Meanwhile an item of the page goes, and another process, which has
// not come to backfill anything yet, takes its row away: the late page does not bring it back.
func TestI5_ALatePageOfABackfillIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	source := s.container(t, "customer", 1, "/customerId")
	s.partition = source.Partitions()[0]
	cfg := analytics(t)
	disk := sinktest.NewDisk()
	all := cfg.Tables[0].Columns
	cfg.Source, cfg.Sink, cfg.Tables[0].Columns = source, sinktest.NewMemory(disk, false), slices.Clone(all[:len(all)-1])
	l := s.backfilledBefore(compile(t, cfg), source, 5, strconv.Itoa)
	second := newLease()
	second.epoch, second.checkpoint = l.epoch+1, l.Checkpoint()

	read, late := make(chan struct{}), make(chan struct{})
	slow := &pages{Memory: sinktest.NewMemory(disk, false), write: func(*project.Batch) error {
		close(read)
		<-late
		return nil
	}}
	cfg.Tables[0].Columns, cfg.Backfill.Number, cfg.Sink = all, 1, slow
	ended := make(chan error, 1)
	go func(p *project.Projection) { ended <- s.ends(l, p) }(compile(t, cfg))
	<-read
	if err := source.Delete(t.Context(), key(t, "c1"), "c0003"); err != nil {
		t.Fatal(err)
	}
	delete(s.items, "c0003")
	s.applied(source)

	gone := make(chan struct{})
	local := &store.Local{}
	local.Add(s.partition, behind{s.Client, func(r *store.Request) {
		if r.Count != nil { // with which a backfill begins
			<-gone
		}
	}})
	var err error
	if cfg.Source, err = store.NewClient(nil, s.Client.Catalog(), store.ClientConfig{Local: local}).Open(source.Info()); err != nil {
		t.Fatal(err)
	}
	cfg.Sink = sinktest.NewMemory(disk, false)
	p := compile(t, cfg)
	s.run(second, p)
	s.done(second)
	close(late)
	if err := <-ended; !errors.Is(err, processors.ErrFenced) {
		t.Errorf("the term with the late page ended with %v, want ErrFenced", err)
	}
	close(gone)
	second.wait(t, func(cp *processors.Checkpoint) bool { return cp.Backfill != nil && cp.Backfill.Done })
	s.equal(p)
}

// unanswering is a Memory to which the first page of a backfill is on its way for long: whoever
// wrote it has given up waiting.
type unanswering struct {
	*sinktest.Memory
	lost chan struct{} // closed when the page is on its way
	late func(ctx context.Context) error
}

func (s *unanswering) Open(ctx context.Context, schema *project.Schema, t project.Term) (project.Writer, feed.Position, error) {
	w, at, err := s.Memory.Open(ctx, schema, t)
	if _, _, part := t.Producer.Parent(); part && err == nil {
		w = &unansweringWriter{w, s}
	}
	return w, at, err
}

type unansweringWriter struct {
	project.Writer
	sink *unanswering
}

func (w *unansweringWriter) Write(ctx context.Context, b *project.Batch) (project.Written, error) {
	if w.sink.late != nil {
		return w.Writer.Write(ctx, b)
	}
	w.sink.late = func(ctx context.Context) error {
		_, err := w.Writer.Write(ctx, b)
		return err
	}
	close(w.sink.lost)
	// The page is not tried again before the test ends.
	return project.Written{}, &store.Error{Status: store.StatusUnavailable, Message: "no answer", RetryAfter: time.Hour}
}

// TestI6_AnUnansweredPageComesLate: an item of a page that was not answered goes, and the feed
// takes its row away before the page comes.
func TestI6_AnUnansweredPageComesLate(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	source := s.container(t, "customer", 1, "/customerId")
	s.partition = source.Partitions()[0]
	cfg := analytics(t)
	disk := sinktest.NewDisk()
	all := cfg.Tables[0].Columns
	cfg.Source, cfg.Sink, cfg.Tables[0].Columns = source, sinktest.NewMemory(disk, false), slices.Clone(all[:len(all)-1])
	l := s.backfilledBefore(compile(t, cfg), source, 5, strconv.Itoa)
	sink := &unanswering{Memory: sinktest.NewMemory(disk, false), lost: make(chan struct{})}
	cfg.Tables[0].Columns, cfg.Backfill.Number, cfg.Sink = all, 1, sink
	p := compile(t, cfg)
	s.run(l, p)
	<-sink.lost
	if err := source.Delete(t.Context(), key(t, "c1"), "c0003"); err != nil {
		t.Fatal(err)
	}
	delete(s.items, "c0003")
	s.applied(source)
	s.done(l)
	if err := sink.late(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.equal(p)
}

// TestABackfillOfManyPages backfills more items than a page holds. Of the last page the sink does
// not take one row: the others are backfilled, it stays as it was and has a dead letter,
// with which it is written when the sink takes it. A row that an added column refuses goes,
// and is told of as a reject.
func TestABackfillOfManyPages(t *testing.T) {
	t.Parallel()
	const customers, page = 5_400, 5_000
	s := newStage(t)
	source := s.container(t, "customer", 1, "/customerId")
	s.partition = source.Partitions()[0]
	cfg := analytics(t)
	disk := sinktest.NewDisk()
	number, err := project.ParseType("int64")
	if err != nil {
		t.Fatal(err)
	}
	less := cfg.Tables[0].Columns
	more := append(slices.Clone(less), project.Column{Name: "number", Expr: `StringToNumber(firstName)`, Type: number})
	cfg.Source, cfg.Sink = source, sinktest.NewMemory(disk, true)
	l := s.backfilledBefore(compile(t, cfg), source, customers, func(i int) string {
		if i == 5_300 {
			return "0.5"
		}
		return strconv.Itoa(i)
	})

	const refused = "c5000"
	var takes atomic.Bool
	sink := &pages{Memory: sinktest.NewMemory(disk, true)}
	sink.write = func(b *project.Batch) error {
		for i := range b.Put {
			if strings.HasSuffix(b.Put[i].Source, refused) && !takes.Load() {
				return processors.Reject(errors.New("no room for it"))
			}
		}
		return nil
	}
	cfg.Tables[0].Columns, cfg.Backfill.Number, cfg.Sink = more, 1, sink
	p := compile(t, cfg)
	s.run(l, p)
	cp := l.wait(t, func(cp *processors.Checkpoint) bool { return cp.Backfill != nil && cp.Backfill.Done })
	if f := cp.Backfill; f.Scanned != customers || f.Total != customers || f.Changed != customers || len(cp.Jobs) != 0 {
		t.Errorf("when it is done the checkpoint is %+v", cp)
	}
	if sink.rows[0] != page || sum(sink.rows) != customers-2 || len(sink.rows) < 3 {
		t.Errorf("pages of %v rows, want %d, and others without one row", sink.rows, page)
	}
	of := func(id string) string { return project.SourceOf(source.Info().Name, key(t, "c1"), id) }
	want := []string{"customers " + of("c5300") + " column number: is 0.5, and the column takes integers"}
	if diff := cmp.Diff(want, cp.Rejected); diff != "" || cp.Counts.Rejects != 1 || cp.Counts.Rows != 2*customers-1 || cp.Counts.DeadLetters != 1 {
		t.Errorf("counts %+v, rejects that are told (-want +got):\n%s", cp.Counts, diff)
	}
	stale := sinktest.Differences(t.Context(), p, s.held())
	if len(stale) != 1 || !strings.Contains(stale[0], of(refused)) || !strings.Contains(stale[0], "want") {
		t.Errorf("these rows differ: %v", stale)
	}

	deadLetters, err := s.letters.List(t.Context(), "analytics", 10)
	if err != nil || len(deadLetters) != 1 {
		t.Fatalf("dead letters %+v, %v", deadLetters, err)
	}
	if deadLetter := deadLetters[0]; deadLetter.Item != `["c1"]/`+refused || deadLetter.Position.IsZero() || deadLetter.Target != "row ["+refused+"] of customers" ||
		!strings.Contains(deadLetter.Reason, "no room for it") {
		t.Errorf("dead letter %+v", deadLetter)
	}
	takes.Store(true)
	if err := s.letters.Retry(t.Context(), "analytics", deadLetters[0].ID); err != nil {
		t.Fatal(err)
	}
	rows := cp.Counts.Rows
	l.wait(t, func(cp *processors.Checkpoint) bool { return cp.Counts.Rows > rows })
	s.equal(p)
}
