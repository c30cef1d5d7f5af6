package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/status"
)

func TestHighlight(t *testing.T) {
	for raw, want := range map[string]string{
		`{"a<":"</script>","n":-1.5e3,"ok":true,"q":"\"x\\"}`: "{\n" +
			`  <span class="key">&#34;a&lt;&#34;</span>: <span class="text">&#34;&lt;/script&gt;&#34;</span>,` + "\n" +
			`  <span class="key">&#34;n&#34;</span>: <span class="number">-1.5e3</span>,` + "\n" +
			`  <span class="key">&#34;ok&#34;</span>: <span class="word">true</span>,` + "\n" +
			`  <span class="key">&#34;q&#34;</span>: <span class="text">&#34;\&#34;x\\&#34;</span>` + "\n}",
		`<no json>`: `&lt;no json&gt;`,
		`[]`:        `[]`,
	} {
		if got := string(highlight([]byte(raw))); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", raw, got, want)
		}
	}
}

func FuzzHighlight(f *testing.F) {
	f.Add([]byte(`{"a":["<b>",1e5,null]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		page := string(highlight(raw))
		for _, tag := range []string{`<span class="key">`, `<span class="text">`, `<span class="number">`, `<span class="word">`, `</span>`} {
			page = strings.ReplaceAll(page, tag, "")
		}
		if strings.ContainsAny(page, "<>") {
			t.Errorf("%q is shown as %q", raw, page)
		}
	})
}

func TestWhereSigningInLeads(t *testing.T) {
	for to, want := range map[string]string{
		"": "/", "/query?q=1": "/query?q=1", "//evil.example": "/", `/\evil.example`: "/", "https://evil.example": "/", "/\t/evil.example": "/",
	} {
		if got := local(to); got != want {
			t.Errorf("%q leads to %q, want %q", to, got, want)
		}
	}
}

func TestWhoNamesTheLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "localhost:8082": true, "127.0.0.1:8082": true, "127.0.0.2": true, "[::1]:8082": true, "[::1]": true,
		"evil.example": false, "evil.example:8082": false, "10.0.0.1": false, "localhost.evil.example": false, "": false,
	} {
		if got := IsLoopback(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}

// with is a request of the browser that has a session.
func with(number string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: cookieName(r), Value: number})
	return r
}

func TestSessions(t *testing.T) {
	right := map[string]Role{"reads": RoleRead, "writes": RoleWrite}
	s := newSessions(func(key string) Role { return right[key] })
	reads, writes := s.begin(session{key: "reads"}), s.begin(session{key: "writes"})
	if s.roleOf(with(reads)) != RoleRead || s.roleOf(with(writes)) != RoleWrite || s.roleOf(with("guessed")) != RoleNone {
		t.Error("a session has another right than its key")
	}
	delete(right, "writes")
	if role := s.roleOf(with(writes)); role != RoleNone {
		t.Errorf("the session of a key that was replaced may %d", role)
	}
	ticket := s.ticket(RoleWrite)
	number, ok := s.redeem(ticket)
	if !ok || s.roleOf(with(number)) != RoleWrite {
		t.Error("a ticket signs nobody in")
	}
	if _, ok := s.redeem(ticket); ok {
		t.Error("a ticket serves twice")
	}
	old := s.ticket(RoleWrite)
	for _, of := range s.tickets {
		of.began = of.began.Add(-ticketTimeout - time.Second)
	}
	if _, ok := s.redeem(old); ok {
		t.Error("an old ticket serves")
	}
	s.end(with(number))
	if s.roleOf(with(number)) != RoleNone {
		t.Error("a session goes on after its end")
	}
	for _, of := range s.open {
		of.used = of.used.Add(-sessionTimeout - time.Second)
	}
	if s.roleOf(with(reads)) != RoleNone {
		t.Error("a session that was not used for long goes on")
	}
	first := s.begin(session{key: "reads"})
	for range sessionsMax {
		s.begin(session{key: "reads"})
	}
	if len(s.open) > sessionsMax || s.roleOf(with(first)) != RoleNone {
		t.Errorf("%d sessions are kept", len(s.open))
	}
}

func TestMap(t *testing.T) {
	cascades := func(names ...string) (records []registry.Record) {
		for _, name := range names {
			from, to, _ := strings.Cut(name, "-")
			records = append(records, registry.Record{Database: "d", Name: name, Spec: spec.PipelineSpec{
				Source: spec.Source{Container: from}, Cascade: &spec.Cascade{Into: to},
			}})
		}
		return records
	}
	for _, c := range []struct {
		name    string
		records []registry.Record
		columns map[string]int
	}{
		{"none", nil, map[string]int{}},
		{"a chain", cascades("b-c", "a-b"), map[string]int{"a": 0, "a-b": 1, "b": 2, "b-c": 3, "c": 4}},
		{"two ways", cascades("a-b", "b-c", "a-c"), map[string]int{"a": 0, "a-b": 1, "a-c": 1, "b": 2, "b-c": 3, "c": 4}},
		{"itself", cascades("a-a"), map[string]int{"a": 0, "a-a": 1}},
		{"a circle", cascades("a-b", "b-a"), map[string]int{"a": 0, "b": 0, "a-b": 1, "b-a": 1}},
	} {
		page := draw(c.records, func(string) *status.Pipeline { return nil })
		got := map[string]int{}
		for _, b := range page.Boxes {
			got[b.Name] = b.column
		}
		if !maps.Equal(got, c.columns) {
			t.Errorf("%s: %v, want %v", c.name, got, c.columns)
		}
		if len(page.Arrows) != 2*len(c.records) {
			t.Errorf("%s: %d arrows", c.name, len(page.Arrows))
		}
	}
}

// A map of many pipelines that all lead to each other is laid out in the time of its links.
func TestMapOfMany(t *testing.T) {
	var links []link
	boxes := make([]*mapBox, 300)
	for i := range boxes {
		boxes[i] = &mapBox{}
	}
	for i, from := range boxes {
		for j, to := range boxes {
			if j > i || i == 299 && j == 150 { // the second half is a circle
				links = append(links, link{from, &mapBox{}, to})
			}
		}
	}
	rank(links)
	if at := boxes[149].column; at != 2*149 {
		t.Errorf("the last one before the circle is in column %d", at)
	}
	for _, i := range []int{150, 200, 299} {
		if at := boxes[i].column; at != 2*150 {
			t.Errorf("box %d of the circle is in column %d", i, at)
		}
	}
}

// deadlined is an answer that keeps the last bound of the reading of a body.
type deadlined struct {
	*httptest.ResponseRecorder
	read time.Time
}

func (d *deadlined) SetReadDeadline(t time.Time) error {
	d.read = t
	return nil
}

// TestFormsOfStrangers sends forms with and without a session: who is not signed in holds a connection
// for a short time alone.
func TestFormsOfStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(&Config{KeyRole: func(string) Role { return RoleNone }})
		for _, f := range []struct {
			path     string
			signedIn bool
			want     time.Duration
		}{
			{"/sign-in", false, signInTimeout},
			{"/sign-out", false, signInTimeout},
			{"/work/none/stop", false, signInTimeout},
			{"/none", false, signInTimeout},
			{"/work/none/stop", true, bodyTimeout},
		} {
			r := httptest.NewRequest(http.MethodPost, f.path, strings.NewReader("key=none"))
			if f.signedIn {
				r.AddCookie(&http.Cookie{Name: cookieName(r), Value: c.sessions.begin(session{role: RoleWrite})})
			}
			w := &deadlined{ResponseRecorder: httptest.NewRecorder()}
			c.ServeHTTP(w, r)
			if got := time.Until(w.read); got != f.want {
				t.Errorf("%s, signed in %t: a form has %s, want %s", f.path, f.signedIn, got, f.want)
			}
		}
	})
}

func TestViewersAreBounded(t *testing.T) {
	s := newSampler(inspect.New(&inspect.Config{}))
	for range viewersMax {
		if err := s.join(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.join(); err == nil {
		t.Error("one too many joins")
	}
	s.leave()
	if err := s.join(); err != nil {
		t.Errorf("after one left: %v", err)
	}
}

// Answers of queries are held while they are taken: one more than are allowed is refused, and let in
// when one has gone.
func TestQueriesAreBounded(t *testing.T) { synctest.Test(t, queriesAreBounded) }

func queriesAreBounded(t *testing.T) {
	t.Helper()
	turns := make(chan struct{}, queriesMax)
	for range queriesMax {
		if err := awaitTurn(t.Context(), turns, "full"); err != nil {
			t.Fatal(err)
		}
	}
	gone, stop := context.WithCancel(t.Context())
	stop()
	if err := awaitTurn(gone, turns, "full"); !errors.Is(err, context.Canceled) {
		t.Errorf("one whose client has gone: %v", err)
	}
	if refused, ok := errors.AsType[*refusal](awaitTurn(t.Context(), turns, "full")); !ok || refused.status != http.StatusTooManyRequests {
		t.Errorf("one more than are allowed: %v", refused)
	}
	<-turns
	if err := awaitTurn(t.Context(), turns, "full"); err != nil {
		t.Errorf("when one has gone: %v", err)
	}
}

func TestWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		s, over := newWorks(slog.New(slog.DiscardHandler)), make(chan struct{})
		go func() {
			defer close(over)
			s.run(ctx)
		}()
		until := func(ctx context.Context, _ tellFunc) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		first, err := s.begin("first", until)
		if err != nil {
			t.Fatal(err)
		}
		second, err := s.begin("second", until)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.begin("third", until); statusOf(err) != http.StatusTooManyRequests {
			t.Errorf("one too many: %v", err)
		}
		synctest.Wait()
		first.cancel(errWorkStopped)
		<-first.ended
		if err := first.now().Err; !errors.Is(err, errWorkStopped) {
			t.Errorf("work that was stopped ends with %v", err)
		}
		<-second.ended
		if err := second.now().Err; !errors.Is(err, errWorkTimeout) {
			t.Errorf("work that took too long ends with %v", err)
		}
		panics, err := s.begin("panics", func(context.Context, tellFunc) (any, error) { panic("why") })
		if err != nil {
			t.Fatal(err)
		}
		<-panics.ended
		if err := panics.now().Err; !errors.Is(err, errPanicked) || !strings.Contains(err.Error(), "why") || panics.do != nil {
			t.Errorf("work that panics ends with %v", err)
		}
		for range 2 * workKept {
			w, err := s.begin("short", func(context.Context, tellFunc) (any, error) { return 1, nil })
			if err != nil {
				t.Fatal(err)
			}
			<-w.ended
		}
		if n := len(s.list()); n != workKept || s.get(first.ID) != nil {
			t.Errorf("%d are kept", n)
		}
		last, err := s.begin("last", until)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		end()
		<-over
		if !last.now().Over() {
			t.Error("work goes on behind the end")
		}
	})
}

// Rows that are deep are answered in about as many bytes as they have: indented, each of these
// elements of two bytes would stand behind four hundred spaces.
func TestWhatIsLargeIsNotIndented(t *testing.T) {
	const depth = 200
	row := strings.Repeat("[", depth) + strings.Repeat("0,", indentMax) + "0" + strings.Repeat("]", depth)
	answer := httptest.NewRecorder()
	if err := writeJSON(answer, []json.RawMessage{json.RawMessage(row)}); err != nil {
		t.Fatal(err)
	}
	if n := answer.Body.Len(); n > len(row)+10 {
		t.Errorf("a row of %d bytes is answered in %d", len(row), n)
	}
	answer = httptest.NewRecorder()
	if err := writeJSON(answer, map[string]any{"a": "<b>"}); err != nil || answer.Body.String() != "{\n  \"a\": \"<b>\"\n}\n" {
		t.Errorf("%v, %s", err, answer.Body)
	}
}

func TestWhatIsLargeIsCut(t *testing.T) {
	deep := strings.Repeat("[", 120) + strings.Repeat("1,", 400_000) + "1" + strings.Repeat("]", 120)
	if n := len(highlight([]byte(deep))); n > 2*len(deep) {
		t.Errorf("an item of %d bytes is shown in %d", len(deep), n)
	}
	p := queryPage{Rows: [][]byte{[]byte(`{"a":"` + strings.Repeat("x", 1<<20) + `"}`)}}
	p.table(cellMax)
	if n := len(p.Cells[0][0]); n > cellMax+len("…") {
		t.Errorf("a cell has %d bytes", n)
	}
	for cell, want := range map[string]string{"=1+1": "'=1+1", "-1.5": "-1.5", "-x": "'-x", "@a": "'@a", "a=1": "a=1", "": ""} {
		if got := harmless(cell); got != want {
			t.Errorf("%q is %q in a file, want %q", cell, got, want)
		}
	}
}

func TestFindings(t *testing.T) {
	const declared = "apiVersion: millrace/v1\nkind: Pipeline\nmetadata: {name: p}\nspec:\n  source: {container: c}\n" +
		"  project:\n    tables: {t: {key: [id], columns: {id: id}}}\n    sink:\n      postgres:\n        dsnEnv: postgres://u:hidden@h/db\n"
	find := func(texts ...spec.Text) *planned {
		p := &planned{Form: &planForm{Files: texts}}
		_, err := spec.LoadTexts(texts)
		findings, ok := findingsOf(err)
		if !ok {
			t.Fatalf("what is wrong is found as %v", err)
		}
		p.find(findings)
		return p
	}
	other := spec.Text{Name: "other", Data: []byte("apiVersion: millrace/v1\nkind: Container\nmetadata: {name: c}\nspec: {partitionKey: [/id], partitions: no}\n")}
	p := find(spec.Text{Name: "secret", Data: []byte(declared)}, other)
	said := fmt.Sprint(p.Findings)
	if !strings.Contains(said, "dsnEnv is not the name of an environment variable") || strings.Contains(said, "hidden") {
		t.Errorf("what may be a secret is told as %s", said)
	}
	if len(p.Excerpts) != 1 || p.Excerpts[0].Name != "other" {
		t.Errorf("what is shown is %v", p.Excerpts)
	}
	many := spec.Text{Name: "many", Data: []byte(strings.Repeat("apiVersion: millrace/v1\nkind: Nothing\n---\n", findingsMax+5))}
	if p = find(many); len(p.Findings) != findingsMax+1 || !strings.Contains(p.Findings[findingsMax].Message, "more") {
		t.Errorf("%d findings are listed, the last is %v", len(p.Findings), p.Findings[len(p.Findings)-1])
	}
	if lines := len(p.Excerpts[0].Lines); lines > 2*excerptMax {
		t.Errorf("%d lines are shown", lines)
	}
}
