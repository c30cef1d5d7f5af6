package store

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
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
