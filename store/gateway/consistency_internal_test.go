package gateway

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
)

func TestParseSession(t *testing.T) {
	for text, want := range map[string]map[uint32]feed.LSN{
		"":                           {},
		"0:-1#42":                    {0: 42},
		"0:-1#42,3:-1#7":             {0: 42, 3: 7},
		" 0:-1#42 , 0:-1#44,0:-1#43": {0: 44},
		"0:0#42":                     {},     // of another version: vector clocks
		"0:-1#42#1=7,1:-1#2":         {1: 2}, // likewise
		"0:-1#,x:-1#3,:-1#4,5":       {},     // none
		"4294967296:-1#1,1:-1#18446744073709551615": {1: 1<<64 - 1},
		"1:-1#18446744073709551616":                 {},
	} {
		if got := parseSession(text); !cmp.Equal(got, want) {
			t.Errorf("%q: %s", text, cmp.Diff(want, got))
		}
	}
}

// What SDKs send is what they were given.
func TestParseSession_OfAnswers(t *testing.T) {
	p := feed.Partition{Container: "c7k2x4ab", Number: 12}
	if got := parseSession(sessionToken(p, 99)); got[12] != 99 || len(got) != 1 {
		t.Errorf("the token of LSN 99 is read as %v", got)
	}
}
