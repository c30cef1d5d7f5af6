package storetest

import (
	"context"
	"errors"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// Instead answers for a partition by asking another one, of any container, which stands in its place.
type Instead struct {
	Client *store.Client
	Of     feed.Partition
}

// Handle asks the other partition.
func (h Instead) Handle(ctx context.Context, r *store.Request) *store.Response {
	other := *r
	other.Partition = h.Of
	resp, err := h.Client.Do(ctx, &other)
	if refused, ok := errors.AsType[*store.Error](err); ok {
		return &store.Response{Err: refused}
	}
	if err != nil {
		return &store.Response{Err: store.Refuse(store.StatusInternal, "%v", err)}
	}
	return resp
}
