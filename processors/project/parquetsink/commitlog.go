package parquetsink

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/store/pace"
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

// commitLog is the sequence of manifests in a store, each of which follows on the one
// before. Whoever makes the object with the next number has committed:
//
//	process 1             process 2             store
//	                                            41
//	reads 41, writes 42                         41 42
//	                      reads 41, writes 42   refused: 42 is there
//	                      reads 42, writes 43   41 42 43
//
// It is used by one goroutine at a time.
type commitLog struct {
	store ObjectStore
	// last is the newest manifest that is known, of number zero before the first.
	last *manifest
	// others counts the times that last was found to be another process's.
	others uint64
	// proven is set when the store has refused to make a manifest twice.
	proven bool
	// deleted are files that this process has deleted from the store, so that the next
	// manifest need not list them as removed.
	deleted map[string]bool
}

func newCommitLog(store ObjectStore) *commitLog {
	return &commitLog{store: store, last: &manifest{}, deleted: map[string]bool{}}
}

// refresh sets last to the newest manifest.
func (c *commitLog) refresh(ctx context.Context) error {
	// List from the one before last, so that the list is empty only if last is gone,
	// not also if nothing has come since.
	after := ""
	if c.last.Number > 0 {
		after = manifestName(c.last.Number - 1)
	}
	numbers, err := c.listNumbers(ctx, after)
	if err != nil {
		return err
	}
	if len(numbers) == 0 && c.last.Number > 0 {
		// The store has been emptied or restored older.
		if numbers, err = c.listNumbers(ctx, ""); err != nil {
			return err
		}
	}
	if len(numbers) == 0 {
		c.last = &manifest{}
		c.others++
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
	c.others++
	return nil
}

// listNumbers lists the manifests after a name.
func (c *commitLog) listNumbers(ctx context.Context, after string) (numbers []uint64, err error) {
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

func (c *commitLog) load(ctx context.Context, number uint64) (*manifest, error) {
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

// change makes the next manifest from base, the newest one, which it must not change;
// nil means that nothing is to change. It is called again, with the next attempt, when
// another process has committed first.
type change func(ctx context.Context, base *manifest, attempt int) (*manifest, error)

// advance commits a change: it makes the manifest with the next number, which
// succeeds for one of those who try. It returns nil if nothing was to change. After
// an error the change may have been committed or not.
func (c *commitLog) advance(ctx context.Context, f change) (*manifest, error) {
	for attempt := range commitAttemptsMax {
		if err := c.refresh(ctx); err != nil {
			return nil, err
		}
		// Nothing is locked while the change is made, which may take seconds. If another
		// process commits meanwhile, its manifest has the next number, and this attempt is
		// lost.
		next, err := f(ctx, c.last, attempt)
		if errors.Is(err, errGone) && c.isStale(ctx) {
			// A live file was missing, because the manifest that names it is superseded
			// and its grace is over. The newer one names what took its place.
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
		if err := pace.Pause(ctx, about(time.Duration(attempt+1)*commitPause)); err != nil {
			return nil, err
		}
	}
	return nil, unreachable("commit", fmt.Errorf("others were faster %d times in a row", commitAttemptsMax))
}

// isStale refreshes, and says whether there was a newer manifest than last.
func (c *commitLog) isStale(ctx context.Context) bool {
	was := c.last.Number
	return c.refresh(ctx) == nil && c.last.Number != was
}

// commit makes next the newest manifest, unless there is one of its number.
func (c *commitLog) commit(ctx context.Context, next *manifest) (won bool, err error) {
	// The random name of a commit tells our manifest from another one with its number.
	next.Number, next.Previous, next.Commit = c.last.Number+1, c.last.Commit, rand.Text()
	next.Time = time.Now().UTC().Truncate(time.Millisecond)
	if next.Time.Before(c.last.Time) { // another committer's clock is ahead of ours
		next.Time = c.last.Time
	}
	next.Removed = slices.DeleteFunc(next.Removed, func(r removed) bool { return c.deleted[r.Path] })
	data, err := encodeManifest(next)
	if err != nil {
		return false, err
	}
	name := manifestName(next.Number)
	err = c.store.PutExclusive(ctx, name, data)
	if exists(err) {
		// It may be this one, sent twice by a client that did not hear the answer.
		if mine, err := c.isOurs(ctx, next); !mine || err != nil {
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
	clear(c.deleted)
	return true, nil
}

// isOurs says whether the manifest that is stored under the number of m is m.
func (c *commitLog) isOurs(ctx context.Context, m *manifest) (bool, error) {
	there, err := c.load(ctx, m.Number)
	if missing(err) {
		return false, nil
	}
	return err == nil && there.Commit == m.Commit, err
}

// holds says whether a manifest that was made is part of the log. It is not if its
// number had been used and the manifest removed since, by others who have gone on
// while this process stood still: then there are later ones, and none follows on it.
//
//	a process stops before it writes 42; others commit 42 to 80 and remove all up to 64
//	it wakes up and writes 42       succeeds: there is no 42
//	later ones are 65 to 80         43 is not among them: this 42 does not count
//
// Exclusive creation alone would have lost that commit, and told its writer that it is
// durable.
func (c *commitLog) holds(ctx context.Context, m *manifest) (bool, error) {
	later, err := c.listNumbers(ctx, manifestName(m.Number))
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
func (c *commitLog) prove(ctx context.Context, name string, data []byte) error {
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

// about returns between half of d and one and a half, so that those who lost do not
// meet again.
func about(d time.Duration) time.Duration { return d/2 + mathrand.N(d) }
