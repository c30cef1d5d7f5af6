package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
)

// TestFeed_EndsWithTheLastOneOfTheLimit: with --follow the next change may never come.
func TestFeed_EndsWithTheLastOneOfTheLimit(t *testing.T) {
	t.Parallel()
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		t.Fatal(err)
	}
	commit := func(lsn feed.LSN) *feed.Commit {
		changes := make([]feed.Change, 2)
		for i := range changes {
			changes[i] = feed.Change{Op: feed.OpCreate, Key: key, ID: "i", After: []byte(`{"id":"i"}`)}
		}
		return &feed.Commit{LSN: lsn, Transactions: []feed.Transaction{{Changes: changes}}}
	}
	var out strings.Builder
	p := &changePrinter{a: &app{streams: streams{out: &out, err: io.Discard}}, flags: &feedFlags{follow: true, limit: 4}}
	partition := feed.Partition{Container: "c7k2x4ab"}
	if err := p.print(partition, commit(1)); err != nil {
		t.Fatal(err)
	}
	if err := p.print(partition, commit(2)); !errors.Is(err, errEnough) {
		t.Errorf("after the last one it goes on: %v", err)
	}
	if n := strings.Count(out.String(), "\n"); n != 4 {
		t.Errorf("it shows %d changes, want 4", n)
	}
}
