package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/store"
)

const (
	// pollInterval is the pause before a range is asked again that had nothing new.
	pollInterval = 500 * time.Millisecond
	// changesMax bounds the changes of a page.
	changesMax = 1000
)

// Feed says what of a change feed is read. The zero Feed is what there is, from the
// beginning.
type Feed struct {
	// Now begins with what comes.
	Now bool
	// Since begins at a time, in whole seconds, before it rather than after. Zero is
	// the beginning.
	Since time.Time
	// Follow waits for what comes, until the context ends.
	Follow bool
	// Waits is called when the endpoint cannot be reached while it is followed, once
	// for each time; it is asked again until it answers. May be nil.
	Waits func(error)
}

// Change is an item that was created or replaced, as it was when the page was read:
// the protocol's feed shows the latest version of each item, and no deletes.
type Change struct {
	Item store.Item // without its system properties
	// LSN is that of the commit in its physical partition, 0 if the endpoint does not
	// say.
	LSN uint64
	// Time is that of the write, in whole seconds.
	Time time.Time
}

// Changes calls see with page after page of the change feed, in the order of each
// physical partition, one call at a time. Without Follow it returns when nothing more
// is there.
func (c *Container) Changes(ctx context.Context, f Feed, see func([]Change) error) error {
	var ranges []azcosmos.FeedRange
	err := c.client.do(ctx, func(ctx context.Context) (err error) {
		ranges, err = c.sdk.ReadFeedRanges(ctx, nil)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the ranges of the change feed: %w", c.absence(err))
	}
	var mu sync.Mutex
	locked := func(changes []Change) error {
		mu.Lock()
		defer mu.Unlock()
		return see(changes)
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, r := range ranges {
		g.Go(func() error { return c.follow(ctx, &f, r, locked) })
	}
	return g.Wait()
}

// follow reads the change feed of one range.
func (c *Container) follow(ctx context.Context, f *Feed, r azcosmos.FeedRange, see func([]Change) error) error {
	o := &azcosmos.ChangeFeedOptions{FeedRange: &r, MaxItemCount: changesMax}
	if f.Now {
		token, err := nowToken(r)
		if err != nil {
			return err
		}
		o.Continuation = &token
	}
	if !f.Since.IsZero() {
		since := f.Since.Truncate(time.Second)
		o.StartFrom = &since
	}
	waiting := false
	for {
		page, err := c.changes(ctx, o)
		switch {
		// Whoever follows waits for an endpoint that restarts. Whoever does not gets the error.
		case f.Follow && ctx.Err() == nil && errors.Is(err, store.ErrUnavailable):
			if !waiting && f.Waits != nil {
				f.Waits(err)
			}
			waiting = true
		case err != nil:
			return err
		default:
			waiting = false
			o.Continuation = &page.ContinuationToken
		}
		if err == nil && len(page.Items) > 0 {
			if err := c.show(&page, see); err != nil {
				return err
			}
			continue
		}
		// Without an item 200 says that there is more to look through, and 304 that
		// nothing is new. Whoever does not follow would end too early at such a 200.
		if err == nil && page.RawResponse.StatusCode != http.StatusNotModified {
			continue
		}
		if !f.Follow {
			return nil
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// changes reads a page.
func (c *Container) changes(ctx context.Context, o *azcosmos.ChangeFeedOptions) (page azcosmos.ChangeFeedResponse, err error) {
	err = c.client.do(ctx, func(ctx context.Context) (err error) {
		page, err = c.sdk.ReadChangeFeed(ctx, o)
		return err
	})
	return page, c.absence(err)
}

func (c *Container) show(page *azcosmos.ChangeFeedResponse, see func([]Change) error) error {
	changes := make([]Change, len(page.Items))
	for i, body := range page.Items {
		item, s, err := c.itemAndSystem(body)
		if err != nil {
			return fmt.Errorf("read the change feed: %w", err)
		}
		changes[i] = Change{Item: item, LSN: s.LSN, Time: time.Unix(s.Time, 0).UTC()}
	}
	return see(changes)
}

// nowToken is a continuation in the SDK's form that begins with what comes, which the
// SDK has no option for: the protocol's If-None-Match: *.
func nowToken(r azcosmos.FeedRange) (string, error) {
	token, err := json.Marshal(map[string]any{
		"version": 1, "resourceId": "",
		"continuation": []map[string]string{{"minInclusive": r.MinInclusive, "maxExclusive": r.MaxExclusive, "continuationToken": "*"}},
	})
	if err != nil {
		return "", fmt.Errorf("begin the change feed now: %w", err)
	}
	return string(token), nil
}
