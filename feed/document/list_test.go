package document_test

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed/document"
)

func TestDecodeList(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []int
		n    int
		bad  bool
	}{
		"as many as are allowed":           {" [1, 2 ,3] ", []int{1, 2, 3}, 3, false},
		"one more":                         {"[1,2,3,4]", nil, 4, false},
		"none":                             {"[ ]", []int{}, 0, false},
		"null":                             {"null", nil, 0, false},
		"no list":                          {`{"a":1}`, nil, 0, true},
		"no JSON":                          {"[1,", nil, 0, true},
		"nothing":                          {"", nil, 0, true},
		"elements of another type":         {`["a"]`, []int{0}, 1, true},
		"too many, of another type":        {`["a",[1,2,3],{"a":[1,2]},"]"]`, nil, 4, false},
		"white space that is none in JSON": {"[1,\x012]", nil, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, n, err := document.DecodeList[int]([]byte(c.text), 3)
			if diff := cmp.Diff(c.want, got); diff != "" || n != c.n || (err != nil) != c.bad {
				t.Errorf("%d elements, %v\n%s", n, err, diff)
			}
		})
	}
}

// A list is counted before memory is made for it: that of the test would take 70 MiB and, while
// it grows, twice as much more.
func TestDecodeList_MakesNothingOfTooMany(t *testing.T) {
	text := []byte("[" + strings.Repeat("{},", 1<<20) + "{}]")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	list, n, err := document.DecodeList[struct {
		A, B string
		C    json.RawMessage
	}](text, 100)
	runtime.ReadMemStats(&after)
	if made := after.TotalAlloc - before.TotalAlloc; list != nil || n != 1<<20+1 || err != nil || made > 1<<20 {
		t.Errorf("%d elements, %v, %d bytes were allocated; want %d, none, fewer than 1 MiB", n, err, made, 1<<20+1)
	}
}
