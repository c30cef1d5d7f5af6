package project_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/sinktest"
)

// TestI6_RowsOfAStoppedBackfillGo stops the backfill of an added column before it comes to two items of
// which the column makes rejects. Their rows from before are there for good then, unless the feed
// takes them away: the one of an item that goes, and the one of an item that changes and is still a reject.
func TestI6_RowsOfAStoppedBackfillGo(t *testing.T) {
	t.Parallel()
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
	cfg.Source, cfg.Sink = source, sinktest.NewMemory(disk, false)
	l := s.backfilledBefore(compile(t, cfg), source, 2, func(int) string { return "0.5" })

	cfg.Tables[0].Columns = append(slices.Clone(less), project.Column{Name: "number", Expr: `StringToNumber(firstName)`, Type: number})
	cfg.Backfill, cfg.Sink = processors.BackfillRequest{Number: 2, None: true}, sinktest.NewMemory(disk, false)
	p := compile(t, cfg)
	s.run(l, p)
	l.wait(t, func(cp *processors.Checkpoint) bool { return cp.Backfill != nil && cp.Backfill.Done })

	if err := source.Delete(t.Context(), key(t, "c1"), "c0000"); err != nil {
		t.Fatal(err)
	}
	delete(s.items, "c0000")
	s.items["c0001"] = strings.Replace(s.items["c0001"], "Lee", "Low", 1)
	if _, err := source.Upsert(t.Context(), []byte(s.items["c0001"])); err != nil {
		t.Fatal(err)
	}
	s.applied(source)
	s.done(l)
	s.equal(p)
	s.noDeadLetters()
}

// particular is a Memory that holds no row with one key, and fails when it is to drop one.
type particular struct {
	*tap
	key project.Value
}

func (s particular) CannotHold(_ *project.Schema, r *project.Row) (column, reason string) {
	if r.Key[0] == s.key {
		return "id", "is none that the sink has words for"
	}
	return "", ""
}

// A row whose key the sink cannot hold has never been there: it is not dropped, since the sink
// might not even take the key of it.
func TestARowThatNeverWasIsNotDropped(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := analytics(t)
	var dropped []project.Row
	cfg.Sink = particular{&tap{Memory: sinktest.NewMemory(sinktest.NewDisk(), false), write: func(b *project.Batch) error {
		dropped = append(dropped, b.Drop...)
		return nil
	}}, project.TextOf("o1")}
	p := compile(t, cfg)
	l := newLease()
	s.run(l, p)
	for i := range 3 {
		s.append(set{id: "o1", body: orderItem("o1", day, strconv.Itoa(i))})
		s.done(l)
	}
	s.append(set{id: "o1", op: feed.OpDelete})
	s.done(l)
	s.equal(p)
	if len(dropped) > 0 {
		t.Errorf("dropped %+v", dropped)
	}
}

// TestI5_ALatePageOfAStoppedBackfillIsRefused lets a process hang between the reading and the writing of a
// page. Meanwhile the backfill is stopped. Another process notes that, though the sink is away at
// first; then an item of the page goes, and with it its row: the late page does not bring it back.
func TestI5_ALatePageOfAStoppedBackfillIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	source := s.container(t, "customer", 2, "/customerId")
	s.partition = source.PartitionFor(key(t, "c1"))
	elsewhere := "c2"
	for i := 3; source.PartitionFor(key(t, elsewhere)) == s.partition; i++ {
		elsewhere = "c" + strconv.Itoa(i)
	}
	cfg := analytics(t)
	all := cfg.Tables[0].Columns
	for name, stop := range map[string]processors.BackfillRequest{
		"nothing":              {Number: 2, None: true},
		"of another partition": {Number: 2, Key: key(t, elsewhere)},
	} {
		t.Run(name, func(t *testing.T) {
			s, cfg, disk := *s, cfg, sinktest.NewDisk()
			s.t, s.items = t, map[string]string{}
			cfg.Source, cfg.Sink, cfg.Tables = source, sinktest.NewMemory(disk, false), slices.Clone(cfg.Tables)
			cfg.Tables[0].Columns = slices.Clone(all[:len(all)-1])
			l := s.backfilledBefore(compile(t, cfg), source, 5, strconv.Itoa)
			second := newLease()
			second.epoch, second.checkpoint = l.epoch+1, l.Checkpoint()

			read, late := make(chan struct{}), make(chan struct{})
			wake := sync.OnceFunc(func() { close(late) })
			defer wake()
			slow := &pages{Memory: sinktest.NewMemory(disk, false), write: func(*project.Batch) error {
				close(read)
				<-late
				return nil
			}}
			cfg.Tables[0].Columns, cfg.Backfill.Number, cfg.Sink = all, 1, slow
			ended := make(chan error, 1)
			go func(p *project.Projection) { ended <- s.ends(l, p) }(compile(t, cfg))
			<-read

			var told atomic.Bool // a checkpoint has said that the sink is away
			sink := sinktest.NewMemory(disk, false)
			sink.Fail = func(string) error {
				if told.Load() {
					return nil
				}
				return errAway
			}
			cfg.Backfill, cfg.Sink = stop, sink
			p := compile(t, cfg)
			s.run(second, p)
			second.wait(t, func(cp *processors.Checkpoint) bool {
				if strings.Contains(cp.LastError, errAway.Error()) {
					told.Store(true)
				}
				return cp.Backfill != nil && cp.Backfill.Number == 2 && cp.Backfill.Done && cp.LastError == ""
			})
			if !told.Swap(true) {
				t.Error("no checkpoint tells that the sink is away")
			}
			if err := source.Delete(t.Context(), key(t, "c1"), "c0003"); err != nil {
				t.Fatal(err)
			}
			delete(s.items, "c0003")
			s.applied(source)
			s.done(second)
			wake()
			if err := <-ended; !errors.Is(err, processors.ErrFenced) {
				t.Errorf("the term with the late page ended with %v, want ErrFenced", err)
			}
			if gone := sinktest.Differences(t.Context(), p, s.held()); slices.ContainsFunc(gone, func(d string) bool { return strings.Contains(d, "c0003") }) {
				t.Errorf("the row of the item that has gone is back: %v", gone)
			}
		})
	}
}
