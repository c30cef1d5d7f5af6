package main

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// TestGivenUp tells somebody who waits for a split why nobody plans it any more.
func TestGivenUp(t *testing.T) {
	cancelled := &store.PartitionStatus{AbandonedSplit: &store.AbandonedSplit{ID: "a", Why: "it was cancelled"}}
	for _, c := range []struct {
		id     string
		status *store.PartitionStatus
		failed error
		says   string
	}{
		{"a", cancelled, nil, "the split of partition 3 was given up: it was cancelled"},
		{"b", cancelled, nil, "the split of partition 3 was given up, and another one was begun since"},
		{"a", &store.PartitionStatus{}, nil, "the split of partition 3 was given up, and another one was begun since"},
		{"a", nil, errors.New("nobody is there"), "the split of partition 3 was given up; why is not known: nobody is there"},
	} {
		if err := givenUp(feed.Partition{Number: 3}, c.id, c.status, c.failed); err.Error() != c.says {
			t.Errorf("%q, where %q is expected", err, c.says)
		}
	}
}
