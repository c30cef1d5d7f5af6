package console

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// board is a letterBoard whose readings take their time, and count.
type board struct {
	*letterBoard
	takes    time.Duration
	fails    error
	readings int // of run's goroutine; others look between readings
}

func newBoard(t *testing.T, takes time.Duration) *board {
	t.Helper()
	b := &board{takes: takes}
	b.letterBoard = newLetterBoard(func(ctx context.Context) ([]letterList, error) {
		b.readings++
		if err := passed(ctx, b.takes); err != nil {
			return nil, err
		}
		return []letterList{{Count: b.readings}}, b.fails
	})
	ctx, end := context.WithCancel(t.Context())
	go b.run(ctx)
	t.Cleanup(func() {
		end()
		<-b.ended
		b.change()
		if _, err := b.newest(context.WithoutCancel(t.Context())); !errors.Is(err, errLettersEnd) {
			t.Errorf("behind the end: %v", err)
		}
	})
	return b
}

// newestFor asks for the dead letters, and waits for so long; 0 if they are not there.
func (b *board) newestFor(t *testing.T, d time.Duration) (reading int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	lists, err := b.newest(ctx)
	switch {
	case err == nil:
		return lists[0].Count
	case !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil:
		t.Errorf("they are not read: %v", err)
	}
	return 0
}

// A reading goes on for the others, and for who comes later, when the one who began it has gone.
func TestLetterBoard_AskersGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t, 40*time.Second)
		var got []int
		for range 5 {
			got = append(got, b.newestFor(t, 9*time.Second))
		}
		if got[0] != 0 || got[3] != 0 || got[4] != 1 || b.readings != 1 {
			t.Errorf("askers got the readings %v of %d", got, b.readings)
		}
	})
}

// A reading that takes too long ends, and the next one begins anew.
func TestLetterBoard_ReadingsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t, time.Hour)
		if _, err := b.newest(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a reading without an end: %v", err)
		}
		b.takes = time.Second
		if got := b.newestFor(t, pageTimeout); got != 2 {
			t.Errorf("the reading behind it is %d", got)
		}
	})
}

// Who has changed something sees it, whatever was read before or is being read.
func TestLetterBoard_ChangesAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t, 0)
		if first, again := b.newestFor(t, time.Second), b.newestFor(t, time.Second); first != 1 || again != 1 {
			t.Errorf("at once they are read anew: %d, %d", first, again)
		}
		b.change()
		if got := b.newestFor(t, time.Second); got != 2 {
			t.Errorf("behind a change there is the reading %d", got)
		}
		<-time.After(sampleIdle)
		b.takes = time.Second
		go func() { _, _ = b.newest(t.Context()) }()
		synctest.Wait() // the third reading is under way
		b.change()
		if got := b.newestFor(t, pageTimeout); got != 4 {
			t.Errorf("behind a change in a reading there is the reading %d", got)
		}
		b.change()
		b.fails = errors.New("away")
		if _, err := b.newest(t.Context()); !errors.Is(err, b.fails) {
			t.Errorf("a reading that fails: %v", err)
		}
		b.fails = nil
		if got := b.newestFor(t, pageTimeout); got != 6 {
			t.Errorf("behind a change and a failure there is the reading %d", got)
		}
	})
}
