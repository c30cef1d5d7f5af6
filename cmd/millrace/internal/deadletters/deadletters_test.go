package deadletters

import (
	"testing"
	"time"

	"github.com/millrace/millrace/processors"
)

// A dead letter that was tried again, and given up for a new reason, is another than was shown.
func TestSeenOf(t *testing.T) {
	at := func(id string, time time.Time) Seen {
		return SeenOf([]DeadLetter{{DeadLetter: processors.DeadLetter{ID: id, Time: time}}})
	}
	now := time.Now()
	seen := at("a", now)
	if seen != at("a", now) || !seen.Until.Equal(now) {
		t.Error("what was shown is not what it is")
	}
	for _, other := range []Seen{at("b", now), at("a", now.Add(1)), SeenOf(nil)} {
		if other.Digest == seen.Digest {
			t.Errorf("%+v is taken for %+v", other, seen)
		}
	}
}
