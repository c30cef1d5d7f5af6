package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/cmd/millrace/internal/deadletters"
	"github.com/millrace/millrace/pipelines/registry"
)

const (
	// lettersEvery is the least time between two readings of all dead letters.
	lettersEvery = time.Second
	// lettersTimeout bounds one reading. It is longer than a page waits: whoever comes then gets what an earlier one
	// has begun.
	lettersTimeout = 2 * pageTimeout
	// lettersPatience is how long the page of a pipeline waits for its dead letters, which are the least of it.
	lettersPatience = 5 * time.Second
	// lettersAsked bounds the pipelines whose dead letters are read at a time.
	lettersAsked = 4
)

// letterList are the dead letters of one pipeline.
type letterList struct {
	Database, Name string
	Letters        []deadletters.DeadLetter // the oldest
	Count          int                      // of the pipeline
	More           int                      // how many of them come behind Letters
	Next           string                   // where those begin
	Unread         string                   // why they could not be read
}

// letterBoard has the dead letters as they were read last, for all who look. To list them all of
// them are gone through, and a page that is live asks for them at each sample. A reading is of nobody who
// asked for it: run does it, so it goes on for the others when one of them has gone.
type letterBoard struct {
	read  func(ctx context.Context) ([]letterList, error)
	turn  chan struct{}       // who has put something into it goes through dead letters
	asked chan *letterReading // for run; one at most
	ended chan struct{}       // closed when run ends

	mu      sync.Mutex
	under   *letterReading // under way, or about to be; nil: none is
	last    *letterReading // the last one that came to something; nil: none has
	changes uint64         // how often somebody has changed something here
}

// letterReading is one reading of all dead letters. All but changes is there when done is closed.
type letterReading struct {
	changes uint64 // those that were made before it began
	done    chan struct{}
	lists   []letterList
	err     error
	at      time.Time
	took    time.Duration
}

// fresh tells whether there is no need to read again. As the sampler a reader takes a twentieth of the time at most, but is
// never slower than while nobody looks.
func (r *letterReading) fresh(changes uint64) bool {
	return r.changes >= changes && time.Since(r.at) < min(max(lettersEvery, 20*r.took), sampleIdle)
}

// newLetterBoard returns a board for what read reads.
func newLetterBoard(read func(ctx context.Context) ([]letterList, error)) *letterBoard {
	return &letterBoard{read: read, turn: make(chan struct{}, 1), asked: make(chan *letterReading, 1), ended: make(chan struct{})}
}

// run reads when somebody asks, until ctx ends.
func (b *letterBoard) run(ctx context.Context) {
	defer close(b.ended)
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-b.asked:
			b.fill(ctx, r)
		}
	}
}

// fill reads all dead letters.
func (b *letterBoard) fill(ctx context.Context, r *letterReading) {
	ctx, cancel := context.WithTimeout(ctx, lettersTimeout)
	defer cancel()
	began := time.Now()
	if r.err = b.take(ctx); r.err == nil {
		began = time.Now() // to wait for the turn takes nothing from others
		r.lists, r.err = b.read(ctx)
		b.leave()
	}
	r.at, r.took = time.Now(), time.Since(began)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.under = nil; r.err == nil {
		b.last = r
	}
	close(r.done)
}

// take waits for the turn, which leave gives to the next.
func (b *letterBoard) take(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *letterBoard) leave() { <-b.turn }

// change makes what was read so far old, because somebody has changed something through the console, and is to
// see it.
func (b *letterBoard) change() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes++
}

// newest returns the lists of those pipelines that have dead letters.
func (b *letterBoard) newest(ctx context.Context) ([]letterList, error) {
	b.mu.Lock()
	wanted := b.changes
	b.mu.Unlock()
	for {
		r := b.ask(wanted)
		select {
		case <-r.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-b.ended:
			return nil, errLettersEnd
		}
		// One that was under way before the last change may lack it: another one follows.
		if r.changes >= wanted {
			return r.lists, r.err
		}
	}
}

var errLettersEnd = errors.New("the console ends")

// ask returns the last reading if it will do, or the one that is under way, or begins one.
func (b *letterBoard) ask(changes uint64) *letterReading {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.under == nil && b.last != nil && b.last.fresh(changes) {
		return b.last
	}
	if b.under == nil {
		b.under = &letterReading{changes: b.changes, done: make(chan struct{})}
		b.asked <- b.under // there is room, because none is under way
	}
	return b.under
}

// readLetters lists the dead letters of all pipelines that have some, in the order of the pipelines. What cannot be read, or is
// not when the time is over, is named in its place.
func (c *Console) readLetters(ctx context.Context) ([]letterList, error) {
	records, err := c.cfg.Inspect.Registry.List(ctx)
	if err != nil {
		return nil, err
	}
	desk := deadletters.Open(&c.cfg.Inspect)
	lists := make([]letterList, len(records))
	var g errgroup.Group
	g.SetLimit(lettersAsked)
	for i := range records {
		g.Go(func() error {
			lists[i] = listLetters(ctx, desk, &records[i])
			return nil // the others are read all the same
		})
	}
	_ = g.Wait() // none returns an error
	return slices.DeleteFunc(lists, func(l letterList) bool { return len(l.Letters) == 0 && l.Unread == "" }), nil
}

// listLetters lists the dead letters of one pipeline. An error stands in the place of the list,
// so a partition that does not answer hides no other pipeline.
func listLetters(ctx context.Context, desk *deadletters.Desk, rec *registry.Record) letterList {
	list := letterList{Database: rec.Database, Name: rec.Name}
	page, err := desk.Page(ctx, rec, "", lettersShown)
	switch {
	case err == nil:
		list.take(page)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		list.Unread = fmt.Sprintf("they were not read within %s; millrace dead-letters list has no such bound", lettersTimeout)
	default:
		list.Unread = err.Error()
	}
	return list
}

// take takes what was read.
func (l *letterList) take(page *deadletters.Page) {
	l.Letters, l.Count, l.More, l.Next = page.Letters, page.Total, page.More, page.After
}

// show keeps so many.
func (l *letterList) show(most int) {
	n := min(len(l.Letters), most)
	l.More += len(l.Letters) - n
	l.Letters = slices.Clone(l.Letters[:n]) // the rest is not kept
}
