package deadletters

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/pipelines/registry"
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

// desk is a Desk of a pipeline with n dead letters, which are given up a second after another.
type desk struct {
	*Desk
	t       *testing.T
	rec     *registry.Record
	written *processors.DeadLetters
	began   time.Time
}

func newDesk(t *testing.T, n int) *desk {
	t.Helper()
	s := storetest.Start(t)
	letters, err := processors.OpenDeadLetters(t.Context(), s.Client)
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{
		Desk: Open(&inspect.Config{JetStream: s.JS, Client: s.Client}), t: t, rec: &registry.Record{ID: "names-1", Database: "default", Name: "names"},
		written: letters, began: time.Now().Add(-time.Hour),
	}
	for i := range n {
		d.giveUp(i, d.began.Add(time.Duration(i)*time.Second), "for the first time")
	}
	return d
}

// giveUp gives up the ith change.
func (d *desk) giveUp(i int, at time.Time, why string) {
	d.t.Helper()
	l := &processors.DeadLetter{
		Pipeline: d.rec.ID, Generation: 1, Role: processors.RoleSource, Partition: "c7k2x4ab/0", Time: at.UTC(),
		Item: fmt.Sprintf(`["k"]/i%d`, i), Position: feed.Position{LSN: feed.LSN(i + 1)}, Reason: why,
	}
	if err := d.written.Write(d.t.Context(), l); err != nil {
		d.t.Fatal(err)
	}
}

// list returns the dead letters that there are.
func (d *desk) list() []DeadLetter {
	d.t.Helper()
	page, err := d.Page(d.t.Context(), d.rec, "", ListMax)
	if err != nil {
		d.t.Fatal(err)
	}
	return page.Letters
}

// A dead letter that is given up anew between the reading of all and its own turn is not the one that was read: it
// stays, is counted, and the others go.
func TestDrop_AllButNewer(t *testing.T) {
	t.Parallel()
	for name, drop := range map[string]func(d *desk, tell TellFunc) (Outcome, error){
		"those that were shown": func(d *desk, tell TellFunc) (Outcome, error) {
			return d.DropSeen(d.t.Context(), d.rec, SeenOf(d.list()), tell)
		},
		"all": func(d *desk, tell TellFunc) (Outcome, error) { return d.DoAll(d.t.Context(), d.rec, Drop, tell) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, 4)
			told := 0
			o, err := drop(d, func(_ string, done, all int) {
				if told++; done != told || all != 4 {
					t.Errorf("%d of %d are told of as %d", told, all, done)
				}
				if done == 1 {
					d.giveUp(2, time.Now(), "anew")
				}
			})
			left := d.list()
			if err != nil || o != (Outcome{Count: 3, Newer: 1}) || len(left) != 1 || left[0].Reason != "anew" {
				t.Errorf("it came to %+v, %v; there are %+v", o, err, left)
			}
			if told != 3 {
				t.Errorf("%d are told of", told)
			}
		})
	}
}

// One dead letter is dropped as it was read, also where somebody has asked for a retry since; a newer one stays.
func TestDrop_One(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 2)
	read := d.list()
	d.giveUp(0, time.Now(), "anew")
	if err := d.Retry(t.Context(), d.rec, read[1].ID); err != nil {
		t.Fatal(err)
	}
	if err := d.Drop(t.Context(), &read[0]); !errors.Is(err, ErrChanged) {
		t.Errorf("a newer one: %v", err)
	}
	if err := d.DropOneSeen(t.Context(), d.rec, read[0].ID, SeenOf(read[:1]).Digest); !errors.Is(err, ErrChanged) {
		t.Errorf("a newer one than was shown: %v", err)
	}
	for range 2 { // the second time it is gone
		if err := d.Drop(t.Context(), &read[1]); err != nil {
			t.Errorf("one that was asked for: %v", err)
		}
	}
	if left := d.list(); len(left) != 1 || left[0].Reason != "anew" {
		t.Errorf("there are %+v", left)
	}
}
