package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

const (
	// workTimeout bounds a piece of work. One that takes longer is for the commands.
	workTimeout = time.Hour
	// workMax bounds the pieces that are under way at a time: each may read a whole store.
	workMax = 2
	// workKept bounds those whose outcome is kept, in memory; the oldest goes.
	workKept = 20
	// workPatience is how long a form waits for its work, so that what is soon done is seen at once.
	workPatience = time.Second
)

// Causes for which work ends before it is done.
var (
	errWorkTimeout = fmt.Errorf("it took longer than %s; the command has no such limit", workTimeout)
	errWorkStopped = errors.New("somebody has stopped it")
	errPanicked    = errors.New("it failed by a mistake in Millrace, which the log tells of; what it did before may be done")
)

// tellFunc tells how far work is: done of total, which is 0 if it is not known, and a note.
type tellFunc func(done, total int64, note string)

// work is something that may take longer than a browser waits: a plan, an apply, a rewind, a
// verification, a repair, many dead letters. It goes on when whoever began it looks elsewhere, and everybody who is signed in sees it.
type work struct {
	ID    string
	Title string
	Began time.Time
	do    func(ctx context.Context, tell tellFunc) (any, error) // nil when it is over
	ended chan struct{}                                         // closed when it is over

	mu     sync.Mutex
	cancel context.CancelCauseFunc // nil before it runs
	state  workState
}

// workState is how far work is.
type workState struct {
	Ended       time.Time // zero while it is under way
	Done, Total int64
	Note        string
	// Result is what it came to; also of an error, after which it tells what was done before.
	Result any
	Err    error
}

// Over tells whether it has ended.
func (s workState) Over() bool { return !s.Ended.IsZero() }

// Percent is how much is done; 0 if that is not known.
func (s workState) Percent() float64 {
	if s.Total <= 0 {
		return 0
	}
	return 100 * min(float64(s.Done)/float64(s.Total), 1)
}

func (w *work) now() workState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// run does the work.
func (w *work) run(ctx context.Context, log *slog.Logger) {
	ctx, cancel := context.WithTimeoutCause(ctx, workTimeout, errWorkTimeout)
	defer cancel()
	// stopWork and the timeout end it with causes of their own, by which the page says why.
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w.mu.Lock()
	w.cancel = stop
	w.mu.Unlock()
	result, err := w.try(ctx, log)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, errPanicked) {
		err = cause // what was cut off says nothing
	}
	w.do = nil // it holds what was sent, and work is kept for long
	w.mu.Lock()
	w.state.Ended, w.state.Result, w.state.Err = time.Now(), result, err
	w.mu.Unlock()
	close(w.ended)
}

// try does the work. If that panics, the process goes on: it may be a node that holds partitions.
func (w *work) try(ctx context.Context, log *slog.Logger) (result any, err error) {
	defer func() {
		if why := recover(); why != nil {
			log.Error("console: work panicked", "work", w.Title, "panic", why, "stack", string(debug.Stack()))
			result, err = nil, fmt.Errorf("%w: %v", errPanicked, why)
		}
	}()
	return w.do(ctx, func(done, total int64, note string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.state.Done, w.state.Total, w.state.Note = done, total, note
	})
}

// works are those under way, and the last ones that are over.
type works struct {
	queue chan *work // at most workMax, so nobody waits who sends
	log   *slog.Logger

	mu  sync.Mutex
	all []*work // the oldest first
}

func newWorks(log *slog.Logger) *works {
	return &works{queue: make(chan *work, workMax), log: log}
}

// run does what is begun until ctx ends, and waits until that is over.
func (s *works) run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-s.queue:
			group.Go(func() { w.run(ctx, s.log) })
		}
	}
}

// begin begins a piece of work. The error is a refusal if there is enough under way.
func (s *works) begin(title string, do func(ctx context.Context, tell tellFunc) (any, error)) (*work, error) {
	w := &work{ID: rand.Text(), Title: title, Began: time.Now(), do: do, ended: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	under := 0
	for _, other := range s.all {
		if !other.now().Over() {
			under++
		}
	}
	if under >= workMax {
		return nil, &refusal{http.StatusTooManyRequests, fmt.Sprintf("%d pieces of work are under way, which is the most at a time; the page Work shows them.", under)}
	}
	s.all = append(s.all, w)
	if len(s.all) > workKept {
		over := slices.IndexFunc(s.all, func(w *work) bool { return w.now().Over() })
		s.all = slices.Delete(s.all, over, over+1) // there is one: workKept is more than workMax
	}
	// It does not block though mu is held: what is in the queue is under way, so there is room.
	s.queue <- w
	return w, nil
}

// get returns a piece of work; nil if it is not kept.
func (s *works) get(id string) *work {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.all, func(w *work) bool { return w.ID == id })
	if i < 0 {
		return nil
	}
	return s.all[i]
}

// list returns all, the newest first.
func (s *works) list() []*work {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(s.all)
	slices.Reverse(all)
	return all
}

// workPage is a piece of work as it is now.
type workPage struct {
	*work
	workState
}

func pageOf(w *work) workPage { return workPage{w, w.now()} }

// Took is how long it has taken.
func (p workPage) Took() time.Duration {
	if p.Over() {
		return p.Ended.Sub(p.Began).Round(time.Millisecond)
	}
	return time.Since(p.Began).Round(time.Second)
}

// Planned is the outcome of a plan; nil of other work.
func (p workPage) Planned() *planned { of, _ := p.Result.(*planned); return of }

// Applied is the outcome of an apply; nil of other work.
func (p workPage) Applied() *applied { of, _ := p.Result.(*applied); return of }

func (c *Console) works(x *exchange) error {
	page := []workPage{}
	for _, w := range c.work.list() {
		page = append(page, pageOf(w))
	}
	return c.show(x, "works", "Work", page, nil)
}

// begin begins a piece of work and leads to its page, after a moment in which it may be over.
func (c *Console) begin(x *exchange, title string, do func(ctx context.Context, tell tellFunc) (any, error)) error {
	w, err := c.work.begin(title, do)
	if err != nil {
		return err
	}
	c.log.Info("console: work was begun", "work", title, "from", x.r.RemoteAddr)
	patience := time.NewTimer(workPatience)
	defer patience.Stop()
	select {
	case <-w.ended:
	case <-patience.C:
	// Who began it may have gone. It goes on; the answer then reaches nobody.
	case <-x.r.Context().Done():
	}
	http.Redirect(x.w, x.r, "/work/"+w.ID, http.StatusSeeOther)
	return nil
}

// workOf returns the work that the path names.
func (c *Console) workOf(x *exchange) (*work, error) {
	w := c.work.get(x.r.PathValue("id"))
	if w == nil {
		return nil, &refusal{http.StatusNotFound, "This work is not known: the process has started again since, or much was begun after it."}
	}
	return w, nil
}

func (c *Console) showWork(x *exchange) error {
	w, err := c.workOf(x)
	if err != nil {
		return err
	}
	page := pageOf(w)
	if wantsJSON(x.r) {
		return c.workJSON(x, &page)
	}
	c.write(x.w, x.r, http.StatusOK, "work", &view{Title: w.Title, Role: x.role, Page: page, Live: !page.Over(), Still: page.Over()})
	return nil
}

// workJSON answers with what the command of the same work prints under -o json, or with the error
// that it ended with: what an apply has done before it stands on the page.
func (c *Console) workJSON(x *exchange, page *workPage) error {
	switch {
	case !page.Over():
		return &refusal{http.StatusConflict, "It is under way."}
	case page.Err != nil:
		return page.Err
	case page.Planned() != nil && page.Planned().Plan == nil:
		return writeJSON(x.w, page.Planned().Findings)
	case page.Planned() != nil:
		return writeJSON(x.w, page.Planned().Plan)
	case page.Compared() != nil:
		return writeJSON(x.w, page.Compared().Report)
	case page.Rewound() != nil:
		of := page.Rewound()
		return writeJSON(x.w, map[string]any{
			"kind": "pipeline", "database": of.Database, "name": of.Name, "action": "rewound", "to": of.To, "generation": of.Generation,
		})
	case page.LettersActed() != nil:
		of := page.LettersActed()
		said := map[string]any{"pipeline": of.Name, "action": of.Act, "count": of.Count}
		if of.Newer > 0 {
			said["newer"] = of.Newer
		}
		return writeJSON(x.w, said)
	case page.Applied() != nil:
		return writeJSON(x.w, map[string]any{"applied": page.Applied().Outcomes})
	}
	return errNoPage
}

// stopWork stops a piece of work, unless it is over.
func (c *Console) stopWork(x *exchange) error {
	w, err := c.workOf(x)
	if err != nil {
		return err
	}
	w.mu.Lock()
	stop := w.cancel
	w.mu.Unlock()
	// nil until run has taken it from the queue, which is a moment; the button is there then too.
	if stop != nil {
		stop(errWorkStopped)
	}
	http.Redirect(x.w, x.r, "/work/"+w.ID, http.StatusSeeOther)
	return nil
}
