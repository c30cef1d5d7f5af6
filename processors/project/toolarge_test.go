package project_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/sinktest"
	"github.com/millrace/millrace/store"
)

// manyLines is an item of 70 lines, which with a note of a MiB in each are above ItemRowsBytesMax.
func manyLines(id, note string) string {
	return `{"id":"` + id + `","customerId":"c1","more":"` + note + `","note":"` + strings.Repeat("n", 1<<20) + `","lines":[0` + strings.Repeat(",0", 69) + `]}`
}

// lines is a projection of such items: of their lines alone, or with what makes them too large.
func lines(t testing.TB, disk *sinktest.Disk, noted bool) project.Config {
	t.Helper()
	cfg := analytics(t)
	cfg.Sink = sinktest.NewMemory(disk, false)
	cfg.Tables = []project.Table{{
		Name: "lines", Each: "lines", Key: []string{"id", "line"},
		Columns: []project.Column{{Name: "id", Expr: "item.id"}, {Name: "line", Expr: "index"}, {Name: "more", Expr: "item.more"}},
	}}
	if noted {
		cfg.Tables[0].Columns = append(cfg.Tables[0].Columns, project.Column{Name: "note", Expr: "item.note"})
	}
	return cfg
}

// TestAnItemThatIsTooLargeSinceAColumnWasAdded has one reject in the place of the rows that it had: where it is looked at
// by the backfill, and where it changes.
func TestAnItemThatIsTooLargeSinceAColumnWasAdded(t *testing.T) {
	t.Parallel()
	t.Run("backfilled", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		source := s.container(t, "customer", 1, "/customerId")
		s.partition = source.Partitions()[0]
		disk := sinktest.NewDisk()
		before, after := lines(t, disk, false), lines(t, disk, true)
		before.Source, after.Source = source, source
		s.items["i"] = manyLines("i", "")
		if r, err := source.Batch(t.Context(), key(t, "c1"), []store.Operation{{Kind: store.OpUpsert, Body: []byte(s.items["i"])}}, ""); err != nil || r.Failed {
			t.Fatal(r, err)
		}
		s.applied(source)
		l, p := newLease(), compile(t, before)
		stop := s.run(l, p)
		s.done(l)
		s.equal(p)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		after.Backfill.Number = 1
		p = compile(t, after)
		s.run(l, p)
		l.wait(t, func(cp *processors.Checkpoint) bool { return cp.Backfill != nil && cp.Backfill.Done })
		s.equal(p)
		s.noDeadLetters()
	})
	t.Run("changed", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		disk := sinktest.NewDisk()
		l, p := newLease(), compile(t, lines(t, disk, false))
		stop := s.run(l, p)
		s.append(set{id: "i", body: manyLines("i", "")})
		s.done(l)
		s.equal(p)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		p = compile(t, lines(t, disk, true))
		s.run(l, p)
		s.append(set{id: "i", body: manyLines("i", "changed")})
		s.done(l)
		for r, err := range sinktest.NewMemory(disk, false).Rows(t.Context(), p.Schema(), 0) { // the reject is the backfill's to write
			t.Errorf("row %v, %v", r.Key, err)
		}
		s.append(set{id: "i", body: `{"id":"i","customerId":"c1","note":"","lines":[0,0]}`}) // it fits again
		s.done(l)
		s.equal(p)
		s.noDeadLetters()
	})
}
