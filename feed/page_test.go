package feed_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
)

func TestLog_ReadPage(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	l := b.log(t)
	newWriter(t, l).append(10)
	c, err := l.Read(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	size := len(feed.AppendCommit(nil, c))
	for _, test := range []struct {
		name           string
		from           feed.LSN
		commits, bytes int
		want           []feed.LSN
	}{
		{"from the beginning", 1, 3, 1 << 20, []feed.LSN{1, 2, 3}},
		{"to the end", 8, 100, 1 << 20, []feed.LSN{8, 9, 10}},
		{"the last alone", 10, 1, 1 << 20, []feed.LSN{10}},
		{"behind the end", 11, 10, 1 << 20, nil},
		{"far behind the end", 1000, 10, 1 << 20, nil},
		{"a single one larger than its limit", 4, 10, 1, []feed.LSN{4}},
		{"no more than bytes allow, and the one that exceeds them", 1, 10, 2 * size, []feed.LSN{1, 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			page, err := l.ReadPage(t.Context(), test.from, test.commits, test.bytes)
			if err != nil {
				t.Fatal(err)
			}
			var got []feed.LSN
			for _, c := range page {
				got = append(got, c.LSN)
				if len(c.Transactions) != 1 || len(c.Transactions[0].Changes) != 1 {
					t.Errorf("LSN %d has not what was appended: %+v", c.LSN, c)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLog_ReadPageSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	l := b.log(t)
	newWriter(t, l).append(2)
	if err := feed.DeleteLog(t.Context(), b.js, b.p); err != nil {
		t.Fatal(err)
	}
	if _, err := l.ReadPage(t.Context(), 1, 10, 1<<20); !errors.Is(err, feed.ErrNoLog) {
		t.Errorf("a log that is gone: %v", err)
	}
	if err := feed.CreateLog(t.Context(), b.js, b.p, feed.NewLogID(), feed.LogConfig{}); err != nil {
		t.Fatal(err)
	}
	newWriter(t, b.log(t)).append(2)
	if _, err := l.ReadPage(t.Context(), 1, 10, 1<<20); err == nil {
		t.Error("another log in its place was not noticed")
	} else if _, ok := errors.AsType[*feed.MismatchError](err); !ok {
		t.Errorf("another log in its place: %v", err)
	}
}
