package store

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/query"
)

func TestQueryTokenIsShortOrRefused(t *testing.T) {
	at := queryToken{now: time.UnixMicro(1_700_000_000_000_000).UTC(), passed: 1 << 40, via: "/a", from: feed.EPK("\x20\x00"), after: bytes.Repeat([]byte{1}, 600)}
	text, err := at.text([queryHashLen]byte{1})
	if err != nil || len(text) > QueryTokenMax {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	got, err := parseQueryToken(text, [queryHashLen]byte{1})
	if err != nil || got.now != at.now || got.passed != at.passed || got.via != at.via || got.from != at.from || !bytes.Equal(got.after, at.after) {
		t.Errorf("got %+v, %v; want %+v", got, err, at)
	}
	if _, err := parseQueryToken(text, [queryHashLen]byte{2}); !errors.Is(err, ErrBadRequest) {
		t.Errorf("a token of another query: %v", err)
	}
	at.after = bytes.Repeat([]byte{1}, 1000)
	if _, err := at.text([queryHashLen]byte{}); !errors.Is(err, ErrBadRequest) {
		t.Errorf("a token of more than %d bytes: %v", QueryTokenMax, err)
	}
}

// FuzzQueryToken reads foreign tokens: what is accepted is written alike.
func FuzzQueryToken(f *testing.F) {
	var hash [queryHashLen]byte
	for _, t := range []queryToken{{}, {now: time.UnixMicro(5).UTC(), passed: 7, via: "items", from: "\x01", after: []byte{}}, {after: []byte("key")}} {
		text, err := t.text(hash)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add("AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		at, err := parseQueryToken(text, hash)
		if err != nil {
			return
		}
		again, err := at.text(hash)
		if err != nil {
			return // uvarints that were longer than they need be
		}
		same, err := parseQueryToken(again, hash)
		if err != nil || same.now != at.now || same.passed != at.passed || same.via != at.via || same.from != at.from || !bytes.Equal(same.after, at.after) {
			t.Errorf("%+v became %+v, %v", at, same, err)
		}
	})
}

// dueContext has a deadline that has passed, and ends when done is closed: the clock passes the
// deadline of a context before its timer does.
type dueContext struct {
	context.Context //nolint:containedctx // it is one
	done            chan struct{}
}

func (c dueContext) Deadline() (time.Time, bool) { return time.Unix(0, 0), true }
func (c dueContext) Done() <-chan struct{}       { return c.done }
func (c dueContext) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// The rows of a page end with the request, and for its reason. Where the clock is looked at beside
// the context, the query can be blamed for a request that took too long.
func TestAddRows_EndsWithItsContextAlone(t *testing.T) {
	q, err := query.ParseQuery(`SELECT VALUE REPLICATE(c.a, 100000) FROM c GROUP BY c.a`)
	if err != nil {
		t.Fatal(err)
	}
	run, err := q.Run(query.RunConfig{})
	if err == nil {
		err = run.Item([]byte(`{"a":"x"}`), []byte("1"))
	}
	if err != nil {
		t.Fatal(err)
	}
	parts := []query.Part{run.Part()}
	ctx := dueContext{t.Context(), make(chan struct{})}
	p := &pager{c: &Container{client: &Client{}}, q: q, r: &QueryRequest{RowsMax: 10, BytesMax: QueryBytesMax}}
	if _, err := p.addRows(ctx, parts); err != nil || len(p.page.Rows) != 1 {
		t.Errorf("before the context has ended: %d rows, %v; want the row", len(p.page.Rows), err)
	}
	close(ctx.done)
	if _, err := p.addRows(ctx, parts); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after it: %v; want the context's reason", err)
	}
}
