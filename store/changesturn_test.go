package store_test

import (
	"context"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/store"
)

// versions is an owner that knows the last version of every item.
type versions store.ETag

func (v versions) Handle(_ context.Context, r *store.Request) *store.Response {
	if r.Versions == nil {
		return &store.Response{Err: store.Refuse(store.StatusBadRequest, "asked for something else")}
	}
	resp := &store.Response{}
	for range r.Versions.Refs {
		resp.Versions = append(resp.Versions, store.ETag(v))
	}
	return resp
}

// appendWrites appends commits that each write one item, and returns the LSN of the last.
func appendWrites(t *testing.T, log *feed.Log, key string, body []byte, commits int) feed.LSN {
	t.Helper()
	of, err := feed.NewPartitionKey(key)
	if err != nil {
		t.Fatal(err)
	}
	_, last, err := log.Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var sum feed.Checksum
	if last > 0 {
		before, err := log.Read(t.Context(), last)
		if err != nil {
			t.Fatal(err)
		}
		sum = before.Sum
	}
	for range commits {
		c := &feed.Commit{ID: feed.NewCommitID(), Log: log.ID(), Prev: sum, Epoch: 1, Time: 1000, Transactions: []feed.Transaction{
			{Changes: []feed.Change{{Op: feed.OpCreate, Key: of, ID: "1", After: body, Modified: 1000, Written: last + 1}}},
		}}
		data := feed.AppendCommit(nil, c)
		sum = c.Sum
		if last, err = log.Append(t.Context(), last, c.ID, data); err != nil {
			t.Fatal(err)
		}
	}
	return last
}

// A partition whose log takes all that one page may read, and gives the page nothing, does not keep the
// others away.
func TestContainer_ChangesOfAQuietPartitionBesideABusyOne(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	catalog := catalogOf(t, server.JS)
	info, err := catalog.Create(t.Context(), "shop", "things", store.ContainerSpec{PartitionKey: []string{"/a"}, Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	local := &store.Local{}
	var logs []*feed.Log
	for i := range info.Partitions {
		p := feed.Partition{Container: info.ID, Number: info.Partitions[i].Number}
		log, err := feed.OpenLog(t.Context(), server.JS, p, feed.LogConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		logs = append(logs, log)
	}
	things, err := store.NewClient(server.NC, catalog, store.ClientConfig{Local: local}).Open(info)
	if err != nil {
		t.Fatal(err)
	}
	page, err := things.Changes(t.Context(), store.ChangesRequest{Start: feed.StartNow()})
	if err != nil {
		t.Fatal(err)
	}
	large := []byte(`{"id":"1","text":"` + strings.Repeat("x", 1<<20) + `"}`)
	const pageful = 17 // of MiB, of which a page reads 16
	created := appendWrites(t, logs[1], "quiet", []byte(`{"id":"1"}`), 1)
	// Of the busy partition's item no version is the last, of the quiet one's its only one.
	local.Add(feed.Partition{Container: info.ID, Number: info.Partitions[0].Number}, versions{LSN: 1 << 40})
	local.Add(feed.Partition{Container: info.ID, Number: info.Partitions[1].Number}, versions{LSN: created})
	for range 2 {
		appendWrites(t, logs[0], "busy", large, pageful)
		if page, err = things.Changes(t.Context(), store.ChangesRequest{Continuation: page.Continuation}); err != nil {
			t.Fatal(err)
		}
		if page.End {
			t.Error("a page that could not read all says that it is the end")
		}
	}
	if len(page.Changes) != 1 || string(page.Changes[0].Item.Body) != `{"id":"1"}` {
		t.Errorf("the second page has %d changes, want that of the quiet partition", len(page.Changes))
	}
}
