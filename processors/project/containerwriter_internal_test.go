package project

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// slowOwner decides about rows as an owner does, takes few at a time, and loses answers. What
// it has not answered may be on its way still, and arrive whenever it likes.
type slowOwner struct {
	t         *testing.T
	rand      *rand.Rand
	rows      map[string]int // the change as of which a row is
	positions map[feed.Producer]feed.Position
	epochs    map[feed.Producer]uint64
	onWay     []*store.PutRows
	arrived   func()
}

func (o *slowOwner) PutRows(_ context.Context, _ feed.Partition, r *store.PutRows) (*store.PutRowsResult, error) {
	for len(o.onWay) > 0 && o.rand.IntN(3) == 0 {
		i := o.rand.IntN(len(o.onWay))
		late := o.onWay[i]
		o.onWay = append(o.onWay[:i], o.onWay[i+1:]...)
		_, _ = o.decide(late)
	}
	switch fate := o.rand.IntN(8); {
	case r.Ask || fate > 2:
		return o.decide(r)
	case fate == 0:
		_, _ = o.decide(r)
	default:
		o.onWay = append(o.onWay, r)
	}
	return nil, fmt.Errorf("%w: no answer", store.ErrUnknown)
}

func (o *slowOwner) decide(r *store.PutRows) (*store.PutRowsResult, error) {
	if len(r.Rows) > 3 {
		return nil, store.Refuse(store.StatusTooLarge, "%d rows", len(r.Rows))
	}
	parent, _, _ := r.Producer.Parent()
	if o.epochs[parent] > r.Epoch || o.epochs[r.Producer] > r.Epoch {
		return nil, store.Refuse(store.StatusFenced, "the lease has passed on")
	}
	o.epochs[r.Producer] = r.Epoch
	result := &store.PutRowsResult{Position: o.positions[r.Producer]}
	if r.Ask || r.After != result.Position {
		return result, nil
	}
	if !r.After.Before(r.UpTo) {
		return nil, store.Refuse(store.StatusBadRequest, "empty")
	}
	for i := range r.Rows {
		version, err := strconv.Atoi(string(r.Rows[i].Body))
		if err != nil {
			o.t.Fatal(err)
		}
		o.rows[r.Rows[i].Ref.ID] = version
	}
	o.positions[r.Producer], result.Position, result.Applied = r.UpTo, r.UpTo, true
	o.arrived()
	return result, nil
}

// Whatever becomes of requests and answers, wherever the batches that follow a failure end,
// and whatever is given up: a recorded position says that all rows up to it are there.
func TestI6_PiecesOfABatchAreNotRecorded(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		writePieces(t, seed)
		if t.Failed() {
			return
		}
	}
}

func writePieces(t *testing.T, seed uint64) {
	t.Helper()
	const changes, keys = 12, 9
	random := rand.New(rand.NewPCG(seed, 1))
	touched := make([][]int, changes) // the rows of each change, at most one request or several
	for i := range touched {
		touched[i] = random.Perm(keys)[:1+random.IntN(keys)]
	}
	at := func(change int) feed.Position { return feed.WalkPosition(7, uint64(change)) }
	producer := feed.Producer{Pipeline: "p", Generation: 1, Source: "source:c/0"}
	o := &slowOwner{
		t: t, rand: random, rows: map[string]int{},
		positions: map[feed.Producer]feed.Position{producer: at(0)}, epochs: map[feed.Producer]uint64{},
	}
	// batch is the newest state, as of change upTo, of the rows that those behind after touch.
	batch := func(after, upTo int) (rows []outgoingRow) {
		newest := map[int]int{}
		for change := after + 1; change <= upTo; change++ {
			for _, k := range touched[change-1] {
				newest[k] = change
			}
		}
		for k := range keys {
			if change, ok := newest[k]; ok {
				row := store.Row{Ref: store.ItemRef{ID: strconv.Itoa(k)}, Source: "s", Body: strconv.AppendInt(nil, int64(change), 10)}
				rows = append(rows, outgoingRow{Row: row})
			}
		}
		return rows
	}
	o.arrived = func() {
		for change := 1; change <= changes && !o.positions[producer].Before(at(change)); change++ {
			for _, k := range touched[change-1] {
				if is := o.rows[strconv.Itoa(k)]; is < change {
					t.Errorf("seed %d: %s is recorded, and row %d is as of change %d, not %d", seed, o.positions[producer], k, is, change)
				}
			}
		}
	}
	term := &Term{Producer: producer, Epoch: 1}
	var part *containerPart
	begin := func() {
		part = &containerPart{container: o}
		if err := part.begin(t.Context(), term); err != nil {
			t.Fatal(err)
		}
	}
	begin()
	for done := 0; done < changes && !t.Failed(); {
		upTo := done + 1 + random.IntN(changes-done)
		part.rows = batch(done, upTo)
		_, err := part.sendRows(t.Context(), term, at(upTo))
		switch fate := random.IntN(4); {
		case err == nil:
			done = upTo
		case fate == 0:
			term.Epoch++
			begin()
		case fate == 1 && upTo < changes: // the change behind done is given up
			touched[done] = nil
			done++
		}
	}
	for _, late := range o.onWay {
		_, _ = o.decide(late)
	}
	if o.positions[producer] != at(changes) {
		t.Errorf("seed %d: %s is recorded, want %s", seed, o.positions[producer], at(changes))
	}
}

// heapOwner takes all rows, and measures what is held while it does.
type heapOwner struct {
	bytes    uint64 // the most that was held
	requests int
}

func (o *heapOwner) PutRows(_ context.Context, _ feed.Partition, r *store.PutRows) (*store.PutRowsResult, error) {
	o.bytes = max(o.bytes, heapBytes())
	o.requests++
	return &store.PutRowsResult{Applied: true, Position: r.UpTo}, nil
}

func heapBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The items of a batch are made request by request: 600 rows that have a text of 100 KB in common are
// 60 MB of items. It runs alone, as all tests that are not parallel do, since it measures the heap.
func TestItemsOfABatchAreNotHeldAtOnce(t *testing.T) {
	table := TableSchema{Name: "lines", Columns: []ColumnSchema{{Name: "id"}, {Name: "note"}}, Key: []int{0}}
	sh := &shape{table: &table, id: []int{0}, column: true}
	note := TextOf(strings.Repeat("n", 100_000))
	rows := make([]Row, 600)
	o := &heapOwner{}
	part := &containerPart{container: o}
	for i := range rows {
		values := []Value{TextOf(strconv.Itoa(i)), note}
		rows[i] = Row{Key: values[:1], Values: values, Source: "s"}
		part.rows = append(part.rows, outgoingRow{Row: store.Row{Ref: store.ItemRef{ID: strconv.Itoa(i)}, Source: "s"}, of: &rows[i], shape: sh})
	}
	before := heapBytes()
	if _, err := part.sendRows(t.Context(), &Term{Producer: feed.Producer{Pipeline: "p", Generation: 1, Source: "c/0"}, Epoch: 1}, feed.Position{LSN: 1}); err != nil {
		t.Fatal(err)
	}
	if held := int64(o.bytes) - int64(before); o.requests < 25 || held > 16<<20 {
		t.Errorf("%d requests; %d bytes were held beside the rows", o.requests, held)
	}
}
