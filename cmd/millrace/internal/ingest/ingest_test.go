package ingest_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/cmd/millrace/internal/ingest"
	"github.com/millrace/millrace/store"
)

// readAll returns the records as lines: number@line body, or number@line! error.
func readAll(t *testing.T, text string) (records []string, end string) {
	t.Helper()
	r, err := ingest.NewReader(strings.NewReader(text))
	if err != nil {
		return nil, err.Error()
	}
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return records, ""
		}
		if err != nil {
			return records, err.Error()
		}
		s := fmt.Sprintf("%d@%d %s", rec.Number, rec.Line, rec.Body)
		if rec.Err != nil {
			s = fmt.Sprintf("%d@%d! %v", rec.Number, rec.Line, rec.Err)
		}
		records = append(records, s)
	}
}

func TestReader(t *testing.T) {
	large := strings.Repeat("x", 5<<20)
	for name, c := range map[string]struct {
		text string
		want []string
		end  string
	}{
		"an array":            {`[{"id":"a"},{"id":"b"}]`, []string{`1@1 {"id":"a"}`, `2@1 {"id":"b"}`}, ""},
		"an array over lines": {"\xef\xbb\xbf\n[\n {\"id\":\n\"a\"} ,\n\n{\"id\":\"b\"}\n]\n", []string{"1@3 {\"id\":\n\"a\"}", `2@6 {"id":"b"}`}, ""},
		"an empty array":      {" [ ]\n", nil, ""},
		"brackets in strings": {`[{"a":"]},{\"["},2]`, []string{`1@1 {"a":"]},{\"["}`, `2@1 2`}, ""},
		"lines":               {"{\"id\":\"a\"}\r\n\n  \n{\"id\":\"b\"}", []string{`1@1 {"id":"a"}`, `2@4 {"id":"b"}`}, ""},
		"a broken line":       {"{\"id\":\n{\"id\":\"b\"}\n", []string{`1@1 {"id":`, `2@2 {"id":"b"}`}, ""},
		"nothing":             {" \n ", nil, ""},
		"a missing element":   {`[{"id":"a"},,{"id":"b"}]`, []string{`1@1 {"id":"a"}`, `2@1! an item is expected before the comma`, `3@1 {"id":"b"}`}, ""},
		"a missing quote":     {"[{\"id\":\"a},\n{\"id\":\"b\"},\n{\"id\":\"c\"}]", []string{"1@1! a string does not end in its line", `2@2 {"id":"b"}`, `3@3 {"id":"c"}`}, ""},
		"a line break in a string of an element": {
			"[\n {\"id\":\"o1\",\"lines\":[{\"id\":\"l1\",\"note\":\"two\nlines\"},\n   {\"id\":\"p7\"}\n  ]},\n {\"id\":\"o2\"}\n]",
			[]string{"1@2! a string does not end in its line", `2@6 {"id":"o2"}`},
			"",
		},
		"and no element behind it": {
			"[{\"a\":\"two\nlines\", \"b\":{}}]",
			[]string{"1@1! a string does not end in its line"},
			"line 2: the file ends inside the array; what stands before was read",
		},
		"an array that is cut off": {"[{\"id\":\"a\"},\n{\"id\"", []string{`1@1 {"id":"a"}`}, "line 2: the file ends inside the array; what stands before was read"},
		"more behind the array":    {"[1]\n{}", []string{"1@1 1"}, `line 2: '{' behind the end of the array; the array was read`},
		"something else":           {"id,name\n", nil, `line 1: begins with 'i'; a JSON array of items, or an item in each line, is expected`},
		"an element that is large": {`["` + large + `",2]`, []string{"1@1! larger than 4194304 bytes; an item has at most 2097152", "2@1 2"}, ""},
		"a line that is large":     {`{"` + large + "\n{}\n", []string{"1@1! larger than 4194304 bytes; an item has at most 2097152", "2@2 {}"}, ""},
		"a large line without end": {`{"` + large, []string{"1@1! larger than 4194304 bytes; an item has at most 2097152"}, ""},
		"a bracket too many":       {`[{"id":"a"}},{"id":"b"}]`, []string{`1@1 {"id":"a"}}`, `2@1 {"id":"b"}`}, ""},
	} {
		got, end := readAll(t, c.text)
		if diff := cmp.Diff(c.want, got); diff != "" || end != c.end {
			t.Errorf("%s: end %q, want %q\n%s", name, end, c.end, diff)
		}
	}
}

func TestReader_GzipIsToldByContent(t *testing.T) {
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	fmt.Fprint(w, "[{},{}]")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, end := readAll(t, zipped.String())
	if len(got) != 2 || end != "" {
		t.Errorf("got %v, %q", got, end)
	}
	if _, end := readAll(t, zipped.String()[:zipped.Len()-6]); !strings.Contains(end, "unexpected EOF") {
		t.Errorf("a gzip file that is cut off ends with %q", end)
	}
}

// kept is a store that keeps bodies in the order in which they were written.
type kept struct {
	mu     sync.Mutex
	bodies []string
	fail   func(n int, body string) error
	calls  int
}

func (k *kept) write(_ context.Context, body []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls++
	if k.fail != nil {
		if err := k.fail(k.calls, string(body)); err != nil {
			return err
		}
	}
	k.bodies = append(k.bodies, string(body))
	return nil
}

func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":\"%d\"}\n", i)
	}
	return b.String()
}

func reader(t *testing.T, text string) *ingest.Reader {
	t.Helper()
	r, err := ingest.NewReader(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRun_RejectsWithLineAndReasonAndGoesOn(t *testing.T) {
	text := "{\"id\":\"a\"}\n{\"id\":\"b\",}\n{\"id\":\"c\"}\n[]\n{\"id\":\"d\"}\n"
	k := &kept{fail: func(_ int, body string) error {
		if strings.Contains(body, `"c"`) {
			return store.Refuse(store.StatusConflict, "the sku is taken")
		}
		return nil
	}}
	state := &ingest.State{}
	if err := ingest.Run(t.Context(), reader(t, text), state, ingest.Config{Write: k.write, Writers: 3}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(k.bodies)
	if diff := cmp.Diff([]string{`{"id":"a"}`, `{"id":"d"}`}, k.bodies); diff != "" {
		t.Error(diff)
	}
	if state.Done != 5 || state.Written != 2 || state.Rejected != 3 {
		t.Errorf("state is %+v", state)
	}
	byLine := map[int]string{}
	for _, r := range state.Rejections {
		byLine[r.Line] = r.Reason
	}
	if byLine[2] == "" || byLine[4] == "" || byLine[3] != "the sku is taken (409)" {
		t.Errorf("rejections are %v", byLine)
	}
}

func TestRun_LastOfOneIDWins(t *testing.T) {
	var text strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&text, "{\"id\":\"%d\",\"n\":%d}\n", i%7, i)
	}
	k := &kept{}
	if err := ingest.Run(t.Context(), reader(t, text.String()), &ingest.State{}, ingest.Config{Write: k.write}); err != nil {
		t.Fatal(err)
	}
	last := map[string]int{}
	for _, body := range k.bodies {
		var id, n int
		if _, err := fmt.Sscanf(body, `{"id":"%d","n":%d}`, &id, &n); err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprint(id)
		if n < last[key] {
			t.Fatalf("%s was written after %d", body, last[key])
		}
		last[key] = n
	}
}

func TestRun_WaitsWhileTheStoreIsUnavailable(t *testing.T) {
	k := &kept{fail: func(n int, _ string) error {
		if n%3 != 0 {
			return store.ErrUnavailable
		}
		return nil
	}}
	state := &ingest.State{}
	if err := ingest.Run(t.Context(), reader(t, lines(40)), state, ingest.Config{Write: k.write}); err != nil {
		t.Fatal(err)
	}
	if state.Written != 40 || state.Rejected != 0 {
		t.Errorf("state is %+v", state)
	}
}

func TestRun_GoesOnWhereItStopped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	broken := errors.New("the wire is cut")
	k := &kept{fail: func(n int, _ string) error {
		if n > 500 {
			return broken
		}
		return nil
	}}
	save := func(s *ingest.State) error { return s.Save(file) }
	state, stale, err := ingest.LoadState(file, "f", "c")
	if err != nil || stale {
		t.Fatal(stale, err)
	}
	if err := ingest.Run(t.Context(), reader(t, lines(1000)), state, ingest.Config{Write: k.write, Save: save, Writers: 4}); !errors.Is(err, broken) {
		t.Fatalf("error %v, want %v", err, broken)
	}
	k.fail = nil
	again, stale, err := ingest.LoadState(file, "f", "c")
	if err != nil || stale || again.Done == 0 || again.Done > 500 || again.Done != again.Written {
		t.Fatalf("state %+v, %v, %v", again, stale, err)
	}
	skipped := again.Done
	if err := ingest.Run(t.Context(), reader(t, lines(1000)), again, ingest.Config{Write: k.write, Save: save}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, body := range k.bodies {
		seen[body]++
	}
	if len(seen) != 1000 || again.Written != 1000 || again.Done != 1000 {
		t.Errorf("%d items are there, state %+v", len(seen), again)
	}
	if twice := len(k.bodies) - 1000; int64(twice) != 500-skipped {
		t.Errorf("%d items were written twice; 500 were written before the stop and %d skipped after it", twice, skipped)
	}
}

// TestRun_TellsAnotherInput goes on with an input that differs in what was imported before.
func TestRun_TellsAnotherInput(t *testing.T) {
	k := &kept{}
	state := &ingest.State{}
	if err := ingest.Run(t.Context(), reader(t, lines(100)), state, ingest.Config{Write: k.write}); err != nil {
		t.Fatal(err)
	}
	whole := lines(200)
	old := *state
	old.Sum = "" // of an earlier release
	for name, c := range map[string]struct {
		state ingest.State
		text  string
		want  error
	}{
		"the same, and more":                    {*state, whole, nil},
		"another record among those":            {*state, strings.Replace(whole, "42", "24", 1), ingest.ErrChanged},
		"fewer records":                         {*state, lines(99), ingest.ErrChanged},
		"another record, of an earlier release": {old, strings.Replace(whole, "42", "24", 1), nil},
	} {
		k := &kept{}
		if err := ingest.Run(t.Context(), reader(t, c.text), &c.state, ingest.Config{Write: k.write}); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
		want := 100
		if c.want != nil {
			want = 0
		}
		if len(k.bodies) != want {
			t.Errorf("%s: %d items were written, want %d", name, len(k.bodies), want)
		}
	}
}

func TestRun_WritesWhatStandsBeforeTheEndOfACutFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	k := &kept{}
	state, _, err := ingest.LoadState(file, "f", "c")
	if err != nil {
		t.Fatal(err)
	}
	err = ingest.Run(t.Context(), reader(t, `[{"id":"a"},{"id":"b"},{"id":`), state, ingest.Config{Write: k.write})
	if err == nil || !strings.Contains(err.Error(), "line 1: the file ends inside the array") {
		t.Errorf("error %v", err)
	}
	if len(k.bodies) != 2 || state.Done != 2 || state.Written != 2 {
		t.Errorf("written %q, state %+v", k.bodies, state)
	}
}

func TestLoadState_KnowsAnotherFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	if err := (&ingest.State{Version: 1, Input: "f", Container: "c", Done: 7}).Save(file); err != nil {
		t.Fatal(err)
	}
	if s, stale, err := ingest.LoadState(file, "f", "c"); err != nil || stale || s.Done != 7 {
		t.Errorf("state %+v, %v, %v", s, stale, err)
	}
	if s, stale, err := ingest.LoadState(file, "g", "c"); err != nil || !stale || s.Done != 0 {
		t.Errorf("state %+v, %v, %v", s, stale, err)
	}
	if err := os.WriteFile(file, []byte(`{"version":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ingest.LoadState(file, "f", "c"); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("error %v", err)
	}
}

func FuzzReader(f *testing.F) {
	for _, seed := range []string{`[{"id":"a"},{"id":"b"}]`, "{}\n{}\n", "[", `[,]`, "\x1f\x8b", `["\`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		records, _ := readAll(t, text)
		if len(records) > len(text) {
			t.Errorf("%d records in %d bytes", len(records), len(text))
		}
	})
}

// TestRun_ARefusalOfTheWriterEndsIt: what is refused for another reason than the item would be
// refused with each, and the records behind it must not count as finished.
func TestRun_ARefusalOfTheWriterEndsIt(t *testing.T) {
	for _, refusal := range []*store.Error{
		store.Refuse(store.StatusForbidden, "these credentials may only read"),
		store.Refuse(store.StatusNotFound, "the container was deleted"),
	} {
		k := &kept{fail: func(int, string) error { return refusal }}
		state := &ingest.State{}
		err := ingest.Run(t.Context(), reader(t, lines(100)), state, ingest.Config{Write: k.write, Writers: 1})
		if !errors.Is(err, refusal) || state.Done != 0 || state.Rejected != 0 {
			t.Errorf("%s: error %v, state %+v", refusal, err, state)
		}
	}
}

// TestRun_EndsThoughTheInputWaits: an input that is open and silent keeps back neither the error
// of a writer nor the end of the context.
func TestRun_EndsThoughTheInputWaits(t *testing.T) {
	broken := errors.New("the wire is cut")
	for name, c := range map[string]struct {
		fail error
		want error
	}{
		"a writer fails":   {broken, broken},
		"the context ends": {nil, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			in, to := io.Pipe()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			written := make(chan struct{})
			go func() {
				_, _ = io.WriteString(to, lines(1)+" \n") // NewReader waits for what follows a line's end
				<-written
				if c.fail == nil {
					cancel()
				}
			}()
			r, err := ingest.NewReader(in)
			if err != nil {
				t.Fatal(err)
			}
			var once sync.Once
			err = ingest.Run(ctx, r, &ingest.State{}, ingest.Config{
				Write:     func(context.Context, []byte) error { once.Do(func() { close(written) }); return c.fail },
				Interrupt: func(err error) { _ = in.CloseWithError(err) },
			})
			if !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
		})
	}
}
