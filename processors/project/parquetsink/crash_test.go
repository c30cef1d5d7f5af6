package parquetsink_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/raced"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/processors/project/sinktest"
)

var everyStep = flag.Bool("every", false, "crash at every step, not at some")

// story is what happens to a sink: steps, each the batch of one of two source
// partitions, flushes, a shadow generation and its swap. It is the same in every
// life; a life that ends goes on in the next one from what the sink has recorded.
type story struct {
	schemas map[uint32]*project.Schema
	steps   []step
}

type step struct {
	generation uint32
	partition  int
	batch      *project.Batch // nil: a flush, or a swap
	swap       bool
}

func termOf(generation uint32, partition int, epoch uint64) project.Term {
	return project.Term{Producer: feed.Producer{
		Pipeline: "analytics", Generation: generation, Source: fmt.Sprintf("source:c7k2x4ab/%d", partition),
	}, Epoch: epoch}
}

func at(lsn int) feed.Position { return feed.Position{LSN: feed.LSN(lsn)} }

// newStory returns a story with everything in it: new rows, replaced ones, drops,
// claims that wait and take their place, rejects, files that are merged, a shadow
// generation.
func newStory() *story {
	s := &story{schemas: map[uint32]*project.Schema{1: sinktest.Schema(1), 2: sinktest.Schema(2)}}
	s.schemas[2].Shadow = true
	for n := 1; n <= 6; n++ {
		s.chapter(1, n)
		if n == 5 { // the shadow is filled while the former generation goes on
			for m := 1; m <= 4; m++ {
				s.chapter(2, m)
			}
		}
	}
	s.steps = append(s.steps, step{generation: 2, swap: true})
	for n := 5; n <= 7; n++ {
		s.chapter(2, n)
	}
	return s
}

func (s *story) chapter(generation uint32, n int) {
	for partition := range 2 {
		b := chapter(partition, n)
		s.steps = append(s.steps, step{generation: generation, partition: partition, batch: b})
		if (n+partition)%2 == 0 {
			s.steps = append(s.steps, step{generation: generation, partition: partition})
		}
	}
}

// chapter returns the batch of a partition up to position n.
func chapter(partition, n int) *project.Batch {
	b := &project.Batch{After: at(n - 1), UpTo: at(n)}
	name := func(n int) string { return fmt.Sprintf("customer/[\"c%d\"]/o%d", partition, n) }
	id := func(n int) string { return fmt.Sprintf("p%d-o%d", partition, n) }
	order := func(source, id string, cents int64) project.Row {
		values := []project.Value{project.TextOf(id), project.TextOf("Ann"), project.SmallDecimalOf(cents, 2), {}}
		return project.Row{Table: sinktest.Orders, Key: values[:1:1], Values: values, Source: source}
	}
	for i := range 3 { // new ones
		b.Put = append(b.Put, order(name(n*10+i), id(n*10+i), int64(n)))
	}
	if n > 2 {
		b.Put = append(b.Put, order(name((n-1)*10), id((n-1)*10), int64(n))) // replaced
		gone := order(name((n-2)*10+1), id((n-2)*10+1), 0)
		b.Drop = append(b.Drop, project.Row{Table: gone.Table, Key: gone.Key, Source: gone.Source})
		b.Put = append(b.Put, order(name(n*10+2)+"x", id((n-2)*10+2), 7)) // waits
	}
	if n > 4 { // a claim takes its place
		gone := order(name((n-4)*10+2), id((n-4)*10+2), 0)
		b.Drop = append(b.Drop, project.Row{Table: gone.Table, Key: gone.Key, Source: gone.Source})
		b.Accept = append(b.Accept, project.Reject{Table: sinktest.Lines, Source: name(n - 3), Element: "1"})
	}
	b.Reject = append(b.Reject, project.Reject{Table: sinktest.Lines, Source: name(n), Element: "1", Column: "line", Reason: "is no number", Row: []byte(`{"line":"x"}`)})
	return b
}

// life is one process: a sink and the writers of both generations.
type life struct {
	t       *testing.T
	s       *story
	sink    *parquetsink.Sink
	epoch   uint64
	writers map[feed.Producer]project.Writer
	durable map[feed.Producer]feed.Position // what a Flush has said, in all lives
	swapped bool                            // generation 2 had taken its place when the process began
}

// live goes through the story from where the sink is, until it ends or the process
// is killed.
func (l *life) live() error {
	for i, st := range l.s.steps {
		if err := l.do(st); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

func (l *life) do(st step) error {
	if st.generation == 1 && l.swapped { // nobody starts a worker of it
		return nil
	}
	if st.swap {
		return l.sink.Swap(l.t.Context(), l.s.schemas[2])
	}
	p := termOf(st.generation, st.partition, l.epoch)
	w := l.writers[p.Producer]
	if w == nil {
		opened, position, err := l.sink.Open(l.t.Context(), l.s.schemas[st.generation], p)
		if err != nil {
			return err
		}
		if position.Before(l.durable[p.Producer]) {
			l.t.Fatalf("%s: the sink has recorded %s, and has said that %s is durable", p.Producer, position, l.durable[p.Producer])
		}
		l.writers[p.Producer] = opened
		w = opened
	}
	if st.batch != nil {
		_, err := w.Write(l.t.Context(), st.batch)
		return err
	}
	position, err := w.Flush(l.t.Context())
	if err == nil {
		l.durable[p.Producer] = position
	}
	return err
}

// check compares what a sink holds with what the story says at the positions that
// it has recorded.
func (s *story) check(t *testing.T, sink *parquetsink.Sink, when string) {
	t.Helper()
	for generation, schema := range s.schemas {
		positions, err := sink.Positions(t.Context(), schema)
		must(t, err)
		if len(positions) == 0 {
			continue
		}
		s.compare(t, fmt.Sprintf("%s: generation %d at %v", when, generation, positions), s.at(t, generation, positions), contents(t, sink, schema), schema)
	}
}

// at returns what a generation must hold at positions.
func (s *story) at(t *testing.T, generation uint32, positions map[string]feed.Position) []string {
	t.Helper()
	schema := sinktest.Schema(generation)
	model := sinktest.NewMemory(sinktest.NewDisk(), false)
	for _, st := range s.steps {
		p := termOf(generation, st.partition, 1)
		if st.generation != generation || st.batch == nil || positions[p.Producer.Source].Before(st.batch.UpTo) {
			continue
		}
		w, _, err := model.Open(t.Context(), schema, p)
		must(t, err)
		_, err = w.Write(t.Context(), st.batch)
		must(t, err)
	}
	return contents(t, model, schema)
}

// contents prints all that a sink holds, in order.
func contents(t *testing.T, sink sinktest.Sink, schema *project.Schema) []string {
	t.Helper()
	var all []string
	for table := range schema.Tables {
		for r, err := range sink.Rows(t.Context(), schema, table) {
			must(t, err)
			all = append(all, fmt.Sprintf("row %d %v %s", table, r.Values, r.Source))
		}
		for r, err := range sink.Rejects(t.Context(), schema, table) {
			must(t, err)
			all = append(all, fmt.Sprintf("reject %d %v %s %s %s %s %s", table, r.Key, r.Source, r.Element, r.Column, r.Reason, r.Row))
		}
	}
	slices.Sort(all)
	return all
}

func (s *story) compare(t *testing.T, what string, want, got []string, schema *project.Schema) {
	t.Helper()
	if slices.Equal(want, got) {
		return
	}
	for _, row := range want {
		if !slices.Contains(got, row) {
			t.Errorf("%s: missing: %s", what, row)
		}
	}
	for _, row := range got {
		if !slices.Contains(want, row) {
			t.Errorf("%s: too much: %s", what, row)
		}
	}
	t.Fatalf("%s: %d rows and rejects, want %d", what, len(got), len(want))
}

// shown checks that what readers see is whole: every file that the logs name is there, and
// in the versions of one commit they hold what the story says at its positions.
func (s *story) shown(t *testing.T, storage objects, when string) {
	t.Helper()
	shown, err := parquetsink.ReadShown(t.Context(), storage)
	must(t, err)
	if shown == nil {
		return
	}
	for as, version := range shown.Versions {
		for _, name := range replay(t, storage, as, version).names() {
			if _, err := storage.Get(t.Context(), name); err != nil {
				t.Fatalf("%s: version %d of the log of %s: %v", when, version, as, err)
			}
		}
		for _, name := range replay(t, storage, as, -1).names() {
			if _, err := storage.Get(t.Context(), name); err != nil {
				t.Fatalf("%s: the log of %s: %v", when, as, err)
			}
		}
	}
	rows, err := parquetsink.ReadFiles(t.Context(), storage, &s.schemas[1].Tables[sinktest.Orders], sinktest.Orders, replay(t, storage, "orders", shown.Versions["orders"]).names())
	must(t, err)
	positions := map[string]feed.Position{}
	for source, text := range shown.Positions {
		if text != "" {
			positions[source], err = feed.ParsePosition(text)
			must(t, err)
		}
	}
	var got, want []string
	for _, r := range rows {
		got = append(got, fmt.Sprintf("row %d %v %s", sinktest.Orders, r.Values, r.Source))
	}
	slices.Sort(got)
	for _, row := range s.at(t, shown.Generation, positions) {
		if strings.HasPrefix(row, fmt.Sprintf("row %d ", sinktest.Orders)) {
			want = append(want, row)
		}
	}
	s.compare(t, when+": the logs", want, got, s.schemas[1])
}

// crashConfig makes every commit large work: tiny files, nothing kept.
func crashConfig() parquetsink.Config {
	cfg := quick()
	cfg.FileRowsMax, cfg.Grace = 40, time.Nanosecond
	return cfg
}

// begin starts a process on a store.
func (s *story) begin(t *testing.T, storage objects, epoch uint64, durable map[feed.Producer]feed.Position) *life {
	t.Helper()
	sink, err := parquetsink.New(storage, crashConfig())
	must(t, err)
	parquetsink.CheckpointEvery(sink, 4)
	t.Cleanup(func() { _ = sink.Close() })
	l := &life{t: t, s: s, sink: sink, epoch: epoch, writers: map[feed.Producer]project.Writer{}, durable: durable}
	if epoch > 1 {
		former, err := sink.Positions(t.Context(), s.schemas[1])
		must(t, err)
		latter, err := sink.Positions(t.Context(), s.schemas[2])
		must(t, err)
		l.swapped = len(former) == 0 && len(latter) > 0
	}
	return l
}

// crashAt lets a process go through the story until it is killed at a step, then
// another one to the end, and checks in between and then.
func (s *story) crashAt(t *testing.T, storage objects, at int, happens bool) {
	t.Helper()
	when := fmt.Sprintf("killed at step %d, which happens: %t", at, happens)
	durable := map[feed.Producer]feed.Position{}
	first := s.begin(t, &crashing{objects: storage, at: at, happens: happens}, 1, durable)
	err := first.live()
	_ = first.sink.Close()
	if err != nil && !errors.Is(err, errCrash) {
		t.Fatalf("%s: %v", when, err)
	}
	second := s.begin(t, storage, 2, durable)
	s.check(t, second.sink, when)
	s.shown(t, storage, when)
	if err := second.live(); err != nil {
		t.Fatalf("%s: the next process: %v", when, err)
	}
	must(t, second.sink.Close())
	s.end(t, storage, when+": the end", durable)
}

// end checks that all is there and nothing else.
func (s *story) end(t *testing.T, storage objects, when string, durable map[feed.Producer]feed.Position) {
	t.Helper()
	last := s.begin(t, storage, 3, durable)
	for partition := range 2 { // looks for what crashes have left
		w, _, err := last.sink.Open(t.Context(), s.schemas[2], termOf(2, partition, 3))
		must(t, err)
		_, err = w.Flush(t.Context())
		must(t, err)
	}
	s.check(t, last.sink, when)
	s.shown(t, storage, when)
	live, gone, number, err := parquetsink.Newest(t.Context(), storage)
	must(t, err)
	for o, err := range storage.List(t.Context(), "", "") {
		must(t, err)
		if strings.HasSuffix(o.Name, ".parquet") && !strings.Contains(o.Name, "/_delta_log/") && !slices.Contains(live, o.Name) && !slices.Contains(gone, o.Name) {
			t.Errorf("%s: %s is garbage", when, o.Name)
		}
		if strings.HasPrefix(o.Name, "_manifest/") && o.Name <= fmt.Sprintf("_manifest/%020d.json", max(int(number)-33, 0)) {
			t.Errorf("%s: %s is left", when, o.Name)
		}
	}
	must(t, last.sink.Close())
}

// TestCrash_AtEveryStep kills a process at each step that it takes in the store,
// before and after it happens, and the next one goes on: nothing is lost, nothing
// is there twice, and what readers see is whole all the time.
func TestCrash_AtEveryStep(t *testing.T) {
	t.Parallel()
	s := newStory()
	count := &crashing{objects: newMemory(), at: -1}
	l := s.begin(t, count, 1, map[feed.Producer]feed.Position{})
	must(t, l.live())
	must(t, l.sink.Close())
	steps := count.steps()
	stride := raced.Rounds(97, 12)
	first := 1 + rand.IntN(stride)
	if *everyStep {
		first, stride = 1, 1
	}
	t.Logf("%d steps, of which every %d. is tried, from %d", steps, stride, first)
	for _, happens := range []bool{false, true} {
		t.Run(fmt.Sprintf("happens=%t", happens), func(t *testing.T) {
			for at := first; at <= steps; at += stride {
				s.crashAt(t, newMemory(), at, happens)
			}
		})
	}
}

// TestCrash_OnDisk does the same on a local directory, at fewer steps.
func TestCrash_OnDisk(t *testing.T) {
	t.Parallel()
	s := newStory()
	count := &crashing{objects: parquetsink.NewDir(t.TempDir()), at: -1}
	l := s.begin(t, count, 1, map[feed.Producer]feed.Position{})
	must(t, l.live())
	must(t, l.sink.Close())
	first, stride := 1+rand.IntN(97), 97
	if *everyStep {
		first, stride = 1, 7
	}
	for at := first; at <= count.steps(); at += stride {
		s.crashAt(t, parquetsink.NewDir(t.TempDir()), at, at%2 == 0)
	}
}
