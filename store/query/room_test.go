package query_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/millrace/millrace/store/query"
)

// begin returns a run of a query that holds a share of room.
func begin(t *testing.T, room *query.Room, text string) (*query.Query, *query.Run, *query.Share) {
	t.Helper()
	q, err := query.ParseQuery(text)
	if err != nil {
		t.Fatal(err)
	}
	share := room.Share()
	run, err := q.Run(query.RunConfig{Share: share})
	if err != nil {
		t.Fatal(err)
	}
	return q, run, share
}

// Queries that run at once hold no more than the room together: one that cannot grow ends, and what
// ended ones held is there for others.
func TestRoom_BoundsWhatQueriesHoldTogether(t *testing.T) {
	const mib = 1 << 20
	room := query.NewRoom(8 * mib)
	item := func(id int) []byte { return fmt.Appendf(nil, `{"id":"%d","a":"x"}`, id) }
	for name, text := range map[string]string{
		"rows":           `SELECT VALUE REPLICATE(c.a, 1000000) FROM c`,
		"sorted rows":    `SELECT VALUE REPLICATE(c.a, 1000000) FROM c ORDER BY c.id`,
		"distinct rows":  `SELECT DISTINCT VALUE REPLICATE(c.id, 1000000) FROM c`,
		"groups":         `SELECT MAX(REPLICATE(c.a, 1000000)) FROM c GROUP BY c.id`,
		"what is made":   `SELECT VALUE LENGTH(REPLICATE(c.a, 3000000)) FROM c WHERE LENGTH(REPLICATE(c.a, 1000000)) > 1`,
		"what one tests": `SELECT VALUE 1 FROM c WHERE LENGTH(REPLICATE(c.a, 4000000)) < 1`,
	} {
		t.Run(name, func(t *testing.T) {
			var first, second error
			_, a, shareA := begin(t, room, text)
			_, b, shareB := begin(t, room, text)
			_, small, shareSmall := begin(t, room, `SELECT c.a FROM c`)
			for i := range 8 {
				rank := []byte{byte(i)}
				if first == nil {
					first = a.Item(item(i), rank)
				}
				if second == nil {
					second = b.Item(item(i), rank)
				}
				if taken := room.Taken(); taken < mib || taken > 8*mib {
					t.Errorf("after %d items %d bytes are taken", i+1, taken)
				}
			}
			// What is made for one item is there again for the next, so these two go on for ever.
			once := name == "what is made" || name == "what one tests"
			if once && (first != nil || second != nil) || !once && !errors.Is(first, query.ErrNoRoom) && !errors.Is(second, query.ErrNoRoom) {
				t.Errorf("%v, %v", first, second)
			}
			if err := small.Item(item(1), []byte("1")); err != nil {
				t.Errorf("a query that holds little beside them: %v", err)
			}
			shareB.Free()
			shareB.Free()
			shareSmall.Free()
			_, c, shareC := begin(t, room, text)
			if err := c.Item(item(1), []byte("1")); err != nil {
				t.Errorf("when one has ended: %v", err)
			}
			shareA.Free()
			shareC.Free()
			if taken := room.Taken(); taken != 0 {
				t.Errorf("%d bytes are taken when all have ended", taken)
			}
		})
	}
}

// A query that needs more than there is for all is told so: to ask again does not help it.
func TestRoom_OneQueryThatIsTooLargeForIt(t *testing.T) {
	room := query.NewRoom(1 << 20)
	_, run, share := begin(t, room, `SELECT VALUE REPLICATE(c.a, 3000000) FROM c`)
	if err := run.Item([]byte(`{"a":"x"}`), []byte("1")); !errors.Is(err, query.ErrTooLarge) {
		t.Errorf("a row of 3 MB in a room of 1 MiB: %v", err)
	}
	share.Free()

	q, run, _ := begin(t, nil, `SELECT VALUE REPLICATE(c.a, 3000000) FROM c GROUP BY c.a`)
	if err := run.Item([]byte(`{"a":"x"}`), []byte("1")); err != nil {
		t.Fatal(err)
	}
	parts, share := []query.Part{run.Part()}, room.Share()
	if _, err := q.Merge(parts, query.PageConfig{Share: share}); !errors.Is(err, query.ErrTooLarge) {
		t.Errorf("a group's row of 3 MB in a room of 1 MiB: %v", err)
	}
	share.Free()
	if taken := room.Taken(); taken != 0 {
		t.Errorf("%d bytes are taken when all have ended", taken)
	}
	// Rows of groups count as long as the page holds them.
	room = query.NewRoom(8 << 20)
	q, run, _ = begin(t, nil, `SELECT VALUE REPLICATE(c.a, 1000000) FROM c GROUP BY c.a`)
	for i := range 9 {
		if err := run.Item(fmt.Appendf(nil, `{"a":"%d"}`, i), []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	parts, share = []query.Part{run.Part()}, room.Share()
	if _, err := q.Merge(parts, query.PageConfig{Share: share}); !errors.Is(err, query.ErrTooLarge) {
		t.Errorf("nine rows of a group of 1 MB each in a room of 8 MiB: %v", err)
	}
	page, err := q.Merge(parts, query.PageConfig{Share: share, Bytes: 3_500_000})
	if err == nil && (len(page.Rows) != 3 || !page.Cut || page.Passed != 3) {
		t.Errorf("a page of 3.5 MB has %d rows, passed %d, cut %t; want 3", len(page.Rows), page.Passed, page.Cut)
	}
	if err != nil {
		t.Error(err)
	}
	share.Free()
	if _, err := q.Merge(parts, query.PageConfig{}); err != nil {
		t.Errorf("without a room: %v", err)
	}
}
