package ingest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// Defaults and limits of Config.
const (
	writersDefault = 64
	// queueMax is how many records may wait for each writer.
	queueMax = 32
	// patienceDefault is for how long an item is tried while the store cannot
	// take it.
	patienceDefault = time.Minute
	saveEvery       = time.Second
)

// Config says how to import. Zero fields take their defaults.
type Config struct {
	// Write puts an item into the store, replacing one with its id. It is called
	// by many goroutines.
	Write func(ctx context.Context, body []byte) error
	// Writers is how many items are under way at a time. Default 64.
	Writers int
	// Patience is for how long an item is tried while the store is unavailable.
	// Default 1m; then the import stops and can be gone on with.
	Patience time.Duration
	// Save is called now and then with the state, and at the end. May be nil.
	Save func(*State) error
	// Rejected is called with each rejection, in no order, by one goroutine at a
	// time. May be nil.
	Rejected func(Rejection)
	// Interrupt is called when Run ends what it has begun, with the reason if that is before the
	// end of the input. A read of the input that waits for more then returns. May be nil: then
	// Run may wait for it.
	Interrupt func(error)
	// Progress is called with the number of records that are finished, by one
	// goroutine at a time. It must not block. May be nil.
	Progress func(done int64)
}

// ErrChanged says that the records which an earlier run has finished are not those that the
// input has now.
var ErrChanged = errors.New("the input is not the one that was imported before")

// Run imports the records of r behind state.Done. It returns nil when all were
// written or rejected; otherwise it stopped, and state says where to go on. After ErrChanged
// nothing was written.
func Run(ctx context.Context, r *Reader, state *State, cfg Config) error {
	if cfg.Writers <= 0 {
		cfg.Writers = writersDefault
	}
	if cfg.Patience <= 0 {
		cfg.Patience = patienceDefault
	}
	im := &importer{cfg: cfg, state: state, finished: map[int64]finished{}, saved: time.Now()}
	if err := skip(r, state); err != nil {
		return err
	}
	var unread error // why the file could not be read to its end; what was read is written
	g, ctx := errgroup.WithContext(ctx)
	if cfg.Interrupt != nil {
		defer context.AfterFunc(ctx, func() { cfg.Interrupt(context.Cause(ctx)) })()
	}
	queues := make([]chan Record, cfg.Writers)
	for i := range queues {
		queues[i] = make(chan Record, queueMax)
		g.Go(func() error { return im.writeQueue(ctx, queues[i]) })
	}
	g.Go(func() error {
		defer func() {
			for _, q := range queues {
				close(q)
			}
		}()
		// A file that ends in the middle is no error of the group: that would end ctx, and with it
		// the writers of what was read before.
		unread = im.distribute(ctx, r, queues)
		return context.Cause(ctx)
	})
	err := g.Wait()
	if err == nil {
		err = unread
	}
	return errors.Join(err, im.save(true))
}

// skip passes over the records that are finished.
func skip(r *Reader, state *State) error {
	// Records are counted, and the file is read again from its beginning: a place in it would not
	// help where it is compressed, and a record is not a line in an array. So what is skipped
	// can be compared, too.
	seen := &State{}
	for range state.Done {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return ErrChanged
		}
		if err != nil {
			return fmt.Errorf("skip what was imported before: %w", err)
		}
		seen.add(sha256.Sum256(rec.Body))
	}
	if state.Sum != "" && state.Sum != seen.Sum {
		return ErrChanged
	}
	// A state of an earlier release gets the digest from here on.
	state.Sum = seen.Sum
	return nil
}

// importer carries out one import.
type importer struct {
	cfg Config

	mu       sync.Mutex // guards what follows
	state    *State
	finished map[int64]finished // finished records behind state.Done
	saved    time.Time
}

// finished is a record that was written or rejected.
type finished struct {
	rejection Rejection // no reason: written
	sum       digest
}

var seed = maphash.MakeSeed()

// distribute hands the records out. Those with one id go to one writer, so that the
// last of them wins.
func (im *importer) distribute(ctx context.Context, r *Reader, queues []chan Record) error {
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		n := uint64(rec.Number)
		if id, ok := document.Get(rec.Body, idPath); ok {
			n = maphash.Bytes(seed, id)
		}
		select {
		case queues[n%uint64(len(queues))] <- rec:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

var idPath = document.Path{{Name: "id"}}

// writeQueue writes the records of one queue.
func (im *importer) writeQueue(ctx context.Context, records <-chan Record) error {
	for rec := range records {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		reason := ""
		if err := im.writeRecord(ctx, rec); err != nil {
			reason = rejection(err)
			if reason == "" {
				return fmt.Errorf("line %d: %w", rec.Line, err)
			}
		}
		if err := im.noteFinished(rec, reason); err != nil {
			return err
		}
	}
	return nil
}

// writeRecord writes one record.
func (im *importer) writeRecord(ctx context.Context, rec Record) error {
	if rec.Err != nil {
		return &notAnItem{rec.Err}
	}
	if err := document.Check(rec.Body); err != nil {
		return &notAnItem{err}
	}
	return Retry(ctx, im.cfg.Patience, func() error { return im.cfg.Write(ctx, rec.Body) })
}

// Retry carries out a write that does the same when it is done twice, as an upsert: again
// while the store cannot take it or its outcome is unknown, for as long as patience and
// ctx last. It returns what the write returned last.
func Retry(ctx context.Context, patience time.Duration, write func() error) error {
	pauses := backoff.NewExponentialBackOff(backoff.WithInitialInterval(5*time.Millisecond),
		backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(patience))
	return backoff.Retry(func() error {
		err := write()
		if err == nil || transient(err) && ctx.Err() == nil {
			return err
		}
		return backoff.Permanent(err)
	}, backoff.WithContext(pauses, ctx))
}

// notAnItem is a record that is no item.
type notAnItem struct{ error }

// transient says whether a write may succeed later.
func transient(err error) bool {
	refusal, ok := errors.AsType[*store.Error](err)
	switch {
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrUnknown), errors.Is(err, store.ErrDiskFull),
		errors.Is(err, store.ErrNotOwner):
		return true
	case ok:
		return refusal.Status == store.StatusTooManyRequests || refusal.RetryAfter > 0
	}
	return false
}

// rejection returns why an item was refused for good, "" if it was not. What is refused for
// another reason than the item, such as a missing right, would be refused with each: it ends
// the import, which goes on from there once it is mended.
func rejection(err error) string {
	if b, ok := errors.AsType[*notAnItem](err); ok {
		return b.Error()
	}
	refusal, ok := errors.AsType[*store.Error](err)
	if !ok || transient(err) {
		return ""
	}
	switch refusal.Status { //nolint:exhaustive // the others are not about the item
	case store.StatusBadRequest, store.StatusConflict, store.StatusPreconditionFailed, store.StatusTooLarge:
		return refusal.Error()
	}
	return ""
}

// noteFinished notes that a record was written, or rejected for a reason. The state counts
// the records up to the first that is under way; those finished behind it are written
// again after a stop:
//
//	finished now    finished before    Done
//	1               -                  1
//	3               -                  1       2 is under way: after a stop, 2 and 3 again
//	2               3                  3
func (im *importer) noteFinished(rec Record, reason string) error {
	sum := sha256.Sum256(rec.Body)
	im.mu.Lock()
	defer im.mu.Unlock()
	if reason != "" && im.cfg.Rejected != nil {
		im.cfg.Rejected(Rejection{rec.Line, reason})
	}
	im.finished[rec.Number] = finished{Rejection{rec.Line, reason}, sum}
	for {
		f, ok := im.finished[im.state.Done+1]
		if !ok {
			break
		}
		im.state.Done++
		im.state.add(f.sum)
		delete(im.finished, im.state.Done)
		r := f.rejection
		if r.Reason == "" {
			im.state.Written++
			continue
		}
		im.state.Rejected++
		if len(im.state.Rejections) < rejectionsMax {
			im.state.Rejections = append(im.state.Rejections, r)
		}
	}
	if im.cfg.Progress != nil {
		im.cfg.Progress(im.state.Done + int64(len(im.finished)))
	}
	return im.saveLocked(false)
}

func (im *importer) save(now bool) error {
	im.mu.Lock()
	defer im.mu.Unlock()
	return im.saveLocked(now)
}

// saveLocked saves the state if it is time.
func (im *importer) saveLocked(now bool) error {
	if im.cfg.Save == nil || !now && time.Since(im.saved) < saveEvery {
		return nil
	}
	im.saved = time.Now()
	return im.cfg.Save(im.state)
}
