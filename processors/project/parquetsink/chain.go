package parquetsink

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"time"
)

// Limits of committing.
const (
	// commitAttemptsMax is how often a commit that loses to others is begun anew
	// before its caller is told.
	commitAttemptsMax = 50
	commitPause       = 20 * time.Millisecond
	// manifestsKept is how many manifests stay at least, and at most twice as many.
	manifestsKept = 16
)

// chain is the sequence of manifests in a store. It is used by one goroutine at a
// time.
type chain struct {
	store ObjectStore
	// last is the newest manifest that is known, of number zero before the first.
	last *manifest
	// proven is set when the store has refused to make a manifest twice.
	proven bool
	// gone are removed files that need not be listed any more.
	gone map[string]bool
}

func newChain(store ObjectStore) *chain {
	return &chain{store: store, last: &manifest{}, gone: map[string]bool{}}
}

// refresh sees to it that last is the newest manifest.
func (c *chain) refresh(ctx context.Context) error {
	after := ""
	if c.last.Number > 0 {
		after = manifestName(c.last.Number - 1)
	}
	numbers, err := c.numbers(ctx, after)
	if err != nil {
		return err
	}
	if len(numbers) == 0 && c.last.Number > 0 {
		// What was there is not. It has been emptied or restored older.
		if numbers, err = c.numbers(ctx, ""); err != nil {
			return err
		}
	}
	if len(numbers) == 0 {
		c.last = &manifest{}
		return nil
	}
	newest := slices.Max(numbers)
	if newest == c.last.Number {
		return nil
	}
	m, err := c.load(ctx, newest)
	if err != nil {
		return err
	}
	c.last = m
	return nil
}

// numbers lists the manifests after a name.
func (c *chain) numbers(ctx context.Context, after string) (numbers []uint64, err error) {
	for o, err := range c.store.List(ctx, manifestFolder, after) {
		if err != nil {
			return nil, unreachable("list the manifests", err)
		}
		if number, ok := manifestNumber(o.Name); ok {
			numbers = append(numbers, number)
		}
	}
	return numbers, nil
}

func (c *chain) load(ctx context.Context, number uint64) (*manifest, error) {
	name := manifestName(number)
	data, err := c.store.Get(ctx, name)
	if err != nil {
		return nil, unreachable("read "+name, err)
	}
	m, err := decodeManifest(data)
	if err != nil {
		return nil, unreachable(name, err)
	}
	if m.Number != number {
		return nil, unreachable(name, fmt.Errorf("%w: it says that it is number %d", errManifest, m.Number))
	}
	return m, nil
}

// change makes the next manifest from the newest one, of which it gets a copy; nil
// means that nothing is to change. It is called again when another commit has come
// first.
type change func(ctx context.Context, base *manifest, attempt int) (*manifest, error)

// advance commits a change: it makes the manifest with the next number, which
// succeeds for one of those who try. It returns nil if nothing was to change. After
// an error the change may have been committed or not.
func (c *chain) advance(ctx context.Context, f change) (*manifest, error) {
	for attempt := range commitAttemptsMax {
		if err := c.refresh(ctx); err != nil {
			return nil, err
		}
		next, err := f(ctx, c.last, attempt)
		if errors.Is(err, errGone) && c.stale(ctx) {
			continue
		}
		if next == nil || err != nil {
			return nil, err
		}
		won, err := c.commit(ctx, next)
		if err != nil || won {
			return next, err
		}
		meters.conflicts.Add(ctx, 1)
		if err := pause(ctx, time.Duration(attempt+1)*commitPause); err != nil {
			return nil, err
		}
	}
	return nil, unreachable("commit", fmt.Errorf("others were faster %d times in a row", commitAttemptsMax))
}

// stale says whether there is a newer manifest than last.
func (c *chain) stale(ctx context.Context) bool {
	was := c.last.Number
	return c.refresh(ctx) == nil && c.last.Number != was
}

// commit makes next the newest manifest, unless there is one of its number.
func (c *chain) commit(ctx context.Context, next *manifest) (won bool, err error) {
	next.Number, next.Previous, next.Commit = c.last.Number+1, c.last.Commit, rand.Text()
	next.Time = time.Now().UTC().Truncate(time.Millisecond)
	if next.Time.Before(c.last.Time) {
		next.Time = c.last.Time
	}
	next.Removed = slices.DeleteFunc(next.Removed, func(r removed) bool { return c.gone[r.Path] })
	data, err := encodeManifest(next)
	if err != nil {
		return false, err
	}
	name := manifestName(next.Number)
	err = c.store.PutExclusive(ctx, name, data)
	if exists(err) {
		// It may be this one, sent twice by a client that did not hear the answer.
		if mine, err := c.made(ctx, next); !mine || err != nil {
			return false, err
		}
	} else if err != nil {
		return false, unreachable("write "+name, err)
	}
	if won, err = c.holds(ctx, next); !won || err != nil {
		return false, err
	}
	if err := c.prove(ctx, name, data); err != nil {
		return false, err
	}
	c.last = next
	clear(c.gone)
	return true, nil
}

// made says whether the manifest of a number is the one given.
func (c *chain) made(ctx context.Context, m *manifest) (bool, error) {
	there, err := c.load(ctx, m.Number)
	if missing(err) {
		return false, nil
	}
	return err == nil && there.Commit == m.Commit, err
}

// holds says whether a manifest that was made is one of the chain. It is not if its
// number had been used and the manifest removed since, by others who have gone on
// while this process stood still: then there are later ones, and none follows on it.
func (c *chain) holds(ctx context.Context, m *manifest) (bool, error) {
	later, err := c.numbers(ctx, manifestName(m.Number))
	if err != nil || len(later) == 0 {
		return err == nil, err
	}
	if !slices.Contains(later, m.Number+1) {
		return false, nil
	}
	follower, err := c.load(ctx, m.Number+1)
	if err != nil {
		return false, err
	}
	return follower.Previous == m.Commit, nil
}

// prove finds out once whether the store refuses to make an object twice. One that
// does not would let two workers overwrite each other's commits.
func (c *chain) prove(ctx context.Context, name string, data []byte) error {
	if c.proven {
		return nil
	}
	err := c.store.PutExclusive(ctx, name, data)
	switch {
	case exists(err):
		c.proven = true
		return nil
	case err != nil:
		return unreachable("write "+name, err)
	}
	return unreachable("write "+name, errors.New("the server makes an object that is there although it was asked not to (If-None-Match: *); this store cannot hold a projection"))
}

// pause waits for about d.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d/2 + mathrand.N(d))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
