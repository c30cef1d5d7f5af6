package parquetsink

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
)

var _ interface {
	project.Sink
	project.Reader
	project.Swapper
	project.Limiter
	project.Checker
} = (*Sink)(nil)

var errClosed = errors.New("parquet sink: closed")

// Sink is a project.Sink of Parquet files in an ObjectStore. See the package's
// documentation.
type Sink struct {
	// Set by New.
	cfg   Config
	store ObjectStore
	files *files // has a lock of its own
	// background runs f until it is done or the sink is closed.
	background func(f func(ctx context.Context)) bool
	stop       func()
	// checkpointEvery is how many commits a Delta log has between two checkpoints.
	checkpointEvery int64
	// lookEvery is how long a process that commits alone believes what it knows of a
	// Delta log's end.
	lookEvery time.Duration

	// turn holds an element while somebody has the turn: a commit, an Open, a Swap. It is
	// a channel and no mutex because a commit may take seconds: whoever waits for it must
	// be able to give up when its context ends.
	turn chan struct{}

	// Owned by whoever has the turn.
	commits     *commitLog
	layouts     map[string]*layouts
	publishedAs uint64               // the manifest whose Changed readers see
	deltas      map[string]*deltaLog // by folder of a table
	refused     map[string]error     // the logs of deltas that are not as they were made, and why
	doubted     bool                 // some of deltas are to be looked at, whatever was published
	collected   time.Time            // when orphans were last looked for
	swept       time.Time            // when superseded files were last removed
	pruned      uint64               // manifests up to this one have been removed

	// Guarded by mu, as are fields of each Writer. Nobody holds mu during I/O, so a Write
	// waits for a commit only while the sink is full.
	mu          sync.Mutex
	writers     map[feed.Producer]*Writer
	closed      bool
	running     bool // a commit in the background
	unpublished bool // something was committed and readers do not see it
	rows        int  // that writers hold, not sealed
	bytes       int
	sealedRows  int // that are being committed
	sealedBytes int
	ended       time.Time     // when the last commit ended
	took        time.Duration // and what it took
	full        chan struct{} // closed when writers hold much; made anew by a commit
}

// New returns a sink of the files in store. It touches the store only when it is
// opened.
func New(store ObjectStore, cfg Config) (*Sink, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	// Each slot may hold several times FileBytesMax, so memory bounds them, not cores alone.
	parallel := min(runtime.GOMAXPROCS(0), 4)
	s := &Sink{
		cfg: cfg, store: store, checkpointEvery: deltaCheckpointEvery, lookEvery: deltaLookEvery,
		files: &files{
			store: store, index: newIndex(cfg.IndexBytesMax), rowsMax: int64(cfg.FileRowsMax), bytesMax: int64(cfg.FileBytesMax),
			parallel: parallel, slots: make(chan struct{}, parallel),
		},
		turn: make(chan struct{}, 1), commits: newCommitLog(store), layouts: map[string]*layouts{},
		deltas: map[string]*deltaLog{}, refused: map[string]error{}, writers: map[feed.Producer]*Writer{}, full: make(chan struct{}),
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	var work sync.WaitGroup
	s.background = func(f func(context.Context)) bool {
		if ctx.Err() != nil {
			return false
		}
		work.Go(func() { f(ctx) })
		return true
	}
	s.stop = func() {
		cancel(errClosed)
		work.Wait()
	}
	return s, nil
}

// Owner returns the id of the pipeline whose files are in store, "" if there are none.
func Owner(ctx context.Context, store ObjectStore) (string, error) {
	c := newCommitLog(store)
	if err := c.refresh(ctx); err != nil {
		return "", unreachable("read whose files there are", err)
	}
	return c.last.Pipeline, nil
}

// takeTurn waits until nobody else has the turn.
func (s *Sink) takeTurn(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Sink) endTurn() { <-s.turn }

// Open makes the tables and columns that are missing and begins a term, in one
// commit. A writer of the same producer in this process ends.
func (s *Sink) Open(ctx context.Context, schema *project.Schema, t project.Term) (project.Writer, feed.Position, error) {
	var none feed.Position
	if problems := s.Check(schema); len(problems) > 0 {
		return nil, none, fmt.Errorf("parquet sink: %s", problems[0])
	}
	if err := s.takeTurn(ctx); err != nil {
		return nil, none, err
	}
	defer s.endTurn()
	// From this commit on an older epoch is refused. A commit of it that is under way in
	// another process either comes before, and m has its position, or finds the epoch.
	m, err := s.admit(ctx, schema, t)
	if err != nil {
		return nil, none, err
	}
	s.doubt()
	if err := s.publishOthers(ctx, m); err != nil {
		return nil, none, err
	}
	s.tidy(ctx, m)
	ts := m.setOf(schema.Generation)
	at, err := ts.source(t.Producer).position()
	if err != nil {
		return nil, none, unreachable("open", fmt.Errorf("%w: %w", errManifest, err))
	}
	w := &Writer{sink: s, producer: t.Producer, epoch: t.Epoch, active: newBuffer(nil), durable: at, taken: at}
	for i := range schema.Tables {
		l, err := s.layoutsOf(ts.table(schema.Tables[i].Name))
		if err != nil {
			return nil, none, err
		}
		columns, err := l.rows.columnsOf(&schema.Tables[i])
		if err != nil {
			return nil, none, err
		}
		w.tables = append(w.tables, writerTable{l: l, columns: columns, key: len(schema.Tables[i].Key)})
	}
	if err := s.register(w); err != nil {
		return nil, none, err
	}
	return w, at, nil
}

// admit commits a term, unless it was begun before, and returns the newest manifest.
func (s *Sink) admit(ctx context.Context, schema *project.Schema, t project.Term) (*manifest, error) {
	_, err := s.commits.advance(ctx, func(ctx context.Context, base *manifest, _ int) (*manifest, error) {
		next := base.clone()
		changed, err := next.admit(schema, t)
		if err != nil || !changed { // opened before, by the same epoch
			return nil, err
		}
		return next, s.addEmptyFiles(ctx, next, base.Number)
	})
	return s.commits.last, err
}

// addEmptyFiles gives a file to every table that has none, because a reader learns the
// columns of a table from its files.
func (s *Sink) addEmptyFiles(ctx context.Context, m *manifest, from uint64) error {
	for _, ts := range m.Sets {
		for _, t := range ts.Tables {
			if len(t.Files) > 0 {
				continue
			}
			l, err := s.layoutsOf(t)
			if err != nil {
				return err
			}
			g := s.newRewrite(ts, t, l, from)
			for _, set := range []struct {
				to *[]file
				l  *layout
			}{{&t.Files, l.rows}, {&t.Rejects, l.rejects}} {
				made, err := g.writeEmpty(ctx, set.l)
				if err != nil {
					return err
				}
				*set.to = []file{made}
			}
			if ts.Current {
				m.Changed = from + 1
			}
		}
	}
	return nil
}

// register makes w the writer of its producer.
func (s *Sink) register(w *Writer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	if old := s.writers[w.producer]; old != nil {
		s.discardLocked(old, lost(w.producer, "its term of epoch %d has been succeeded by one of epoch %d", old.epoch, w.epoch))
	}
	s.writers[w.producer] = w
	return nil
}

// Close ends commits that are under way and discards what was not flushed.
func (s *Sink) Close() error {
	// Discard first, then stop: a commit that is under way finds its writers ended and
	// leaves their counts alone.
	s.mu.Lock()
	s.closed = true
	for _, w := range s.writers {
		s.discardLocked(w, errClosed)
	}
	s.mu.Unlock()
	s.stop()
	return nil
}

// Swap makes the tables of a generation the current ones. The error matches
// project.ErrGivenUp if a later generation was begun before.
func (s *Sink) Swap(ctx context.Context, schema *project.Schema) error {
	if err := s.takeTurn(ctx); err != nil {
		return err
	}
	defer s.endTurn()
	_, err := s.commits.advance(ctx, func(_ context.Context, base *manifest, _ int) (*manifest, error) {
		next := base.clone()
		changed, err := next.swap(schema.Generation)
		if err != nil || !changed {
			return nil, err
		}
		next.Changed = base.Number + 1
		return next, nil
	})
	if err != nil {
		return err
	}
	// The manifest has been swapped, and writers of the former generation are refused. If a
	// refused log failed that, the swap would be called again until an operator comes.
	return s.publishOthers(ctx, s.commits.last)
}

// publishOthers publishes m, and warns of refused logs: the other tables go on. Flush
// reports them.
func (s *Sink) publishOthers(ctx context.Context, m *manifest) error {
	err := s.publish(ctx, m)
	if errors.Is(err, errDelta) {
		s.cfg.Logger.WarnContext(ctx, "readers of some Delta logs do not see what is committed", slog.Any("error", err))
		return nil
	}
	return err
}

// layoutsOf returns the layouts of a table. Equal tables share them, and a table that
// gains a column gets others: whoever compares two pointers knows whether the columns
// are the same, see rewrite.stillValid.
func (s *Sink) layoutsOf(t *table) (*layouts, error) {
	same := fmt.Sprintf("%q %q %q %q %q %q", t.Name, t.As, t.Columns, t.Key, t.PartitionBy, t.PartitionAs)
	if l := s.layouts[same]; l != nil {
		return l, nil
	}
	rows, err := newLayout(t)
	if err != nil {
		return nil, unreachable("open", fmt.Errorf("%w: %w", errManifest, err))
	}
	l := &layouts{rows: rows, rejects: newRejectLayout(t.RejectsAs)}
	s.layouts[same] = l
	return l, nil
}

// newRewrite returns a rewrite of a table that begins from a manifest.
func (s *Sink) newRewrite(ts *tableSet, t *table, l *layouts, from uint64) *rewrite {
	return &rewrite{files: s.files, from: from, set: ts, table: t, l: l, token: strings.ToLower(rand.Text()[:8])}
}
