package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/featurelevel"
)

// When an upgrade is finished, the logs of the release before go on in new streams and are
// trimmed, whatever is killed on the way: pipelines of all kinds go on, and a reader of the
// change feed does from where it was.
func TestUpgrade_LogsOfAnEarlierReleaseGoOn(t *testing.T) {
	t.Parallel()
	dir := earlierRelease(t)
	port := strconv.Itoa(freePort(t))
	server := "nats://127.0.0.1:" + port
	up := spawn(t, "up", "--dir", dir, "--port", port, "--listen", "off",
		"--set", "store.trimBytes=1", "--set", "store.snapshots.logBytes=1", "--set", "store.snapshots.rest=100ms", "--set", "store.snapshots.sharePercent=100")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(up.output())
		}
	})
	copies := map[string]int64{"category-names": 30, "tag-names": 80, "customer-totals": 20, "category-sales": 4, "line-categories": 60, "skus": 30}
	client, js := dial(t, server), dialJetStream(t, server)
	product := open(t, client, "product")
	begin, err := product.Changes(t.Context(), store.ChangesRequest{Start: feed.StartNow(), AllVersions: true})
	if err != nil {
		t.Fatal(err)
	}
	renameCategory(t, client, "renamed before the move")
	verified(t, server, "before", copies)
	before := changesSince(t, product, begin.Continuation)
	if len(before) == 0 {
		t.Fatal("nothing was changed")
	}

	var state struct{ Logs, Level int }
	if exit := runJSON(t, server, &state, "upgrade", "--finish"); exit != 0 || state.Level != featurelevel.Newest || state.Logs < 10 {
		t.Fatalf("upgrade --finish: %d, %+v", exit, state)
	}
	all, err := client.Catalog().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keep := func(d time.Duration) {
		t.Helper()
		for _, info := range all {
			info.Spec.ChangeFeed.Retention = new(store.Retention(d))
			if _, err := client.Catalog().Update(t.Context(), info.Database, info.Name, info.Spec); err != nil {
				t.Fatal(err)
			}
		}
	}
	// All that the release before wrote is older, and what this test writes is not.
	keep(10 * time.Minute)
	logs := map[feed.Partition]*feed.Shape{}
	moved := func() error {
		clear(logs)
		for _, info := range all {
			for _, p := range info.Partitions {
				id := feed.Partition{Container: info.ID, Number: p.Number}
				shape := shapeOf(t, js, id)
				if shape.Untrimmable && shape.Last > 30 {
					return fmt.Errorf("%s of %s: %+v", id, info.Name, shape)
				}
				logs[id] = shape
			}
		}
		return nil
	}
	for _, event := range []string{"denies purges: copying", "the log has gone on", "the log has gone on"} {
		poll.Until(t, func() error { // logs go on one behind the other: the life before may have moved the last
			return poll.Unless(strings.Contains(up.output(), event) || moved() == nil, "no log says "+event)
		})
		up.kill()
		up.log.Reset()
		up.start()
	}
	poll.Until(t, moved)
	if after := changesSince(t, product, begin.Continuation); !slices.Equal(after, before) {
		t.Errorf("a reader that was there before the move is told %v, and was told %v", after, before)
	}
	renameCategory(t, client, "renamed after the move")
	copies["line-categories"] += orderOf(t, client, "an order after the move")
	verified(t, server, "after the move", copies)
	if n := len(changesSince(t, product, begin.Continuation)); n <= len(before) {
		t.Errorf("%d changes are told, %d were before the move", n, len(before))
	}

	keep(0)
	poll.Until(t, func() error {
		for id, moved := range logs {
			if shape := shapeOf(t, js, id); !moved.Untrimmable && (shape.Untrimmable || shape.Last-shape.First > 20) {
				return fmt.Errorf("%s is not trimmed: %+v", id, shape)
			}
		}
		return nil
	})
	up.kill()
	if err := os.RemoveAll(filepath.Join(dir, "engine")); err != nil {
		t.Fatal(err)
	}
	up.start()
	verified(t, server, "without the engine", copies)
	renameCategory(t, client, "renamed at last")
	copies["line-categories"] += orderOf(t, client, "an order at last")
	verified(t, server, "at last", copies)
}

func dialJetStream(t *testing.T, server string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(server, asTester(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func shapeOf(t *testing.T, js jetstream.JetStream, p feed.Partition) *feed.Shape {
	t.Helper()
	log, err := feed.OpenLog(t.Context(), js, p, feed.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	shape, err := log.Shape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return shape
}

// renameCategory gives a category another name, which products copy.
func renameCategory(t *testing.T, client *store.Client, name string) {
	t.Helper()
	meta := open(t, client, "productMeta")
	category := firstOf(t, everyItem(t, meta), "category")
	category["name"] = name
	if err := put(t.Context(), meta, category); err != nil {
		t.Fatal(err)
	}
}

// orderOf adds one, and returns how many lines it has.
func orderOf(t *testing.T, client *store.Client, id string) (lines int64) {
	t.Helper()
	customer := open(t, client, "customer")
	order := firstOf(t, everyItem(t, customer), "salesOrder")
	order["id"] = id
	if err := put(t.Context(), customer, order); err != nil {
		t.Fatal(err)
	}
	return int64(len(order["details"].([]any)))
}

// changesSince reads a change feed of all versions to its end, and tells each change.
func changesSince(t *testing.T, c *store.Container, continuation string) (all []string) {
	t.Helper()
	for {
		page, err := c.Changes(t.Context(), store.ChangesRequest{Continuation: continuation, AllVersions: true})
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Changes {
			all = append(all, fmt.Sprintf("%s %v", page.Changes[i].Item.ID, page.Changes[i].Item.ETag))
		}
		if continuation = page.Continuation; page.End {
			slices.Sort(all)
			return all
		}
	}
}

// verified fails the test unless every copy is right.
func verified(t *testing.T, server, step string, copies map[string]int64) {
	t.Helper()
	r := verifyCopies(t, server)
	r.equal(t, step, copies)
}
