package inspect_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/upkeep"
)

// ownerFunc answers for a partition.
type ownerFunc func(ctx context.Context, r *store.Request) *store.Response

func (f ownerFunc) Handle(ctx context.Context, r *store.Request) *store.Response { return f(ctx, r) }

// talks says that all is well, with seven items.
func talks(_ context.Context, r *store.Request) *store.Response {
	if r.Count != nil {
		return &store.Response{Count: 7}
	}
	return &store.Response{Status: &store.PartitionStatus{Owner: "talking"}}
}

// inspected looks at a container of a store, of whose partitions each has the owner that is named for it.
func inspected(t *testing.T, cfg inspect.Config, owners ...ownerFunc) *inspect.Inspector {
	t.Helper()
	s := storetest.System(t)
	records, err := registry.Open(t.Context(), s.JS, s.Client, registry.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cfg.JetStream, cfg.Registry = s.JS, records
	handlers := make([]store.Handler, len(owners))
	for i, f := range owners {
		handlers[i] = f
	}
	cfg.Client = s.Owned(t, handlers...)
	i := inspect.New(&cfg)
	t.Cleanup(i.Close)
	return i
}

// The owners of a container are asked at the same time: here none answers before all are asked.
func TestContainer_AsksSideBySide(t *testing.T) {
	t.Parallel()
	const n = 6
	var all sync.WaitGroup
	all.Add(n)
	patient := func(ctx context.Context, r *store.Request) *store.Response {
		if r.Status != nil {
			all.Done()
			all.Wait()
		}
		return talks(ctx, r)
	}
	c, err := inspected(t, inspect.Config{Replicas: upkeep.Wish{Replicas: 1}}, patient, patient, patient, patient, patient, patient).Container(t.Context(), "default", "things", true)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range c.Partitions {
		if p.Error != "" || p.Status == nil || p.Items != 7 || p.Replicas == nil {
			t.Errorf("partition %d: %+v", p.Number, p)
		}
	}
}

// An owner that is silent is told as that, after a time of its own, and the others are as they are.
func TestContainer_OwnersAreSilent(t *testing.T) {
	t.Parallel()
	silent := func(ctx context.Context, r *store.Request) *store.Response {
		if r.Count != nil {
			t.Error("the items are counted of an owner that does not say how it is")
		}
		<-ctx.Done()
		return &store.Response{Err: &store.Error{Status: store.StatusUnknown, Message: "silence"}}
	}
	i := inspected(t, inspect.Config{AnswerTimeout: 50 * time.Millisecond}, silent, talks, silent, talks, silent)
	c, err := i.Container(t.Context(), "default", "things", true)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range c.Partitions {
		if answered := p.Number%2 == 1; answered != (p.Status != nil) || answered != (p.Error == "") || answered != (p.Items == 7) {
			t.Errorf("partition %d: %+v", p.Number, p)
		}
	}
	// Whoever asked has gone.
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	i = inspected(t, inspect.Config{}, func(_ context.Context, r *store.Request) *store.Response {
		cancel(gone)
		return talks(t.Context(), r)
	})
	if _, err := i.Container(ctx, "default", "things", false); !errors.Is(err, gone) {
		t.Errorf("behind the end of the request: %v", err)
	}
}
