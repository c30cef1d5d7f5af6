package parquetsink_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
)

// A flush is about what had been taken when it was called: it ends though its writer
// is written to without end, and several at once do.
func TestFlush_BesideWrites(t *testing.T) {
	s := open(t, newMemory(), quick())
	w := openWriter(t, s, 0, 1)
	var taken atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	next := func() {
		lsn := int(taken.Load()) + 1
		writeRows(t, w, lsn, orderRow(fmt.Sprintf(`customer/["a"]/o%d`, lsn), fmt.Sprint("o", lsn), int64(lsn)))
		taken.Store(int64(lsn))
	}
	next()
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Microsecond):
				next()
			}
		}
	}()
	flushed := make(chan string, 10)
	for range 2 {
		go func() {
			var last feed.Position
			for range 5 {
				before := at(int(taken.Load()))
				position, err := w.Flush(t.Context())
				problem := ""
				if err != nil || position.Before(before) || position.Before(last) {
					problem = fmt.Sprintf("a flush returned %s, %v; %s had been taken, and the one before returned %s", position, err, before, last)
				}
				last = position
				flushed <- problem
			}
		}()
	}
	deadline := time.After(time.Minute)
	for range 10 {
		select {
		case problem := <-flushed:
			if problem != "" {
				t.Error(problem)
			}
		case <-deadline:
			t.Fatal("a flush does not end while its writer is written to")
		}
	}
	close(stop)
	<-stopped
	position, err := w.Flush(t.Context())
	must(t, err)
	if got := len(ids(t, s)); got != int(taken.Load()) || position != at(got) {
		t.Errorf("%d rows are there up to %s, %d were written", got, position, taken.Load())
	}
}
