package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// answers is an owner that answers one after the other.
type answers []*store.Error

func (a *answers) Handle(context.Context, *store.Request) *store.Response {
	next := (*a)[0]
	*a = (*a)[1:]
	return &store.Response{Err: next}
}

// A refusal says that nothing happened. It says so of the attempt that was refused, not of
// one before it that nobody answered.
func TestI2_ARefusalDoesNotSpeakForAnAttemptThatWentUnanswered(t *testing.T) {
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		t.Fatal(err)
	}
	unanswered := store.Refuse(store.StatusUnknown, "the outcome was not learned")
	for _, status := range []store.Status{store.StatusUnavailable, store.StatusTooManyRequests, store.StatusInsufficientDisk, store.StatusInternal} {
		for name, c := range map[string]struct {
			answers answers
			unknown bool
		}{
			"first":      {answers{store.Refuse(status, "refused")}, false},
			"unanswered": {answers{unanswered, store.Refuse(status, "refused")}, true},
		} {
			p := feed.Partition{Container: "aaaaaaaa"}
			local := &store.Local{}
			local.Add(p, &c.answers)
			client := store.NewClient(nil, nil, store.ClientConfig{Local: local})
			_, err := client.Do(t.Context(), &store.Request{Partition: p, Transact: &store.Transact{
				Key: key, IdempotencyKey: "once", Ops: []store.Operation{{Kind: store.OpCreate, Body: []byte(`{"id":"1"}`)}},
			}})
			refused := errors.Is(err, &store.Error{Status: status})
			if errors.Is(err, store.ErrUnknown) != c.unknown || refused == c.unknown {
				t.Errorf("%d, %s: %v", status, name, err)
			}
		}
	}
}
