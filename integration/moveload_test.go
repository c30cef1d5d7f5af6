package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// TestI2_WritersAcrossAMove write while the log of an earlier release goes on in a new
// stream: they see a pause and no error, and what they were told is there.
func TestI2_WritersAcrossAMove(t *testing.T) {
	t.Parallel()
	s := storetest.StartWith(t, owner.Config{
		DataDir: t.TempDir(), DiskReserve: -1, Alone: true, TrimBytes: 1, CheckInterval: 50 * time.Millisecond, SyncInterval: 50 * time.Millisecond,
		Snapshots: owner.SnapshotConfig{LogBytes: 64 << 10, Rest: 50 * time.Millisecond, SharePercent: 100},
	})
	ct := s.Container(t, "things", store.ContainerSpec{
		PartitionKey: []string{"/k"}, ChangeFeed: store.ChangeFeedSpec{Retention: new(store.Retention(0))},
	})
	p := ct.Partitions()[0]
	stream, err := feed.StreamOf(t.Context(), s.JS, p)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.DenyPurge = true
	if _, err := s.JS.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	pad, told, slowest := strings.Repeat("x", 1000), map[string]string{}, time.Duration(0)
	began, behind := time.Now(), 0
	for n := 0; behind < 100; n++ {
		if time.Since(began) > poll.Most {
			t.Fatal("the log does not go on")
		}
		id := fmt.Sprint(n % 50)
		wrote := time.Now()
		item, err := ct.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q,"k":"k","n":%d,"pad":%q}`, id, n, pad))
		if err != nil {
			t.Fatalf("write %d: %v", n, err)
		}
		told[id], slowest = fmt.Sprint(item.ETag), max(slowest, time.Since(wrote))
		poll.Rest(t.Context(), wrote) // a log to which somebody writes as fast as it takes it is copied for ever
		if n%20 != 0 && behind == 0 {
			continue
		}
		if stream, err = feed.StreamOf(t.Context(), s.JS, p); err != nil {
			t.Fatal(err)
		}
		if !stream.CachedInfo().Config.DenyPurge {
			behind++
		}
	}
	t.Logf("the slowest write took %s", slowest)
	page, err := ct.Scan(t.Context(), p, store.Scan{ItemsMax: 1000, Barrier: true})
	if err != nil || len(page.Items) != len(told) {
		t.Fatalf("%d items, want %d: %v", len(page.Items), len(told), err)
	}
	for i := range page.Items {
		if got := fmt.Sprint(page.Items[i].ETag); got != told[page.Items[i].ID] {
			t.Errorf("item %s has etag %s, %s was told", page.Items[i].ID, got, told[page.Items[i].ID])
		}
	}
}
