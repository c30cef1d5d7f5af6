package featurelevel_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/featurelevel"
)

// A process learns that the level was raised, without a restart, and asks no more then.
func TestKnown_FollowsUntilItIsTheNewest(t *testing.T) {
	t.Parallel()
	js := newJetStream(t)
	cfg := store.CatalogBucketConfig(1)
	cfg.Metadata = map[string]string{"millrace.level": "2"}
	if _, err := js.CreateKeyValue(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	var known featurelevel.Known
	if n := known.Level(); n != 0 {
		t.Errorf("level %d before anything was read", n)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		known.Follow(t.Context(), js, slog.New(slog.DiscardHandler))
	}()
	is := func(level int) {
		t.Helper()
		poll.Until(t, func() error { return poll.Unless(known.Level() == level, fmt.Sprint("level ", known.Level())) })
	}
	is(2)
	if err := featurelevel.Raise(t.Context(), js); err != nil {
		t.Fatal(err)
	}
	is(featurelevel.Newest)
	<-done
	known.Set(1)
	is(featurelevel.Newest)
}

// Follow goes on where nothing can be read, until its context ends.
func TestKnown_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	js := newJetStream(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var known featurelevel.Known
	known.Follow(ctx, js, slog.New(slog.DiscardHandler))
	if n := known.Level(); n != 0 {
		t.Errorf("level %d", n)
	}
}
