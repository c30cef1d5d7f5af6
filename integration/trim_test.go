package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// TestTrim_BytesFollowWhatLives writes a few items many times: soon after, the log holds
// next to nothing, and who asks for what is gone is told where it begins.
func TestTrim_BytesFollowWhatLives(t *testing.T) {
	t.Parallel()
	s := storetest.StartWith(t, owner.Config{
		DataDir: t.TempDir(), DiskReserve: -1, Alone: true, TrimBytes: 1, CheckInterval: 50 * time.Millisecond, SyncInterval: 50 * time.Millisecond,
		Snapshots: owner.SnapshotConfig{LogBytes: 64 << 10, Rest: 50 * time.Millisecond, SharePercent: 100},
	})
	ct := s.Container(t, "things", store.ContainerSpec{
		PartitionKey: []string{"/k"}, ChangeFeed: store.ChangeFeedSpec{Retention: new(store.Retention(0))},
	})
	const items, times = 20, 60
	pad := strings.Repeat("x", 1000)
	written := 0
	for n := range times {
		for i := range items {
			body := fmt.Sprintf(`{"id":"%d","k":"k","n":%d,"pad":%q}`, i, n, pad)
			if _, err := ct.Upsert(t.Context(), []byte(body)); err != nil {
				t.Fatal(err)
			}
			written += len(body)
		}
	}
	log, err := feed.OpenLog(t.Context(), s.JS, ct.Partitions()[0], feed.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	poll.Until(t, func() error {
		shape, err := log.Shape(t.Context())
		if err != nil {
			return err
		}
		if shape.Bytes > 200<<10 {
			return fmt.Errorf("%d bytes of log for %d of items, after %d were written", shape.Bytes, items*len(pad), written)
		}
		return nil
	})
	poll.Until(t, func() error {
		status, err := ct.Status(t.Context(), ct.Partitions()[0])
		if err == nil && (status.Trim == nil || status.Trim.First == 1 || status.Trim.HeldBy == "") {
			err = fmt.Errorf("status %+v", status.Trim)
		}
		return err
	})
	// Every item is there, and whoever wants all that ever was is told.
	if n, err := ct.Count(t.Context(), ct.Partitions()[0], store.Scope{}); n != items || err != nil {
		t.Errorf("%d items, %v", n, err)
	}
	_, err = ct.Changes(t.Context(), store.ChangesRequest{Start: feed.StartBeginning(), AllVersions: true})
	if trimmed, ok := errors.AsType[*feed.TrimmedError](err); !ok || trimmed.First < 2 {
		t.Errorf("all versions from the beginning: %v", err)
	}
	page, err := ct.Changes(t.Context(), store.ChangesRequest{Start: feed.StartNow()})
	if err != nil || len(page.Changes) != 0 {
		t.Errorf("changes from now: %+v, %v", page, err)
	}
	if _, err := ct.Upsert(t.Context(), []byte(`{"id":"new","k":"k"}`)); err != nil {
		t.Fatal(err)
	}
	if page, err = ct.Changes(t.Context(), store.ChangesRequest{Continuation: page.Continuation}); err != nil || len(page.Changes) != 1 {
		t.Errorf("what came since: %+v, %v", page, err)
	}
}

// TestTrim_WaitsForReaders: what a pipeline has not read stays until retentionMax has passed,
// and is held by nothing else that readers say.
func TestTrim_WaitsForReaders(t *testing.T) {
	t.Parallel()
	var at atomic.Pointer[feed.Partition]
	s := storetest.StartWith(t, owner.Config{
		DataDir: t.TempDir(), DiskReserve: -1, Alone: true, TrimBytes: 1, CheckInterval: 50 * time.Millisecond, SyncInterval: 50 * time.Millisecond,
		Snapshots:        owner.SnapshotConfig{LogBytes: 16 << 10, Rest: 50 * time.Millisecond, SharePercent: 100},
		CompressBytesMin: -1, // the items are one letter a thousand times, and the log is to grow
		Holds: func(context.Context) (map[feed.Partition][]owner.Hold, string, error) {
			p := at.Load()
			if p == nil {
				return nil, "", errors.New("it is not declared yet")
			}
			return map[feed.Partition][]owner.Hold{*p: {{Reader: "pipeline slow", After: 10}}}, "", nil
		},
	})
	ct := s.Container(t, "things", store.ContainerSpec{
		PartitionKey: []string{"/k"}, ChangeFeed: store.ChangeFeedSpec{Retention: new(store.Retention(0))},
	})
	p := ct.Partitions()[0]
	at.Store(&p)
	for n := range 100 {
		if _, err := ct.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"1","k":"k","n":%d,"pad":%q}`, n, strings.Repeat("x", 1000))); err != nil {
			t.Fatal(err)
		}
	}
	log, err := feed.OpenLog(t.Context(), s.JS, p, feed.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	begins := func(want func(feed.LSN) bool) {
		t.Helper()
		poll.Until(t, func() error {
			if first, _, err := log.Bounds(t.Context()); err != nil || !want(first) {
				return fmt.Errorf("the log begins at %d, %w", first, err)
			}
			return nil
		})
	}
	begins(func(first feed.LSN) bool { return first == 10 })
	poll.Until(t, func() error {
		status, err := ct.Status(t.Context(), p)
		if err == nil && (status.Trim.First != 10 || !strings.Contains(status.Trim.HeldBy, "pipeline slow")) {
			err = fmt.Errorf("%+v", status.Trim)
		}
		return err
	})
	spec := ct.Info().Spec
	spec.ChangeFeed.RetentionMax = time.Second
	if _, err := s.Client.Catalog().Update(t.Context(), "default", "things", spec); err != nil {
		t.Fatal(err)
	}
	begins(func(first feed.LSN) bool { return first > 90 })
}
