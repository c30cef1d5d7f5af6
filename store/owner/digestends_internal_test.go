package owner

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/digest"
)

// tells returns the digests that the log tells.
func (w *world) tells() (told []digest.Digest) {
	w.t.Helper()
	for _, c := range w.commits() {
		if _, d := digest.Of(c); d != nil {
			told = append(told, *d)
		}
	}
	return told
}

// remade is the digest of what the log makes in an empty engine up to an LSN.
func (w *world) remade(upTo feed.LSN) digest.Digest {
	w.t.Helper()
	r, err := NewReplayer(w.blank(), slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range w.commits()[:upTo] {
		if err := r.Apply(c); err != nil {
			w.t.Fatal(err)
		}
	}
	d, err := r.Digest(w.t.Context(), r.View())
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// A term ends between the order of a digest and its telling. Nobody tells it: neither the one who ordered it, who is told at
// once that it cannot be, nor the next owner, whose own digests are told and are those of the log.
func TestDigest_IsToldByWhoOrderedItOrByNobody(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world, n *node){
		"handed over": func(_ *world, n *node) {
			if err := n.stop(); err != nil {
				n.w.t.Fatal(err)
			}
		},
		"taken over": func(w *world, _ *node) { w.start(w.t.TempDir()) },
		"the log goes on in a new stream": func(w *world, n *node) {
			w.deny()
			n.copySome(1, 3, true)
			n.endsTerm()
		},
		"split": func(_ *world, n *node) {
			split, err := n.prepareSplit(n.w.t.Context(), halves())
			if err == nil {
				err = n.endWith(n.w.t.Context(), split, nil)
			}
			if err != nil {
				n.w.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, byA)
			n := w.start(t.TempDir())
			for i := range 5 {
				n.mustOne(pk(t, "x"), create(fmt.Sprintf(`{"id":"%d","a":"x"}`, i)))
			}
			view, err := n.orderDigest(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			d, err := n.digestOf(t.Context(), view)
			if err != nil {
				t.Fatal(err)
			}
			n.mustOne(pk(t, "x"), create(`{"id":"behind","a":"x"}`))
			end(w, n)
			if told, err := n.appendControl(t.Context(), d.Tell(), nil); !errors.Is(err, errStopped) {
				t.Errorf("it is told at %s: %v", told, err)
			}
			if name == "split" {
				return // the last commit is the last
			}
			next := w.start(t.TempDir())
			if told := w.tells(); len(told) > 0 {
				t.Errorf("the log tells %+v", told)
			}
			if view, err = next.orderDigest(t.Context()); err != nil {
				t.Fatal(err)
			}
			if d, err = next.digestOf(t.Context(), view); err != nil {
				t.Fatal(err)
			}
			if _, err := next.appendControl(t.Context(), d.Tell(), nil); err != nil {
				t.Fatal(err)
			}
			told := w.tells()
			if len(told) != 1 || told[0].LSN != d.LSN {
				t.Fatalf("the log tells %+v, and the next owner's is %+v", told, d)
			}
			if differ := told[0].Differ(w.remade(d.LSN)); differ != "" {
				t.Errorf("it differs from what the log makes in %s", differ)
			}
		})
	}
}

// What is decided while the commit waits that ends a log does not join it: the split is the last that the log says.
func TestSplit_NothingJoinsTheCommitThatEndsTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/pk"}, Partitions: 1})
	n := w.start(t.TempDir())
	split, err := n.prepareSplit(t.Context(), halves())
	if err != nil {
		t.Fatal(err)
	}
	arrived, release := n.log.hold()
	defer release()
	wrote := make(chan error, 1)
	go func() {
		_, err := n.one(pk(t, "a"), create(`{"id":"i","pk":"a"}`))
		wrote <- err
	}()
	<-arrived
	decided := make(chan struct{})
	ended, ordered := make(chan error, 1), make(chan error, 1)
	go func() {
		ended <- n.control(t.Context(), func(d *decider) *feed.Control {
			defer close(decided)
			d.draft.ends = errSplit
			control, err := split.Control(feed.ControlSplit)
			if err != nil {
				t.Error(err)
			}
			return control
		})
	}()
	<-decided
	go func() {
		view, err := n.orderDigest(t.Context())
		if view != nil {
			view.Close()
		}
		ordered <- err
	}()
	select { // it is let in by now, if anybody is
	case err := <-ordered:
		ordered <- err
	case <-time.After(100 * time.Millisecond):
	}
	release()
	if err := errors.Join(<-wrote, <-ended); err != nil {
		t.Fatal(err)
	}
	if err := <-ordered; !errors.Is(err, errStopped) {
		t.Errorf("a digest is ordered behind the split: %v", err)
	}
	commits := w.commits()
	last := commits[len(commits)-1]
	if is, err := feed.SplitOf(last); err != nil || is == nil || len(last.Transactions) != 1 {
		t.Errorf("the log ends with %d transactions, of a split: %+v, %v", len(last.Transactions), is, err)
	}
}
