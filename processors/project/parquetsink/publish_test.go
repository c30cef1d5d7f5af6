package parquetsink_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/processors/project/sinktest"
)

// noting is a store that notes the requests for Delta logs.
type noting struct {
	objects
	mu       sync.Mutex
	requests []string
}

func (n *noting) note(what, name string) {
	if strings.Contains(name, "/_delta_log/") {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.requests = append(n.requests, what+" "+strings.Replace(name, "/_delta_log/", " ", 1))
	}
}

func (n *noting) Get(ctx context.Context, name string) ([]byte, error) {
	n.note("get", name)
	return n.objects.Get(ctx, name)
}

func (n *noting) PutExclusive(ctx context.Context, name string, data []byte) error {
	n.note("make", name)
	return n.objects.PutExclusive(ctx, name, data)
}

func (n *noting) List(ctx context.Context, prefix, after string) iter.Seq2[parquetsink.Object, error] {
	n.note("list", prefix)
	return n.objects.List(ctx, prefix, after)
}

// taken returns the requests since the last call, in order.
func (n *noting) taken() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.requests
	n.requests = nil
	slices.Sort(all)
	return all
}

// TestPublish_WhoCommitsAloneListsNothing counts what a commit asks of the log of the table
// that it changes.
func TestPublish_WhoCommitsAloneListsNothing(t *testing.T) {
	storage := &noting{objects: newMemory()}
	w := openWriter(t, open(t, storage, quick()), 0, 1)
	name := func(version int) string { return fmt.Sprintf("orders %020d.json", version) }
	for n := 1; n <= 3; n++ {
		storage.taken()
		writeRows(t, w, n, orderRow("customer/[\"a\"]/o", "o", int64(n)))
		flush(t, w)
		if got, want := storage.taken(), []string{"get " + name(n-1), "make " + name(n)}; !slices.Equal(got, want) {
			t.Errorf("commit %d: %q, want %q", n, got, want)
		}
	}
	// Another process commits: its commit is looked for, and then the log is known again.
	other := openWriter(t, open(t, storage, quick()), 1, 1)
	writeRows(t, other, 1, orderRow("customer/[\"b\"]/o", "p", 1))
	flush(t, other)
	for n := 4; n <= 5; n++ {
		storage.taken()
		writeRows(t, w, n, orderRow("customer/[\"a\"]/o", "o", int64(n)))
		flush(t, w)
		if got := storage.taken(); slices.Contains(got, "list orders ") != (n == 4) || !slices.Contains(got, "make "+name(n+1)) {
			t.Errorf("commit %d: %q", n, got)
		}
	}
}

// deaf is a store that does not list the log of orders while it is told not to.
type deaf struct {
	*noting
	is atomic.Bool
}

func (d *deaf) List(ctx context.Context, prefix, after string) iter.Seq2[parquetsink.Object, error] {
	if strings.HasPrefix(prefix, "orders/_delta_log/") && d.is.Load() {
		return func(yield func(parquetsink.Object, error) bool) {
			yield(parquetsink.Object{}, errors.New("connection refused"))
		}
	}
	return d.noting.List(ctx, prefix, after)
}

// TestPublish_LookThatFailedIsRepeated has another process commit, and lets the look at the
// log that follows fail: the next commit must not believe that nobody else is there.
func TestPublish_LookThatFailedIsRepeated(t *testing.T) {
	storage := newMemory()
	watched := &deaf{noting: &noting{objects: storage}}
	w := openWriter(t, open(t, watched, quick()), 0, 1)
	writeRows(t, w, 1, orderRow("customer/[\"a\"]/o", "o", 1))
	flush(t, w)
	openWriter(t, open(t, storage, quick()), 1, 1) // commits a manifest, and nothing to the log
	watched.is.Store(true)
	writeRows(t, w, 2, orderRow("customer/[\"a\"]/o", "o", 2))
	if _, err := w.Flush(t.Context()); err == nil {
		t.Fatal("a flush that cannot look at a log succeeds")
	}
	watched.is.Store(false)
	watched.taken()
	flush(t, w)
	if got := watched.taken(); !slices.Contains(got, "list orders ") {
		t.Errorf("the flush after one that could not look asks for %q", got)
	}
	if got := deltaIDs(t, storage); !slices.Equal(got, []string{"o=0.02"}) {
		t.Errorf("rows %q", got)
	}
}

// TestPublish_LogGoesWhilePaused begins a term of a sink that knows the log of each table. What
// is gone is made again though no row has come, and nobody looks at what was just looked at.
func TestPublish_LogGoesWhilePaused(t *testing.T) {
	storage := newMemory()
	watched := &noting{objects: storage}
	s := open(t, watched, quick())
	w := openWriter(t, s, 0, 1)
	for n := 1; n <= 2; n++ {
		writeRows(t, w, n, orderRow("customer/[\"a\"]/o", "o", int64(n)))
		flush(t, w)
	}
	parquetsink.LookEvery(s, time.Hour)
	watched.taken()
	openWriter(t, s, 0, 2)
	openWriter(t, s, 1, 1)
	if got := watched.taken(); len(got) > 0 {
		t.Errorf("terms that begin within the time for which a log is known ask for %q", got)
	}
	parquetsink.LookEvery(s, 0)
	for epoch, table := range []string{"orders", "lines", "orders"} {
		must(t, storage.Delete(t.Context(), storage.names(table+"/_delta_log/")...))
		openWriter(t, s, 0, uint64(epoch+3))
		if log := replay(t, storage, table, -1); log.version != 0 {
			t.Errorf("the log of %s is at version %d, want it made again", table, log.version)
		}
		shown, err := parquetsink.ReadShown(t.Context(), storage)
		must(t, err)
		if shown.Versions[table] != 0 {
			t.Errorf("readers see %+v", shown)
		}
	}
	if got := deltaIDs(t, storage); !slices.Equal(got, []string{"o=0.02"}) {
		t.Errorf("rows %q", got)
	}
}

// meeting is a store in which the commits of Delta logs wait until as many as may be are made
// at once.
type meeting struct {
	objects
	mu       sync.Mutex
	armed    bool
	inFlight int
	most     int // of inFlight
	met      chan struct{}
	last     string // the newest manifest
	early    []string
}

func (m *meeting) PutExclusive(ctx context.Context, name string, data []byte) error {
	if strings.HasPrefix(name, "_manifest/") {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.last = name
		return m.objects.PutExclusive(ctx, name, data)
	}
	if !m.arrive(name, data) {
		return m.objects.PutExclusive(ctx, name, data)
	}
	defer m.leave()
	select {
	case <-m.met:
		// One that comes although as many as may be are here would come about now.
		<-time.After(20 * time.Millisecond)
		return m.objects.PutExclusive(ctx, name, data)
	case <-time.After(time.Minute):
		return fmt.Errorf("%s was made beside fewer than %d others", name, parquetsink.PublishParallel-1)
	}
}

// arrive counts a commit, if it is to be counted.
func (m *meeting) arrive(name string, data []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.armed {
		return false
	}
	var number int
	_, err := fmt.Sscanf(m.last, "_manifest/%d.json", &number)
	if err != nil || !strings.Contains(string(data), fmt.Sprintf(`"manifest":"%d"`, number)) {
		m.early = append(m.early, name)
	}
	m.inFlight++
	if m.inFlight == parquetsink.PublishParallel && m.most < m.inFlight {
		close(m.met)
	}
	m.most = max(m.most, m.inFlight)
	return true
}

func (m *meeting) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inFlight--
}

// TestPublish_LogsSideBySide changes more tables than there may be logs written at once: so
// many are, never more, and no commit is made before the manifest that it shows.
func TestPublish_LogsSideBySide(t *testing.T) {
	const tables = 2 * parquetsink.PublishParallel
	storage := &meeting{objects: newMemory(), met: make(chan struct{})}
	s := open(t, storage, quick())
	w := begin(t, s, manyTables(tables), 0)
	storage.mu.Lock()
	storage.armed = true
	storage.mu.Unlock()
	var rows []project.Row
	for table := range tables {
		r := orderLines(0, 1)[0]
		r.Table = table
		rows = append(rows, r)
	}
	write(t, w, &project.Batch{UpTo: feed.Position{LSN: 1}, Put: rows})
	flush(t, w)
	if storage.most != parquetsink.PublishParallel {
		t.Errorf("%d logs were written at once, want %d", storage.most, parquetsink.PublishParallel)
	}
	if len(storage.early) > 0 {
		t.Errorf("made before their manifest: %q", storage.early)
	}
	for table := range tables {
		if log := replay(t, storage.objects, fmt.Sprint("table", table), -1); log.version != 1 || len(log.files) != 1 {
			t.Errorf("the log of table %d is at version %d with %q", table, log.version, log.names())
		}
	}
}

// overtaken is a store in which something happens before the next commit of a Delta log is
// made, and before the commits of that log are read. It happens in a goroutine of the sink, so
// it must not end the test: its error is that of the commit.
type overtaken struct {
	objects
	mu     sync.Mutex
	before func() error
	after  chan struct{} // closed when it has happened; nil when nothing is to
}

func (o *overtaken) arm(before func() error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.before, o.after = before, make(chan struct{})
}

func (o *overtaken) PutExclusive(ctx context.Context, name string, data []byte) error {
	if strings.Contains(name, "/_delta_log/") {
		o.mu.Lock()
		defer o.mu.Unlock()
		if before := o.before; before != nil {
			o.before = nil
			defer close(o.after)
			if err := before(); err != nil {
				return err
			}
		}
	}
	return o.objects.PutExclusive(ctx, name, data)
}

func (o *overtaken) Get(ctx context.Context, name string) ([]byte, error) {
	o.mu.Lock()
	after := o.after
	o.mu.Unlock()
	if strings.Contains(name, "/_delta_log/") && after != nil {
		<-after
	}
	return o.objects.Get(ctx, name)
}

// TestPublish_LogGoesBesideALoneProcess removes a log while a process makes the next commit, which it
// does without looking; in the second case another process makes the log again meanwhile.
func TestPublish_LogGoesBesideALoneProcess(t *testing.T) {
	for _, remade := range []bool{false, true} {
		t.Run(fmt.Sprintf("remade=%t", remade), func(t *testing.T) {
			storage := newMemory()
			watched := &overtaken{objects: storage}
			w := openWriter(t, open(t, watched, quick()), 0, 1)
			writeRows(t, w, 1, orderRow("customer/[\"a\"]/o", "o", 1))
			flush(t, w)
			writeRows(t, w, 2, orderRow("customer/[\"a\"]/p", "p", 2))
			want := []string{"o=0.01", "p=0.02"}
			read := func() []string {
				t.Helper()
				start := &deltaState{version: -1, files: map[string]map[string]any{}, again: remade} // one commit rested on what was gone
				return idsOf(t, storage, replayInto(t, start, storage, "orders", -1))
			}
			rival := open(t, storage, quick())
			watched.arm(func() error {
				if err := storage.Delete(t.Context(), storage.names("orders/_delta_log/")...); err != nil || !remade {
					return err
				}
				other, _, err := rival.Open(t.Context(), sinktest.Schema(1), termOf(1, 1, 1)) // makes version 0, as before
				if err != nil {
					return err
				}
				if _, err := other.Write(t.Context(), &project.Batch{UpTo: at(1), Put: []project.Row{orderRow("customer/[\"b\"]/q", "q", 3)}}); err != nil {
					return err
				}
				_, err = other.Flush(t.Context()) // and version 1
				return err
			})
			if remade {
				want = append(want, "q=0.03")
			}
			flush(t, w)
			if got := read(); !slices.Equal(got, want) {
				t.Errorf("rows %q, want %q", got, want)
			}
			writeRows(t, w, 3, orderRow("customer/[\"a\"]/o", "o", 9))
			flush(t, w)
			want[0] = "o=0.09"
			if got := read(); !slices.Equal(got, want) {
				t.Errorf("rows %q, want %q", got, want)
			}
		})
	}
}
