package script_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store/script"
)

// newEngine returns an engine whose processes are this test binary.
func newEngine(t testing.TB, cfg script.Config) *script.Engine {
	t.Helper()
	if cfg.Command == nil {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cfg.Command = []string{self}
	}
	e, err := script.NewEngine(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// nothing answers what a script asks where there are no items.
func nothing(_ context.Context, a *script.Ask) *script.Answer {
	return &script.Answer{Status: 404, Message: "there is no item at " + a.Link}
}

func body(t testing.TB, e *script.Engine, text string, args ...string) string {
	t.Helper()
	r, err := e.Run(t.Context(), program(text, args...), nothing)
	if err != nil {
		t.Fatalf("%.200s: %v", text, err)
	}
	return string(r.Body)
}

func program(text string, args ...string) *script.Program {
	return &script.Program{Body: text, Args: json.RawMessage("[" + strings.Join(args, ",") + "]"), SelfLink: "dbs/AA==/colls/BB==/", AltLink: "dbs/a/colls/b"}
}

func TestEngine_Forms(t *testing.T) {
	e := newEngine(t, script.Config{})
	for name, c := range map[string]struct {
		body string
		args []string
		want string
	}{
		"a function without a name": {`function () { getContext().getResponse().setBody(1) }`, nil, `1`},
		"one with a name":           {`function f(a, b) { getContext().getResponse().setBody(a + b) }`, []string{`1`, `2`}, `3`},
		"an arrow":                  {`(a) => __.response.setBody(a.x)`, []string{`{"x":"y"}`}, `"y"`},
		"a method":                  {`serverScript(a) { __.response.setBody(a) }`, []string{`[1]`}, `[1]`},
		"a comment before":          {"// what it does\nfunction f() { __.response.setBody(true) }", nil, `true`},
		"functions beside":          {"function f() { __.response.setBody(g()) }\nfunction g() { return 5 }", nil, `5`},
		"async":                     {`async function () { __.response.setBody(await Promise.resolve(7)) }`, nil, `7`},
		"null":                      {`function (a) { __.response.setBody(a) }`, []string{`null`}, `null`},
		"nothing set":               {`function () {}`, nil, ``},
		"bodies add up":             {`function () { for (i = 0; i < 10; i++) getContext().getResponse().appendValue("Body", i) }`, nil, `"0123456789"`},
		"a body is read back": {
			`function () { for (var i = 0; i < 1000; i++) { var r = getContext().getResponse(); if (i > 0 && r.getBody() !== i - 1) throw "mismatch"; r.setBody(i) } }`, nil, `999`,
		},
		"links":                    {`function () { __.response.setBody([__.getSelfLink(), getContext().getCollection().getAltLink()]) }`, nil, `["dbs/AA==/colls/BB==/","dbs/a/colls/b"]`},
		"half of a pair":           {`function () { __.response.setBody("a\ud800b") }`, nil, `"a\ud800b"`},
		"a member named __proto__": {`function (a) { __.response.setBody(a) }`, []string{`{"__proto__":{"x":1}}`}, `{"__proto__":{"x":1}}`},
	} {
		if got := body(t, e, c.body, c.args...); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestEngine_Callbacks: in the order in which they were asked for, behind the function; an error without one ends the script.
func TestEngine_Callbacks(t *testing.T) {
	e := newEngine(t, script.Config{})
	r, err := e.Run(t.Context(), program(`function () {
		var c = getContext().getCollection(), said = [];
		function note(name) { return function (err, item, options) { said.push(name + (err ? err.number + ":" + err.body : "")); getContext().getResponse().setBody(said) } }
		said.push(c.readDocument("x", note("a")));
		c.readDocument("y", {}, function (err) { note("b")(err); c.readDocument("z", note("d")) });
		c.readDocument("x", note("c"));
		said.push("end");
	}`), nothing)
	if err != nil {
		t.Fatal(err)
	}
	want := `[true,"end","a404:there is no item at x","b404:there is no item at y","c404:there is no item at x","d404:there is no item at z"]`
	if diff := cmp.Diff(want, string(r.Body)); diff != "" {
		t.Error(diff)
	}
	_, err = e.Run(t.Context(), program(`function () { __.readDocument("x") }`), nothing)
	if thrown, ok := errors.AsType[*script.ThrownError](err); !ok || thrown.Status != 404 {
		t.Errorf("without a callback: %v", err)
	}
	refuse := func(context.Context, *script.Ask) *script.Answer { return &script.Answer{Refused: true} }
	r, err = e.Run(t.Context(), program(`function () { __.response.setBody([__.readDocument("x", () => { throw "called" }), __.filter(() => true).isAccepted]) }`), refuse)
	if err != nil || string(r.Body) != `[false,false]` {
		t.Errorf("not accepted: %v %+v", err, r)
	}
}

func TestEngine_IntegratedQueries(t *testing.T) {
	e := newEngine(t, script.Config{})
	rows := func(_ context.Context, a *script.Ask) *script.Answer {
		if a.Op != "query" || a.Query == nil || a.Query.Query != "SELECT * FROM c" {
			return &script.Answer{Status: 400, Message: "no query"}
		}
		return &script.Answer{Status: 200, Body: json.RawMessage(`[{"id":"b","n":2,"t":["x","y"]},{"id":"a","n":1,"t":[]},{"id":"c","n":3}]`), Continuation: "more"}
	}
	for call, want := range map[string]string{
		`__.filter((d) => d.n > 1, function (e, rows, o) { __.response.setBody([rows.length, o.continuation]) })`: `[2,"more"]`,
		`__.filter((d) => d.n > 2)`: `[{"id":"c","n":3}]`,
		`__.map((d) => d.id)`:       `["b","a","c"]`,
		`__.pluck("t")`:             `[["x","y"],[]]`,
		`__.sortBy((d) => d.n, {}, (e, rows) => __.response.setBody(rows.map((d) => d.id)))`:                        `["a","b","c"]`,
		`__.chain().filter((d) => d.n < 3).sortByDescending((d) => d.n).map((d) => d.id).value()`:                   `["b","a"]`,
		`__.chain().pluck("t").flatten().value()`:                                                                   `["x","y"]`,
		`__.chain().unwind((d) => d.t, (d, t) => d.id + t).value({pageSize: 10}, (e, r) => __.response.setBody(r))`: `["bx","by"]`,
	} {
		r, err := e.Run(t.Context(), program("function () { "+call+" }"), rows)
		if err != nil || string(r.Body) != want {
			t.Errorf("%s: %v %s, want %s", call, err, r.Body, want)
		}
	}
}

func TestEngine_Log(t *testing.T) {
	e := newEngine(t, script.Config{})
	p := program(`function () { console.log("The value of %s is %s.", "x", 1); console.error({a: 1}, "é") }`)
	for logging, want := range map[bool]string{true: `The%20value%20of%20x%20is%201.%0A%7B%22a%22%3A1%7D%20%C3%A9`, false: ""} {
		p.Logging = logging
		r, err := e.Run(t.Context(), p, nothing)
		if err != nil || r.Log != want {
			t.Errorf("%v: %v %q", logging, err, r.Log)
		}
	}
	p = program(`function () { for (var i = 0; i < 10000; i++) console.log("é€\ud800") }`)
	p.Logging = true
	r, err := e.Run(t.Context(), p, nothing)
	if err != nil || len(r.Log) > 4<<10 || len(r.Log) < 1<<10 {
		t.Errorf("%v: a log of %d bytes", err, len(r.Log))
	}
}

// TestEngine_Hostile: each script ends in time with its own error, and what runs beside it and behind it goes on.
func TestEngine_Hostile(t *testing.T) {
	soon := newEngine(t, script.Config{Time: 500 * time.Millisecond, MemoryBytes: 16 << 20, ProcessesMax: 2})
	// Time enough to fill the memory on a slow machine.
	late := newEngine(t, script.Config{Time: time.Minute, MemoryBytes: 16 << 20, ProcessesMax: 2})
	for name, c := range map[string]struct {
		body string
		want []error // one of them
	}{
		"endless":                          {`function () { for (;;) {} }`, []error{script.ErrTime}},
		"endless, and catches all":         {`function () { for (;;) { try { for (;;) {} } catch (e) {} finally { continue } } }`, []error{script.ErrTime}},
		"endless callbacks":                {`function () { (function again() { __.readDocument("x", again) })() }`, []error{script.ErrTime}},
		"endless promises":                 {`async function () { for (;;) await 1 }`, []error{script.ErrTime}},
		"an endless generator":             {`function () { Array.from((function* () { for (;;) yield 1 })()) }`, []error{script.ErrTime, script.ErrMemory}},
		"one that looks back":              {`function () { /^(?=(a+)+$)(a|aa)+\1$/.test("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!") }`, []error{script.ErrTime}},
		"a sort that never ends":           {`function () { [3, 2, 1].sort(() => { for (;;) {} }) }`, []error{script.ErrTime}},
		"a getter that never ends":         {`function () { __.response.setBody({ get a() { for (;;) {} } }) }`, []error{script.ErrTime}},
		"an error whose text never ends":   {`function () { throw { toString() { for (;;) {} } } }`, []error{script.ErrTime}},
		"strings that double":              {`function () { var s = "x"; for (;;) s += s }`, []error{script.ErrMemory}},
		"repeat":                           {`function () { return "x".repeat(2 ** 30) + "y".repeat(2 ** 30) }`, []error{script.ErrMemory}},
		"padEnd":                           {`function () { return "x".padEnd(2 ** 30, "é") }`, []error{script.ErrMemory}},
		"a large array":                    {`function () { return new Array(1e9).fill(0).map((x) => [x]) }`, []error{script.ErrMemory, script.ErrTime}},
		"a typed array":                    {`function () { return new Float64Array(1 << 27).fill(1) }`, []error{script.ErrMemory}},
		"many objects":                     {`function () { var all = []; for (;;) all.push({ a: all.length, b: [1, 2, 3] }) }`, []error{script.ErrMemory}},
		"many globals":                     {`function () { for (var i = 0; ; i++) globalThis["x" + i] = [i] }`, []error{script.ErrMemory}},
		"a string that grows in a replace": {`function () { var s = "a".repeat(1e5); return s.replace(/a/g, () => s).length }`, []error{script.ErrMemory, script.ErrTime}},
		"JSON that grows":                  {`function () { var a = "xxxxxxxxxx"; for (;;) a = JSON.stringify([a, a, a, a]) }`, []error{script.ErrMemory}},
		"deep":                             {`function f() { return f() + 1 }`, []error{script.ErrDepth}},
		"deep, by getters":                 {`function () { var a = { get x() { return this.x } }; return a.x }`, []error{script.ErrDepth}},
		"deep, by a proxy":                 {`function () { var p = new Proxy({}, { get(t, k, r) { return r[k] } }); return p.x }`, []error{script.ErrDepth, script.ErrMemory, script.ErrTime}},
		"deep, by toString":                {`function () { var a = { toString() { return "" + this } }; return "" + a }`, []error{script.ErrDepth}},
		"a deep value":                     {`function () { var a = []; for (var i = 0; i < 1e6; i++) a = [a]; __.response.setBody(a) }`, []error{script.ErrDepth, script.ErrMemory, script.ErrTime}},
		"a deep value, made flat":          {`function () { var a = []; for (var i = 0; i < 1e6; i++) a = [a]; return a.flat(Infinity) }`, []error{script.ErrDepth, script.ErrMemory, script.ErrTime}},
		"a deep text":                      {"function () { return " + strings.Repeat("(", 500_000) + "1" + strings.Repeat(")", 500_000) + "}", []error{script.ErrDepth, script.ErrMemory, script.ErrTime}},
		"a deep text in eval":              {`function () { return eval("[".repeat(1e6) + "]".repeat(1e6)) }`, []error{script.ErrDepth, script.ErrMemory, script.ErrTime}},
		"a deep text of JSON":              {`function () { return JSON.parse("[".repeat(1e6) + "]".repeat(1e6)) }`, []error{script.ErrDepth, script.ErrMemory, script.ErrTime}},
	} {
		e := late
		if slices.Contains(c.want, script.ErrTime) {
			e = soon
		}
		began := time.Now()
		_, err := e.Run(t.Context(), program(c.body), nothing)
		took := time.Since(began)
		ok := false
		for _, want := range c.want {
			ok = ok || errors.Is(err, want)
		}
		if !ok {
			t.Errorf("%s: %v, want one of %v", name, err, c.want)
		}
		// A process that is killed is begun again, which takes its time on a slow machine.
		if took > 30*time.Second {
			t.Errorf("%s: it took %s", name, took)
		}
		if got := body(t, e, `function (a) { __.response.setBody(a + 1) }`, `41`); got != `42` {
			t.Errorf("behind %s: %s", name, got)
		}
	}
}

// TestEngine_RefusedMemory: however a process ends to which the system refuses memory, the script is told that it needs too much.
func TestEngine_RefusedMemory(t *testing.T) {
	for _, last := range []string{
		"fatal error: runtime: out of memory",
		"fatal error: runtime: cannot allocate memory",
		"SIGSEGV: segmentation violation",
		"runtime/cgo: pthread_create failed: Resource temporarily unavailable",
		"runtime: failed to create new OS thread (have 9 already; errno=11)",
	} {
		e := newEngine(t, script.Config{Command: []string{
			"/bin/sh", "-c", `echo "millrace script 1"; head -c 1 >/dev/null; echo "$1" >&2; kill -ABRT $$`, "sh", last,
		}})
		if _, err := e.Run(t.Context(), program(`function () {}`), nothing); !errors.Is(err, script.ErrMemory) {
			t.Errorf("%s: %v", last, err)
		}
	}
}

func TestEngine_Results(t *testing.T) {
	e := newEngine(t, script.Config{ResultBytes: 1 << 20})
	if got := body(t, e, `function () { __.response.setBody("x".repeat(1 << 20 - 2)) }`); len(got) < 1<<18 {
		t.Errorf("%d bytes", len(got))
	}
	if _, err := e.Run(t.Context(), program(`function () { __.response.setBody("x".repeat(1 << 20)) }`), nothing); !errors.Is(err, script.ErrResult) {
		t.Error(err)
	}
}

func TestEngine_Throws(t *testing.T) {
	e := newEngine(t, script.Config{})
	for text, want := range map[string]script.ThrownError{
		`function () { throw new Error("no") }`:                                          {Message: "Error: no"},
		`function () { throw "text" }`:                                                   {Message: "text"},
		`function () { throw { number: 412, toString() { return "mine" } } }`:            {Message: "mine", Status: 412},
		`function () { getContext().abort("gone") }`:                                     {Message: "Error: gone", Status: 400},
		`function () { throw Object.create(null) }`:                                      {Message: "it threw something that has no text"},
		`async function () { throw new Error("later") }`:                                 {Message: "Error: later"},
		`function () { nope() }`:                                                         {Message: "ReferenceError: nope is not defined"},
		`1 + 1`:                                                                          {Message: "the body is not a function"},
		`function () { getContext().getRequest() }`:                                      {Message: "Error: a stored procedure has no request; its arguments are those of the function", Status: 400},
		`function () { __.createDocument(__.getSelfLink(), [1]) }`:                       {Message: "Error: an item is a JSON object", Status: 400},
		`function () { __.createDocument(__.getSelfLink(), {}, {}, 5) }`:                 {Message: "Error: the callback is not a function", Status: 400},
		`function () { getContext().getCollection().createAttachment("x", {}) }`:         {Message: "Error: createAttachment: attachments are not served", Status: 400},
		`function () { "use strict"; getContext().getCollection().readDocument = null }`: {Message: "TypeError: Cannot assign to read only property 'readDocument'"},
		`function () { var a = {}; a.a = a; __.response.setBody(a) }`:                    {Message: "TypeError: Converting circular structure to JSON"},
	} {
		_, err := e.Run(t.Context(), program(text), nothing)
		got, ok := errors.AsType[*script.ThrownError](err)
		if !ok || got.Status != want.Status || !strings.HasPrefix(got.Message, want.Message) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
	for _, text := range []string{"function () {", "", "}", "function () { return } }", "({}", "\x00"} {
		_, err := e.Run(t.Context(), program(text), nothing)
		if _, ok := errors.AsType[*script.ThrownError](err); !ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestEngine_NothingIsLeft of a run for the next one in the same process.
func TestEngine_NothingIsLeft(t *testing.T) {
	e := newEngine(t, script.Config{ProcessesMax: 1})
	body(t, e, `function () { globalThis.mine = 1; Array.prototype.mine = 2; JSON.stringify = () => "taken"; Object.defineProperty(Object.prototype, "op", { get() { return "read" }, configurable: true }); getContext = null }`)
	if got := body(t, e, `function () { getContext().getResponse().setBody([typeof mine, [].mine === undefined, JSON.stringify([1]), ({}).op === undefined]) }`); got != `["undefined",true,"[1]",true]` {
		t.Error(got)
	}
}

// TestEngine_NothingElseIsReadable: no modules, no process, no environment, no files; the parser reads none either.
func TestEngine_NothingElseIsReadable(t *testing.T) {
	e := newEngine(t, script.Config{})
	got := body(t, e, `function () {
		__.response.setBody(["require", "process", "fetch", "XMLHttpRequest", "WebAssembly", "setTimeout", "Deno", "module", "exports", "load", "read", "print", "global", "window"].filter((name) => name in globalThis));
	}`)
	if got != `[]` {
		t.Errorf("a script finds %s", got)
	}
	// A file of a name that a text says: the error of a source map that is none tells that it was opened.
	secret := filepath.Join(t.TempDir(), "secret.map")
	if err := os.WriteFile(secret, []byte("not a map"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"function () { __.response.setBody(1) }\n//# sourceMappingURL=" + secret,
		"function () { eval(\"2\\n//# sourceMappingURL=" + secret + "\"); __.response.setBody(1) }",
		"function () { new Function(\"return 2\\n//# sourceMappingURL=" + secret + "\")(); __.response.setBody(1) }",
	} {
		if got := body(t, e, text); got != `1` {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// TestEngine_APanicTakesNoPlace: where what answers a script panics, the next script has its place, and a process of its own.
func TestEngine_APanicTakesNoPlace(t *testing.T) {
	e := newEngine(t, script.Config{ProcessesMax: 1, Time: 30 * time.Second})
	for range 2 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was lost")
				}
			}()
			_, _ = e.Run(t.Context(), program(`function () { __.readDocument("x", () => {}) }`), func(context.Context, *script.Ask) *script.Answer { panic("a fault") })
		}()
	}
	if got := body(t, e, `function () { __.response.setBody(1) }`); got != `1` {
		t.Error(got)
	}
}

// TestEngine_Waits: more than may run at once wait, and those that wait too long are told so.
func TestEngine_Waits(t *testing.T) {
	e := newEngine(t, script.Config{ProcessesMax: 1, Time: 300 * time.Millisecond})
	held, free := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = e.Run(context.WithoutCancel(t.Context()), program(`function () { __.readDocument("x", () => {}) }`), func(context.Context, *script.Ask) *script.Answer {
			close(held)
			<-free
			return &script.Answer{Status: 404}
		})
	})
	<-held
	if _, err := e.Run(t.Context(), program(`function () {}`), nothing); !errors.Is(err, script.ErrBusy) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Run(ctx, program(`function () {}`), nothing); !errors.Is(err, script.ErrBusy) {
		t.Error(err)
	}
	close(free)
	wg.Wait()
}

// TestEngine_GivenUp: a client that goes away ends its script at once.
func TestEngine_GivenUp(t *testing.T) {
	e := newEngine(t, script.Config{Time: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	asked := func(context.Context, *script.Ask) *script.Answer { cancel(); return &script.Answer{Status: 404} }
	_, err := e.Run(ctx, program(`function () { __.readDocument("x", () => { for (;;) {} }) }`), asked)
	if !errors.Is(err, context.Canceled) || time.Since(began) > 30*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}

func TestEngine_OtherPrograms(t *testing.T) {
	e, err := script.NewEngine(script.Config{Command: []string{"/bin/echo", "hello"}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Run(t.Context(), program(`function () {}`), nothing); err == nil || !strings.Contains(err.Error(), "did not say that it runs scripts") {
		t.Error(err)
	}
	for _, wrong := range []script.Config{{}, {Command: []string{"x"}, Time: time.Hour}, {Command: []string{"x"}, MemoryBytes: 1}, {Command: []string{"x"}, DepthMax: 1}, {Command: []string{"x"}, ProcessesMax: 1000}, {Command: []string{"x"}, ResultBytes: 1}} {
		if _, err := script.NewEngine(wrong); err == nil {
			t.Errorf("%+v is taken", wrong)
		}
	}
}

// FuzzEngine: whatever a script is, it ends, with a result that is JSON or an error, and the next one runs.
func FuzzEngine(f *testing.F) {
	for _, seed := range []string{
		`function () { return 1 }`, `async () => { throw 1 }`, `x => __.response.setBody(x)`, `function () { __.chain().map(1).value() }`,
		`function(){for(;;){}}`, `class A { constructor() { this.a = new A } }`, `function () { throw { get number() { throw 1 } } }`, "`${x}`", `/(?:/`,
	} {
		f.Add(seed)
	}
	e := newEngine(f, script.Config{Time: 100 * time.Millisecond, MemoryBytes: 8 << 20, ProcessesMax: 1})
	f.Fuzz(func(t *testing.T, text string) {
		r, err := e.Run(t.Context(), program(text, `1`), nothing)
		if err == nil && len(r.Body) > 0 && !json.Valid(r.Body) {
			t.Errorf("%q made %q", text, r.Body)
		}
		if got := body(t, e, `function () { __.response.setBody(1) }`); got != `1` {
			t.Errorf("behind %q: %s", text, got)
		}
	})
}
