package owner

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
)

// apply notes what one commit says, and applies it.
func (f *finishedFanOuts) apply(producer, source string, position feed.Position, done bool) {
	f.note(producer, producer+"\x00"+source, position, done)
	f.applyNotes()
}

func newFinished() *finishedFanOuts {
	return &finishedFanOuts{producers: map[string]*producerFanOuts{}}
}

// sourcesBelow returns the sources of the records that may be forgotten, in order.
func (f *finishedFanOuts) sourcesBelow(producer string, position feed.Position) []string {
	var sources []string
	for _, key := range f.below(producer, position) {
		_, source, _ := strings.Cut(key, "\x00")
		sources = append(sources, source)
	}
	slices.Sort(sources)
	return sources
}

func TestFinished_Below(t *testing.T) {
	t.Parallel()
	const now, former, other = "p/2/s/0", "p/1/s/0", "pq/1/s/0"
	f := newFinished()
	for i := range feed.LSN(8) {
		f.apply(now, fmt.Sprint(i), at(20-i), true)
	}
	f.apply(now, "0", at(30), true)           // a newer version of it is done
	f.apply(now, "1", at(30), false)          // of it a newer one goes on
	f.apply(now, "2", at(16), true)           // one that comes late
	f.apply(now, "3", feed.Position{}, false) // forgotten
	f.apply(former, "a", at(1), true)
	f.apply(other, "a", at(1), true)
	if got, want := f.sourcesBelow(now, at(17)), []string{"2", "4", "5", "6", "7"}; !slices.Equal(got, want) {
		t.Errorf("below 17 are %v, want %v", got, want)
	}
	if got := f.sourcesBelow(now, at(13)); got != nil {
		t.Errorf("below 13 are %v", got)
	}
	if got, want := f.sourcesBelow(now, at(31)), []string{"0", "2", "4", "5", "6", "7"}; !slices.Equal(got, want) {
		t.Errorf("below 31 are %v, want %v: what goes on is not forgotten", got, want)
	}
	for _, key := range f.below(now, at(17)) {
		f.note(now, key, feed.Position{}, false)
	}
	f.applyNotes()
	if got := f.sourcesBelow(now, at(17)); got != nil {
		t.Errorf("%v are there still", got)
	}
}

// BenchmarkFinished_Below begins a fan-out while one stands still, which keeps the records of all that
// were finished behind it. It must not cost a look at each of them.
func BenchmarkFinished_Below(b *testing.B) {
	const producer, records = "p/1/s/0", 100_000
	f := newFinished()
	for i := range feed.LSN(records) {
		f.note(producer, fmt.Sprint(producer, "\x00", i), at(10+i), true)
	}
	f.applyNotes()
	for b.Loop() {
		if keys := f.below(producer, at(10)); keys != nil {
			b.Fatalf("%d records are below the one that stands still", len(keys))
		}
	}
}
