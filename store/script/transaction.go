package script

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/rid"
)

// Place is the logical partition that scripts work on.
type Place struct {
	// Container has its owners answer reads; a standby's would be of before.
	Container *store.Container
	Key       feed.PartitionKey
	RID       rid.Container
	// SelfLink and AltLink are the links to the container, by resource ids and by names.
	SelfLink, AltLink string
	// Strip removes from an item what the store adds.
	Strip func([]byte) []byte
	// NewKey makes the key by which an owner recognizes a commit that is sent again.
	NewKey func() string
}

// Committed is what a transaction has written.
type Committed struct {
	Partition feed.Partition
	LSN       feed.LSN
	Items     []store.Item // without a Body: it is deleted
}

// ErrConflict says that others wrote to the logical partition each time that a script ran.
var ErrConflict = errors.New("others wrote to the logical partition each time that the script ran; try again")

// errChanged says that a run has to be done again.
var errChanged = errors.New("the logical partition has changed")

// Transaction is what one run reads and writes; see the package's documentation. One goroutine uses it.
type Transaction struct {
	place     *Place
	partition feed.Partition
	since     feed.LSN  // all of it was applied before the first read
	until     time.Time // from when on nothing more is accepted

	items  map[string]*item
	order  []string              // ids that were written, in the order of their last writes
	writes uint32                // that were kept
	bytes  int                   // of what will be written
	ids    map[rid.Inside]string // of items that were seen
	failed error                 // of a request that tells nothing about items: the run is done for
}

// item is what a run knows of an item.
type item struct {
	was     store.ETag // at the owner; zero: it was not there
	now     *store.Item
	written bool
}

// begin begins a transaction.
func begin(ctx context.Context, place *Place, accepts time.Duration) (*Transaction, error) {
	t := &Transaction{
		place: place, partition: place.Container.PartitionFor(place.Key), until: time.Now().Add(accepts),
		items: map[string]*item{}, ids: map[rid.Inside]string{},
	}
	resp, err := t.do(ctx, &store.Transact{Key: place.Key, Guarded: true})
	if err != nil {
		return nil, err
	}
	if t.since = resp.Transact.LSN; t.since == 0 {
		return nil, fmt.Errorf("%w: the owner tells no LSN to begin with", store.ErrUnavailable)
	}
	return t, nil
}

func (t *Transaction) do(ctx context.Context, r *store.Transact) (*store.Response, error) {
	return t.place.Container.Do(ctx, &store.Request{Partition: t.partition, Transact: r})
}

const (
	// retryPause is the pause before the first new run; it doubles up to retryPauseMax.
	retryPause    = 2 * time.Millisecond
	retryPauseMax = 100 * time.Millisecond
	// accepting is the share of a script's time after which it is told that nothing more is accepted.
	accepting = 0.8
)

// Atomically calls run with a transaction, and commits what it wrote. While others write to the logical partition meanwhile
// it is called again, with a new transaction, until ctx ends: ErrConflict. An error of run is returned only if nobody has written.
// limit is how long a run may take.
func Atomically(ctx context.Context, place *Place, limit time.Duration, run func(*Transaction) error) (*Committed, error) {
	pause := retryPause
	for {
		result, err := once(ctx, place, limit, run)
		if !errors.Is(err, errChanged) {
			return result, err
		}
		select {
		case <-ctx.Done():
			return nil, ErrConflict
		case <-time.After(pause/2 + jitter(pause)):
			pause = min(2*pause, retryPauseMax)
		}
		if ends, ok := ctx.Deadline(); ok && time.Until(ends) < grace {
			return nil, ErrConflict // one more would be cut off in the middle
		}
	}
}

// jitter returns a random part of d.
func jitter(d time.Duration) time.Duration {
	var b [1]byte
	_, _ = rand.Read(b[:]) // it never fails
	return d * time.Duration(b[0]) / 256
}

func once(ctx context.Context, place *Place, limit time.Duration, run func(*Transaction) error) (*Committed, error) {
	t, err := begin(ctx, place, time.Duration(accepting*float64(limit)))
	if err != nil {
		return nil, err
	}
	err = run(t)
	if t.failed != nil {
		return nil, t.failed
	}
	if err == nil {
		return t.commit(ctx)
	}
	// What it says may rest on half of what another wrote.
	if _, changed := t.do(ctx, &store.Transact{Key: place.Key, Guarded: true, Since: t.since}); changed != nil {
		return nil, guardRefused(changed)
	}
	return nil, err
}

// guardRefused returns errChanged for the refusal of a guard.
func guardRefused(err error) error {
	if errors.Is(err, store.ErrPreconditionFailed) {
		return errChanged
	}
	return err
}

// commit writes what the run wrote, if nobody has written since.
func (t *Transaction) commit(ctx context.Context) (*Committed, error) {
	r := &store.Transact{Key: t.place.Key, Guarded: true, Since: t.since, Batch: true}
	// Those that go first, so that what they held, such as a unique key, is free.
	for _, gone := range []bool{true, false} {
		for _, id := range t.order {
			i := t.items[id]
			op := store.Operation{Kind: store.OpReplace, ID: id}
			switch {
			case (i.now == nil) != gone, i.now == nil && i.was == (store.ETag{}):
				continue
			case i.now == nil:
				op.Kind = store.OpDelete
			case i.was == (store.ETag{}):
				op.Kind = store.OpCreate
			}
			if i.now != nil {
				op.Body = i.now.Body
			}
			r.Ops = append(r.Ops, op)
		}
	}
	if len(r.Ops) > 0 {
		r.RemoteKey = t.place.NewKey()
	}
	resp, err := t.do(ctx, r)
	if err != nil {
		return nil, guardRefused(err)
	}
	result := resp.Transact
	if !result.Failed {
		done := &Committed{Partition: t.partition, LSN: result.LSN, Items: make([]store.Item, len(r.Ops))}
		for i := range r.Ops {
			done.Items[i] = result.Results[i].Item
			if r.Ops[i].Kind != store.OpDelete && len(done.Items[i].Body) == 0 { // the answer to a commit that was sent again
				done.Items[i].Body = r.Ops[i].Body
			}
		}
		return done, nil
	}
	for i, res := range result.Results {
		switch res.Status {
		case store.StatusFailedDependency:
		case store.StatusNotFound:
			return nil, errChanged // it has expired, of which no commit tells
		default:
			return nil, &store.Error{Status: res.Status, Message: fmt.Sprintf("item %q: %s", r.Ops[i].ID, res.Message), LSN: result.LSN}
		}
	}
	return nil, fmt.Errorf("%w: a batch failed for no reason", store.ErrUnavailable)
}
