package processors

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// slowLog is a log of which each page holds one commit and takes a while.
type slowLog struct {
	key  feed.PartitionKey
	last feed.LSN
	took time.Duration
}

func (l *slowLog) Bounds(context.Context) (first, last feed.LSN, err error) { return 1, l.last, nil }

func (l *slowLog) ReadPage(ctx context.Context, from feed.LSN, _, _ int) ([]*feed.Commit, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(l.took):
	}
	return []*feed.Commit{{LSN: from, Transactions: []feed.Transaction{{Changes: []feed.Change{{Key: l.key, ID: "o1"}}}}}}, nil
}

// A retry reads a log to its end, however long that takes, as long as the log answers.
func TestARetryReadsALongLog(t *testing.T) {
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		t.Fatal(err)
	}
	parked := &Parked{Item: store.ItemRef{Key: key, ID: "o1"}.String(), At: feed.Position{LSN: 1}}
	for name, c := range map[string]struct {
		page time.Duration
		want int // changes that were read
		ends bool
	}{
		"the log is long":          {retryMax - time.Second, 99, false},
		"the log does not answer":  {time.Hour, 0, true},
		"the log answers too late": {retryMax + time.Second, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, progress, end := withPatience(t.Context(), retryMax)
				defer end()
				got := 0
				err := readLater(ctx, &slowLog{key, 100, c.page}, parked, progress, func(*feed.Change) error { got++; return nil })
				if ended := errors.Is(err, context.Canceled) && context.Cause(ctx) != nil; ended != c.ends || !c.ends && err != nil || got != c.want {
					t.Errorf("%d changes, %v, because %v", got, err, context.Cause(ctx))
				}
			})
		})
	}
}
