package feed_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed"
)

// Owners take a partition from each other while replies are lost and contexts
// end too soon. Whatever was acknowledged is in the log, once and in the order
// of acknowledgement; what was refused for certain is not; and the log is one
// chain.
func TestI2_AcknowledgedOnceWhateverIsLost(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	const owners, each = 3, 80
	var mu sync.Mutex
	acknowledged := map[feed.CommitID]feed.LSN{}
	refused := map[feed.CommitID]bool{}
	var group sync.WaitGroup
	for owner := range owners {
		l := b.logWith(t, feed.LogConfig{AppendTimeout: 3 * time.Millisecond})
		r := rand.New(rand.NewPCG(7, uint64(owner)))
		l.Lose(func(*nats.Msg) bool { return r.IntN(4) == 0 })
		group.Go(func() {
			w := newWriter(t, l)
			for done := 0; done < each; {
				c, data := w.commit(1)
				lsn, err := appendImpatiently(t.Context(), l, w.last, c.ID, data, r)
				mu.Lock()
				switch {
				case err == nil:
					acknowledged[c.ID] = lsn
				case errors.Is(err, feed.ErrFenced):
					refused[c.ID] = true
				default:
					t.Errorf("owner %d: %v", owner, err)
				}
				mu.Unlock()
				if err == nil {
					w.last, w.sum = lsn, c.Sum
					done++
					continue
				}
				if t.Failed() || !w.takeOver() {
					return
				}
			}
		})
	}
	group.Wait()

	_, last, err := b.log(t).Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if last != owners*each {
		t.Errorf("log ends at %d, %d were acknowledged", last, owners*each)
	}
	tail := mustTail(t, b.log(t), 1, feed.TailOptions{})
	for lsn := feed.LSN(1); lsn <= last; lsn++ {
		c, err := tail.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if at, ok := acknowledged[c.ID]; !ok || at != lsn || refused[c.ID] {
			t.Errorf("commit at %d: acknowledged %v at %d, refused %v", lsn, ok, at, refused[c.ID])
		}
	}
}

// appendImpatiently gives each call little time, and calls again while the
// outcome is not known.
func appendImpatiently(ctx context.Context, l *feed.Log, after feed.LSN, id feed.CommitID, data []byte, r *rand.Rand) (feed.LSN, error) {
	for {
		short, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(4000))*time.Microsecond)
		lsn, err := l.Append(short, after, id, data)
		cancel()
		if err == nil || !errors.Is(err, feed.ErrUnknown) && !errors.Is(err, feed.ErrUnavailable) || ctx.Err() != nil {
			return lsn, err
		}
	}
}

// takeOver puts the writer behind the last commit of the log.
func (w *writer) takeOver() bool {
	ctx := w.t.Context()
	_, last, err := w.l.Bounds(ctx)
	if err != nil {
		w.t.Error(err)
		return false
	}
	c, err := w.l.Read(ctx, last)
	if err != nil {
		w.t.Error(err)
		return false
	}
	w.last, w.sum = last, c.Sum
	return true
}
