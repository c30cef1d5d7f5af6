package processors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// Retrier is a Processor that can do again what it gave up. Retry is called
// between batches, never beside Process. Changes after the one that was given up
// have been processed: it must bring about what would be there if nothing had been
// given up. It may be called again after it has succeeded, in a later term too.
type Retrier interface {
	Retry(ctx context.Context, p *Parked) error
}

// Superseder is a Processor of which a later change of an item can make up for one that was
// given up: to process it sets all that follows from the item, whatever was there before.
// Where that is so the item is parked no more; the dead letter stays until somebody drops it,
// or tries it again, which does nothing then.
//
//	cascade.FanOut      a change of a copied field sets the field in every copy
//	cascade.Checker     a check compares all copies in the item with their sources
//	project.RowWriter   no: it writes the rows that differ before and after a change, and
//	                    none of the others
//	aggregate.Folder    no: it adds what differs; see Additive
//
// A change that was given up by a Processor that is none stays parked until a retry of it
// succeeds.
type Superseder interface {
	// Supersedes says whether p.Changes[i], which was processed, has made up for whatever of its
	// item was given up before. A change that the Processor passed over, as one that does not
	// concern it, has not. It is called between batches, and seldom: where something is parked.
	Supersedes(p *Part, i int) bool
}

// Additive is a Processor whose changes add up: one that was given up is missing
// until it is tried again, whatever comes after it.
type Additive interface {
	Retrier
	// RetryFinally tries like Retry, and if the change fails again as before, lets it go:
	// nobody adds it any more, also not when it comes again by the feed. Whoever asked
	// has to repair what is missing then; if that is not done, verify lists it.
	RetryFinally(ctx context.Context, p *Parked) error
}

// Parked is a change that was given up and is tried again.
type Parked struct {
	// Item is the item that was changed, as store.ItemRef prints, At where the change is.
	Item string
	At   feed.Position
	// Commit, Transaction and Change are as the log held them, without the other changes of
	// the commit. They are nil where the change is not to be had any more: Missing then says
	// why, and what to do. It is an ErrLost.
	Commit      *feed.Commit
	Transaction *feed.Transaction
	Change      *feed.Change
	Missing     error
	// Later calls each with the changes of the item behind At, in order, up to the end of the
	// log. It reads all of the log from there on. The error is ErrLost if the log does not
	// reach back so far, and else that of the reading, or of each.
	Later func(ctx context.Context, each func(*feed.Change) error) error
	// Progress says that the retry gets on. One that does not for half a minute is ended: Later says
	// so with each page, and a Retrier that waits for something else that takes its time does.
	Progress func()
	// Target is the item that refused its copy, as store.ItemRef prints; "" if the
	// change itself was given up.
	Target string
}

// retryPollInterval is how often a processor with parked items looks whether an operator asks
// to try again. The others may have dead letters of an earlier term, and look every
// retryPollIdleInterval.
const (
	retryPollInterval     = time.Second
	retryPollIdleInterval = 10 * time.Second
	// retryPollShare keeps the looking to a tenth of the time while it finds nothing, unless
	// retryPollIdleInterval is less.
	retryPollShare = 9
)

// retryMax bounds one retry, but for the reading of the log, and for what a sink takes to make rows
// durable: as long as pages of the log come, a retry goes on. A log that takes longer than any fixed
// time would else be read up to that time again and again, and the change would stay given up for ever.
const retryMax = 30 * time.Second

// withPatience returns a context that ends when progress was not called for a time; its cause says
// so. end frees it.
func withPatience(ctx context.Context, most time.Duration) (patient context.Context, progress, end func()) {
	patient, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(most, func() { cancel(fmt.Errorf("it made no progress for %s; try again", most)) })
	progress = func() { timer.Reset(most) }
	return patient, progress, func() { timer.Stop(); cancel(nil) }
}

// pollRetries looks for dead letters whose retry was asked for, until ctx ends, and hands them
// to the loop, which tries them between two batches. It is a goroutine of its own because it
// asks the store, for which the loop must not wait.
func (r *run) pollRetries(ctx context.Context) {
	ticker := time.NewTicker(retryPollInterval)
	defer ticker.Stop()
	looked, rest := time.Now(), time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		// To ask is a scan of the processor's dead letters. Most never have any, and a few have very
		// many.
		if since := time.Since(looked); since < rest || since < retryPollIdleInterval && !r.mayHaveDeadLetters() {
			continue
		}
		began := time.Now()
		asked, err := r.host.deadLetters.retriesAsked(ctx, r.Resource)
		looked = time.Now()
		if rest = 0; len(asked) == 0 {
			rest = min(retryPollShare*looked.Sub(began), retryPollIdleInterval)
		}
		if err != nil {
			if ctx.Err() == nil {
				r.term.Logger.DebugContext(ctx, "the dead letters cannot be read now", slog.Any("error", err))
			}
			continue
		}
		for i := range asked {
			select {
			case r.retries <- &asked[i]:
			case <-ctx.Done():
				return
			}
		}
	}
}

// mayHaveDeadLetters says whether the pipeline may have dead letters: it has written some,
// or has something parked, or a worker that was late has written one.
func (r *run) mayHaveDeadLetters() bool {
	state := r.proc.State()
	if state.Counts.DeadLetters > 0 || r.term.wrote.Load() {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.cp.Parked) > 0 || r.cp.Split != nil && r.cp.Split.Late
}

// retryParked tries what is asked for before anything is read, where so much is given up that the
// next change that fails ends the term again: a retry would never have its turn.
func (r *run) retryParked(ctx context.Context) error {
	r.mu.Lock()
	parked := len(r.cp.Parked)
	r.mu.Unlock()
	if parked <= r.host.cfg.ParkedMax {
		return nil
	}
	asked, err := r.host.deadLetters.retriesAsked(ctx, r.Resource)
	if err != nil {
		r.term.Logger.DebugContext(ctx, "the dead letters cannot be read now", slog.Any("error", err))
		return nil // the next term looks again
	}
	for i := range asked {
		if err := r.retryAsked(ctx, &asked[i], true); err != nil {
			return err
		}
	}
	return nil
}

// retryAsked tries a dead letter again. A failure is written to the dead letter; it never ends
// the term, unless the lease is lost. Where early is true nothing was read in this term: a
// projection's sink may be ahead of it, and what is refused for that stays asked for.
func (r *run) retryAsked(ctx context.Context, l *DeadLetter, early bool) error {
	bounded, progress, end := withPatience(ctx, retryMax)
	defer end()
	defer r.beat()()
	// The list was read before others of it were tried, which may have taken a while: this
	// one may have been answered, or dropped, since. A dropped one must not be tried.
	now, err := r.host.deadLetters.Get(bounded, l.Pipeline, l.ID)
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		r.term.Logger.DebugContext(ctx, "a dead letter cannot be read now", slog.String("deadLetter", l.ID), slog.Any("error", err))
		return nil // it is still asked for
	case err != nil || !now.Asked():
		return nil
	}
	l = now
	err = r.retryDeadLetter(bounded, l, progress)
	if cause := context.Cause(bounded); err != nil && cause != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	switch {
	case err == nil:
		err = r.finishRetry(ctx, l)
	case FailureOf(ctx, err) == Fenced:
		CountFenced(ctx, r.Resource)
		return errors.Join(ErrFenced, err)
	case ctx.Err() != nil, early && FailureOf(ctx, err) == Unavailable:
		return nil
	default:
		r.term.Logger.WarnContext(ctx, "a dead letter was tried again without success", slog.String("item", l.Item), slog.Any("error", err))
		err = r.host.deadLetters.retryFailed(ctx, l, err)
	}
	if err != nil && ctx.Err() == nil {
		r.term.Logger.WarnContext(ctx, "the outcome of a retry was not written; it is tried again", slog.Any("error", err))
	}
	r.looked = time.Time{} // it may have been the last one
	r.markDirty()
	r.heartbeat()
	return nil
}

// beat says that the processor is alive, until stop is called: the loop, which says so, waits for
// something that has a bound of its own.
func (r *run) beat() (stop func()) {
	done := make(chan struct{})
	go func() {
		ticker := time.NewTicker(heartbeatInterval)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				r.heartbeat()
			}
		}
	}()
	return func() { close(done) }
}

// finishRetry forgets a dead letter that was tried again with success. First comes the
// checkpoint that says so, then the dead letter goes:
//
//	crash before the checkpoint   parked, with its dead letter: it is tried once more
//	crash behind it               not parked, and the dead letter is there: the same
//
// The other way round a crash between the two would leave a parked change, or a parked job of
// the State, without the dead letter by which it can be tried.
func (r *run) finishRetry(ctx context.Context, l *DeadLetter) error {
	// What a target refused is parked nowhere. A change that is parked at its position waits for a
	// retry of its own: other targets may lack it.
	if l.Target == "" {
		r.forgetParked(l)
		if err := r.saveNow(ctx); err != nil {
			return fmt.Errorf("write the checkpoint: %w", err)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // the next term drops it
	}
	if err := r.host.deadLetters.dropTried(ctx, l); err != nil {
		return err
	}
	r.term.Logger.InfoContext(ctx, "a dead letter was tried again and is done", slog.String("item", l.Item), slog.String("deadLetter", l.ID))
	return nil
}

// retryDeadLetter processes the change of a dead letter again, as Retry or RetryFinally does. It
// calls progress when a page of the log has come, and so does the processor, see Parked.
func (r *run) retryDeadLetter(ctx context.Context, l *DeadLetter, progress func()) error {
	retrier, ok := r.proc.(Retrier)
	if !ok {
		return errors.New("a pipeline of this kind cannot try a change again; change the item, or rewind the pipeline")
	}
	p := &Parked{Item: l.Item, At: l.Position, Target: l.Target, Progress: func() { r.heartbeat(); progress() }}
	p.Later = func(ctx context.Context, each func(*feed.Change) error) error {
		return readLater(ctx, r.log, p, p.Progress, each)
	}
	if err := r.findChange(ctx, l, p); err != nil {
		return err
	}
	if additive, ok := r.proc.(Additive); ok && !l.FinalRetry.IsZero() {
		return additive.RetryFinally(ctx, p)
	}
	err := retrier.Retry(ctx, p)
	// No retry of it will ever succeed. The repair that asked finds what is missing by itself,
	// as soon as it is not called given up any more.
	if errors.Is(err, ErrLost) && !l.FinalRetry.IsZero() {
		return nil
	}
	return err
}

// findChange gives p the change of a dead letter: the one that it keeps, or, where it keeps
// none, the one in the log. The error says that neither could be read now.
func (r *run) findChange(ctx context.Context, l *DeadLetter, p *Parked) error {
	commit, err := r.host.deadLetters.ReadChange(ctx, l)
	if err == nil {
		p.Commit, p.Transaction, p.Change = commit, &commit.Transactions[0], &commit.Transactions[0].Changes[0]
		return nil
	}
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	commit, err = r.log.Read(ctx, l.Position.LSN)
	if err != nil && !errors.Is(err, feed.ErrNotFound) {
		return fmt.Errorf("read commit %s, in which the change lies: %w", l.Position.LSN, err)
	}
	if err == nil {
		index := int(l.Position.Index)
		for i := range commit.Transactions {
			t := &commit.Transactions[i]
			if index < len(t.Changes) {
				p.Transaction, p.Change = t, &t.Changes[index]
				p.Commit = commitWith(commit, t, p.Change)
				return nil
			}
			index -= len(t.Changes)
		}
	}
	p.Missing = Reject(fmt.Errorf("change %s: %w: "+
		"millrace repair of the pipeline sets right what it left undone; then drop the dead letter", l.Position, ErrLost))
	return nil
}

// forgetParked forgets that the change of l is parked.
func (r *run) forgetParked(l *DeadLetter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cp.Parked = slices.DeleteFunc(slices.Clone(r.cp.Parked), func(j Job) bool { return j.Position == l.Position })
}
