package project_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/sinktest"
)

// pages is a Memory that shows the pages of columns that are filled.
type pages struct {
	*sinktest.Memory
	rows []int  // of each page that was written
	made func() // after a page was made durable; may be nil
}

func (s *pages) Open(ctx context.Context, schema *project.Schema, t project.Tenure) (project.Writer, feed.Position, error) {
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

// TestI5_AFillThatIsKilledGoesOn kills the process that fills added columns when a page
// is in the sink and not in the checkpoint. The next one writes that page again, those
// behind it, and none before it.
func TestI5_AFillThatIsKilledGoesOn(t *testing.T) {
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
	for i := range customers {
		id := fmt.Sprintf("c%02d", i)
		s.items[id] = fmt.Sprintf(`{"id":%q,"customerId":"c1","type":"customer","firstName":%q,"lastName":"Lee","addresses":[{"city":"Rome"}]}`, id, long)
		if _, err := source.Upsert(t.Context(), []byte(s.items[id])); err != nil {
			t.Fatal(err)
		}
	}
	status, err := source.Status(t.Context(), s.partition)
	if err != nil {
		t.Fatal(err)
	}
	s.last = status.Applied
	l := newLease()
	stop := s.run(l, compile(t, cfg))
	s.done(l)
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	reached, killed := make(chan struct{}), make(chan struct{})
	first := &pages{Memory: sinktest.NewMemory(disk, true)}
	first.made = func() {
		if len(first.rows) == 2 {
			close(reached)
			<-killed
		}
	}
	cfg.Tables[0].Columns, cfg.Fill.Number, cfg.Sink = all, 1, first
	stop = s.run(l, compile(t, cfg))
	<-reached
	cp := l.wait(t, func(cp *processors.Checkpoint) bool { return cp.Fill != nil && cp.Fill.Scanned > 0 })
	if cp.Fill.Number != 1 || cp.Fill.Done || cp.Fill.Total != customers || len(cp.Jobs) != 1 || cp.Open() != 1 {
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
	cp = l.wait(t, func(cp *processors.Checkpoint) bool { return cp.Fill != nil && cp.Fill.Done })
	if cp.Fill.Scanned != customers || len(cp.Jobs) != 0 {
		t.Errorf("when it is done the checkpoint is %+v", cp)
	}
	if first.rows[0]+sum(second.rows) != customers || len(second.rows) < 2 {
		t.Errorf("the first process wrote pages of %v rows, the second of %v; %d items", first.rows, second.rows, customers)
	}
	s.equal(p)
}
