package backup_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/store/backup"
	"github.com/millrace/millrace/store/snapshot"
)

func TestWholeUntil(t *testing.T) {
	t.Parallel()
	const minute = 60_000
	for name, c := range map[string]struct{ last, next, seen, want int64 }{
		"the next commit is later":                        {minute, minute + 5, minute + 4, minute + 4},
		"the next commit is of the same millisecond":      {minute, minute, minute, minute - 1},
		"the next commit is of long after":                {minute, 9 * minute, 2 * minute, 9*minute - 1},
		"nothing follows yet":                             {minute, 0, minute + 50, minute - 1},
		"one may be on its way while a lease lives":       {minute, 0, minute + 30_000, minute - 1},
		"and by a clock that is behind":                   {minute, 0, 2*minute - 1, minute - 1},
		"nothing has followed for long":                   {minute, 0, 3 * minute, 2 * minute},
		"the server's clock is behind that of the writer": {minute, 0, minute - 3_600_000, minute - 1},
		"what follows cannot be read":                     {minute, 0, 0, minute - 1},
	} {
		if got := backup.WholeUntil(c.last, c.next, c.seen); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestCreate_HoldsAllUntilItSays: of a store that is written to meanwhile a backup has each commit of a time at or before
// the one that it says.
func TestCreate_HoldsAllUntilItSays(t *testing.T) {
	t.Parallel()
	from := storetest.Start(t)
	c := from.Container(t, "things", spec)
	write(t, c, 0, 20, 1)
	ctx, end := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	defer func() { end(); writing.Wait() }()
	for w := range 4 {
		writing.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_, err := c.Upsert(ctx, fmt.Appendf(nil, `{"id":"w%d-%d","k":"k%d","u":"%d-%d"}`, w, i%50, i%7, w, i))
				if err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	place := snapshot.Directory(t.TempDir())
	for range 10 {
		b := create(t, from, place)
		_, until, err := b.Span()
		must(t, err)
		if until.After(b.Began) {
			t.Errorf("it holds all until %s, and began to look at %s", until, b.Began)
		}
		for i := range b.Partitions {
			p := &b.Partitions[i]
			if at, next := time.UnixMilli(p.Until), nextTime(t, from, p); !next.IsZero() && !next.After(at) {
				t.Errorf("partition %s is said to be whole until %s, and LSN %d of %s is not in it", p.Partition, at, p.Last+1, next)
			}
		}
	}
}

// nextTime is the time of the first commit that a backup lacks of a partition; zero if it has all.
func nextTime(t testing.TB, from *storetest.Store, p *backup.Partition) time.Time {
	t.Helper()
	id, err := feed.ParsePartition(p.Partition)
	must(t, err)
	log, err := feed.OpenLog(t.Context(), from.JS, id, feed.LogConfig{})
	must(t, err)
	defer log.Close()
	next, err := log.Read(t.Context(), p.Last+1)
	if errors.Is(err, feed.ErrNotFound) {
		return time.Time{}
	}
	must(t, err)
	return time.UnixMilli(next.Time)
}
