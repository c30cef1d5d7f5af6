package remote_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/cmd/millrace/internal/remote"
)

func TestChanges_FromEachStart(t *testing.T) {
	w := newWorld(t)
	ct := w.container(w.open(), "/pk")
	const items = 3600 // more than a page of each range
	var writers errgroup.Group
	writers.SetLimit(64)
	for i := range items {
		writers.Go(func() error {
			return ct.Upsert(t.Context(), fmt.Appendf(nil, `{"id": "%d", "pk": "%d"}`, i, i%50))
		})
	}
	must(t, writers.Wait())
	for _, c := range []struct {
		what string
		feed remote.Feed
		want int
	}{
		{"from the beginning", remote.Feed{}, items},
		{"of the last hour", remote.Feed{Since: time.Now().Add(-time.Hour)}, items},
		{"from an hour ahead", remote.Feed{Since: time.Now().Add(time.Hour)}, 0},
		{"from now on", remote.Feed{Now: true}, 0},
	} {
		seen := map[string]uint64{}
		must(t, ct.Changes(t.Context(), c.feed, func(changes []remote.Change) error {
			for i := range changes {
				change := &changes[i]
				if seen[change.Item.ID] != 0 {
					t.Errorf("%s: %s comes twice", c.what, change.Item.ID)
				}
				seen[change.Item.ID] = change.LSN
				if want := fmt.Sprintf(`{"id": %q, "pk": %s}`, change.Item.ID, change.Item.Key.String()[1:len(change.Item.Key.String())-1]); string(change.Item.Body) != want || change.LSN == 0 || time.Since(change.Time) > time.Hour {
					t.Errorf("%s: %+v, want body %s", c.what, change, want)
				}
			}
			return nil
		}))
		if len(seen) != c.want {
			t.Errorf("%s there are %d changes, want %d", c.what, len(seen), c.want)
		}
	}
	enough := errors.New("enough")
	if err := ct.Changes(t.Context(), remote.Feed{Follow: true}, func([]remote.Change) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("it ends with %v", err)
	}
}

// An endpoint that goes away while it is followed is told of once and waited for.
func TestChanges_GoOnAfterAnAbsence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	writer := w.container(w.open(), "/pk")
	ct, err := w.openWith(w.keys.Primary, 5*time.Second).Container(t.Context(), "default", "things")
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	came, away, ended := make(chan string, 100), make(chan error, 100), make(chan error, 1)
	go func() {
		ended <- ct.Changes(ctx, remote.Feed{Follow: true, Waits: func(err error) { away <- err }}, func(changes []remote.Change) error {
			for i := range changes {
				came <- changes[i].Item.ID
			}
			return nil
		})
	}()
	must(t, writer.Upsert(t.Context(), []byte(`{"id": "before", "pk": "a"}`)))
	if id := <-came; id != "before" {
		t.Errorf("first comes %s", id)
	}
	w.fail(1<<40, http.StatusServiceUnavailable)
	for range partitions { // each range tells of it once
		if err := <-away; err == nil {
			t.Error("it waits for no reason")
		}
	}
	w.answer(nil)
	must(t, writer.Upsert(t.Context(), []byte(`{"id": "after", "pk": "a"}`)))
	if id := <-came; id != "after" {
		t.Errorf("then comes %s", id)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("stopped, it ends with %v", err)
	}
}
