package gateway_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store/gateway"
)

// outcome is one operation's.
type outcome struct {
	StatusCode, SubStatusCode int
	RequestCharge             float64
	ETag                      string          `json:"eTag"`
	ResourceBody              json.RawMessage `json:"resourceBody"`
}

func (a *answer) outcomes(want ...int) []outcome {
	a.t.Helper()
	var all []outcome
	a.into(&all)
	var got []int
	for _, o := range all {
		got = append(got, o.StatusCode)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		a.t.Errorf("%s: %s\n%s", a.what, diff, a.body)
	}
	return all
}

// A batch holds as a whole: later operations see earlier ones, and if one fails
// nothing happened.
func TestBatch_HoldsAsAWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	batch := func(body string, more ...string) *answer {
		t.Helper()
		return w.ask("POST", docs, body, append([]string{keyHeader, `["a"]`, isBatch, "True", atomic, "true"}, more...)...)
	}
	all := batch(`[
		{"operationType":"Create","resourceBody":{"id":"1","pk":"a","n":1}},
		{"operationType":"Patch","id":"1","resourceBody":{"operations":[{"op":"incr","path":"/n","value":1}]}},
		{"operationType":"Read","id":"1"},
		{"operationType":"Upsert","resourceBody":{"id":"2","pk":"a"}},
		{"operationType":"Replace","id":"2","resourceBody":{"id":"2","pk":"a","n":1}},
		{"operationType":"Delete","id":"2"}
	]`).is(200).outcomes(201, 200, 200, 201, 200, 204)
	if !strings.Contains(string(all[2].ResourceBody), `"n":2`) || all[2].ETag == "" || all[0].RequestCharge <= 0 {
		t.Errorf("the read says %+v", all[2])
	}
	before := w.ask("GET", docs+"/1", "", keyHeader, `["a"]`).is(200)
	etag, err := json.Marshal(before.header.Get("etag"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		last      string
		status    int
		substatus int
	}{
		"a conflict":                {`{"operationType":"Create","resourceBody":{"id":"1","pk":"a"}}`, 409, 0},
		"a missing item":            {`{"operationType":"Replace","id":"9","resourceBody":{"id":"9","pk":"a"}}`, 404, 0},
		"another etag":              {`{"operationType":"Delete","id":"1","ifMatch":"\"0000000000000001-0\""}`, 412, 0},
		"an etag of another world":  {`{"operationType":"Delete","id":"1","ifMatch":"abc"}`, 412, 0},
		"a condition that is false": {`{"operationType":"Patch","id":"1","resourceBody":{"condition":"from c where c.n > 9","operations":[{"op":"set","path":"/n","value":0}]}}`, 412, 1110},
		"another partition key":     {`{"operationType":"Create","resourceBody":{"id":"7","pk":"b"}}`, 400, 1001},
		"no id":                     {`{"operationType":"Create","resourceBody":{"pk":"a"}}`, 400, 0},
		"an operation that is none": {`{"operationType":"Execute","id":"1"}`, 400, 0},
		"a patch that cannot be":    {`{"operationType":"Patch","id":"1","resourceBody":{"operations":[{"op":"remove","path":"/none"}]}}`, 400, 0},
	} {
		t.Run(name, func(t *testing.T) {
			all := batch(`[{"operationType":"Create","resourceBody":{"id":"new","pk":"a"}},`+c.last+`,{"operationType":"Read","id":"1"}]`).
				is(207).outcomes(424, c.status, 424)
			if all[1].SubStatusCode != c.substatus {
				t.Errorf("substatus %d, want %d", all[1].SubStatusCode, c.substatus)
			}
			w.ask("GET", docs+"/new", "", keyHeader, `["a"]`).is(404)
			if a := w.ask("GET", docs+"/1", "", keyHeader, `["a"]`).is(200); string(a.body) != string(before.body) {
				t.Errorf("the item was %s and is %s", before.body, a.body)
			}
		})
	}
	batch(fmt.Sprintf(`[{"operationType":"Patch","id":"1","ifMatch":%s,"resourceBody":[{"op":"set","path":"/n","value":0}]}]`, etag)).is(200).outcomes(200)
	minimal := batch(`[{"operationType":"Upsert","resourceBody":{"id":"1","pk":"a"}},{"operationType":"Read","id":"1"}]`, "Prefer", "return=minimal").is(200).outcomes(200, 200)
	if minimal[0].ResourceBody != nil || minimal[1].ResourceBody == nil {
		t.Errorf("return=minimal leaves out the bodies of writes alone: %+v", minimal)
	}
}

func TestBatch_Refusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	read := `{"operationType":"Read","id":"1"}`
	many := "[" + strings.TrimSuffix(strings.Repeat(read+",", 101), ",") + "]"
	body := `{"id":"1","pk":"a","text":"` + strings.Repeat("x", 1100<<10) + `"}`
	large := `[{"operationType":"Upsert","resourceBody":` + body + `},{"operationType":"Upsert","resourceBody":` + body + `}]`
	for name, c := range map[string]struct {
		body   string
		key    string
		status int
	}{
		"too many operations": {many, `["a"]`, 400},
		"no operation":        {`[]`, `["a"]`, 400},
		"no list":             {read, `["a"]`, 400},
		"no key":              {"[" + read + "]", "", 400},
		"two levels of key":   {"[" + read + "]", `["a","b"]`, 400},
		"too many bytes":      {large, `["a"]`, 413},
		"far too many bytes":  {strings.Repeat(" ", 5<<20), `["a"]`, 413},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.ask("POST", docs, c.body, keyHeader, c.key, isBatch, "True", atomic, "True")
			if a.is(c.status, a.header.Get("x-ms-substatus")); a.header.Get("x-ms-substatus") != "" && name != "two levels of key" {
				t.Errorf("substatus %s", a.header.Get("x-ms-substatus"))
			}
		})
	}
	w.ask("GET", docs+"/1", "", keyHeader, `["a"]`).is(404)
}

// The .NET SDK writes batches in a binary form. It learns that this is the reason, in a batch and in bulk, and nothing is written.
func TestBatch_HybridRowIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	// The begin of a segment of records: version, and the number of its schema.
	const body = "\x81\xf0\xd8\xff\x7f\x07\x03\x00\x00\x00"
	for _, whole := range []string{"true", "false"} {
		a := w.ask("POST", docs, body, keyHeader, `["a"]`, isBatch, "True", atomic, whole).is(400)
		if !strings.Contains(string(a.body), "HybridRow") || !strings.Contains(string(a.body), ".NET") {
			t.Errorf("atomic %s: %s", whole, a.body)
		}
	}
	if rows := w.query("SELECT VALUE COUNT(1) FROM c"); rows[0] != "0" {
		t.Errorf("%s items are there", rows[0])
	}
}

// In bulk each operation stands for itself.
func TestBulk_EachForItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 2})
	w.container("things", byPK)
	bulk := func(body string, more ...string) *answer {
		t.Helper()
		return w.ask("POST", docs, body, append([]string{isBatch, "true", atomic, "false", goesOn, "true"}, more...)...)
	}
	bulk(`[
		{"operationType":"Create","partitionKey":"[\"a\"]","resourceBody":{"id":"1","pk":"a"}},
		{"operationType":"Create","partitionKey":"[\"a\"]","resourceBody":{"id":"1","pk":"a"}},
		{"operationType":"Create","partitionKey":"[\"b\"]","resourceBody":{"id":"1","pk":"b"}},
		{"operationType":"Create","resourceBody":{"id":"1","pk":3}},
		{"operationType":"Read","partitionKey":"[{}]","id":"none"},
		{"operationType":"Create","partitionKey":"[\"c\"]","resourceBody":{"id":"1","pk":"a"}},
		{"operationType":"Patch","partitionKey":"[\"a\"]","id":"1","resourceBody":[{"op":"add","path":"/n","value":1}]},
		{"operationType":"Delete","id":"1"}
	]`).is(207).outcomes(201, 409, 201, 201, 404, 400, 200, 400)
	bulk(`[{"operationType":"Read","partitionKey":"[\"a\"]","id":"1"},{"operationType":"Read","partitionKey":"[3]","id":"1"}]`).is(200).outcomes(200, 200)
	// Without going on, what stands behind a failure is not carried out.
	bulk(`[{"operationType":"Delete","partitionKey":"[\"x\"]","id":"1"},{"operationType":"Delete","partitionKey":"[\"a\"]","id":"1"}]`, goesOn, "false").is(207).outcomes(404, 424)
	w.ask("GET", docs+"/1", "", keyHeader, `["a"]`).is(200)
	// A client that placed an operation in the wrong range learns that.
	got := bulk(`[{"operationType":"Read","partitionKey":"[\"a\"]","id":"1"},{"operationType":"Read","partitionKey":"[\"b\"]","id":"1"},{"operationType":"Read","partitionKey":"[3]","id":"1"}]`, rangeHeader, "0").is(207)
	var all []outcome
	got.into(&all)
	gone := 0
	for _, o := range all {
		if o.StatusCode == 410 && o.SubStatusCode == 1002 {
			gone++
		}
	}
	if gone == 0 || gone == 3 {
		t.Errorf("%d of 3 operations are not in range 0: %s", gone, got.body)
	}
	bulk(`[{"operationType":"Read","partitionKey":"[\"a\"]","id":"1"}]`, rangeHeader, "7").is(410, "1002")
}

// The session token of an answer tells what was seen by it, also by what failed.
func TestBatch_SessionTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 2})
	w.container("things", byPK)
	of := map[string]string{} // the token after the last write, by range
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		token := w.ask("POST", docs, `{"id":"1","pk":"`+key+`"}`, keyHeader, `["`+key+`"]`).is(201).header.Get("x-ms-session-token")
		number, _, _ := strings.Cut(token, ":")
		of[number] = token
	}
	if len(of) != 2 {
		t.Fatalf("the keys lie in ranges %v, want two", of)
	}
	mine := w.ask("GET", docs+"/1", "", keyHeader, `["a"]`).is(200).header.Get("x-ms-session-token")
	read := func(key, id string) string {
		return `{"operationType":"Read","partitionKey":"[\"` + key + `\"]","id":"` + id + `"}`
	}
	for name, c := range map[string]struct {
		body   string
		with   []string
		status int
		token  string
	}{
		"a batch that reads":           {`[` + read("a", "1") + `,` + read("a", "1") + `]`, []string{keyHeader, `["a"]`, atomic, "true"}, 200, mine},
		"a batch that fails":           {`[` + read("a", "1") + `,{"operationType":"Create","resourceBody":{"id":"1","pk":"a"}}]`, []string{keyHeader, `["a"]`, atomic, "true"}, 207, mine},
		"a batch of one that is wrong": {`[{"operationType":"Create","resourceBody":{"pk":"a"}}]`, []string{keyHeader, `["a"]`, atomic, "true"}, 207, ""},
		"bulk in all ranges": {
			`[` + read("a", "1") + `,` + read("b", "1") + `,` + read("c", "1") + `,` + read("d", "9") + `,` + read("e", "9") + `]`,
			[]string{atomic, "false", goesOn, "true"},
			207, of["0"] + "," + of["1"],
		},
		"bulk that fails": {`[{"operationType":"Delete","partitionKey":"[\"a\"]","id":"9"}]`, []string{atomic, "false", goesOn, "true"}, 207, mine},
		"bulk that fails, in order": {
			`[{"operationType":"Create","resourceBody":{"id":"1","pk":"a"}},` + read("a", "1") + `]`, []string{atomic, "false"}, 207, mine,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.ask("POST", docs, c.body, append([]string{isBatch, "true"}, c.with...)...)
			if got := a.header.Get("x-ms-session-token"); a.status != c.status || got != c.token {
				t.Errorf("status %d, session token %q; want %d, %q: %s", a.status, got, c.status, c.token, a.body)
			}
		})
	}
	// What is written in bulk is the session's too.
	a := w.ask("POST", docs, `[{"operationType":"Create","resourceBody":{"id":"2","pk":"a"}}]`, isBatch, "true", atomic, "false").is(200)
	if got, now := a.header.Get("x-ms-session-token"), w.ask("GET", docs+"/2", "", keyHeader, `["a"]`).is(200).header.Get("x-ms-session-token"); got != now || got == mine {
		t.Errorf("session token %q, a read has %q", got, now)
	}
}

// The answers of a request are bounded together: a hundred reads of one large item are a few
// kilobytes.
func TestBulk_AnswersAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{RequestTimeout: time.Minute})
	w.container("things", byPK)
	w.ask("POST", docs, `{"id":"big","pk":"a","n":0,"text":"`+strings.Repeat("x", 1900<<10)+`"}`, keyHeader, `["a"]`).is(201)
	bulk := func(operation string, times int) (statuses map[string]int, answered, bytes int) {
		t.Helper()
		got := w.ask("POST", docs, "["+strings.Repeat(operation+",", times-1)+operation+"]", isBatch, "true", atomic, "false", goesOn, "true")
		var all []struct {
			StatusCode, SubStatusCode int
			ResourceBody              map[string]any
		}
		got.into(&all)
		statuses = map[string]int{}
		for _, o := range all {
			statuses[fmt.Sprint(o.StatusCode, " ", o.SubStatusCode)]++
			if o.ResourceBody != nil {
				answered++
			}
		}
		return statuses, answered, len(got.body)
	}
	statuses, answered, bytes := bulk(`{"operationType":"Read","partitionKey":"[\"a\"]","id":"big"}`, 100)
	if statuses["200 0"] != 2 || statuses["413 3402"] != 98 || answered != 2 || bytes > 8<<20 {
		t.Errorf("reads: %v, %d with an item, %d bytes", statuses, answered, bytes)
	}
	// What was written was written, with its item or without.
	statuses, answered, bytes = bulk(`{"operationType":"Patch","partitionKey":"[\"a\"]","id":"big","resourceBody":[{"op":"incr","path":"/n","value":1}]}`, 4)
	if statuses["200 0"] != 4 || answered != 2 || bytes > 8<<20 {
		t.Errorf("patches: %v, %d with an item, %d bytes", statuses, answered, bytes)
	}
	if n := w.ask("GET", docs+"/big", "", keyHeader, `["a"]`).is(200).object()["n"]; fmt.Sprint(n) != "4" {
		t.Errorf("after four patches n is %v", n)
	}
}

// Lists of more elements than are allowed are counted and not decoded: three bytes can stand for an
// element of a hundred. No test may run beside, since what all goroutines allocate is counted.
func TestBodies_ListsThatAreTooLongAreNotDecoded(t *testing.T) {
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.ask("POST", docs, `{"id":"1","pk":"a"}`, keyHeader, `["a"]`).is(201)
	list := func(bytes int) string { return "[" + strings.Repeat("{},", bytes/3) + "{}]" }
	one := []string{keyHeader, `["a"]`}
	for name, c := range map[string]struct {
		method, path, body string
		headers            []string
		want               string // in the message
		most               uint64 // bytes
	}{
		"a batch": {"POST", docs, list(4<<20 - 16), append(one, isBatch, "True", atomic, "true"), "the batch has 1398097 operations; 1 to 100 are allowed", 48 << 20},
		"in bulk": {"POST", docs, list(4<<20 - 16), []string{isBatch, "True", atomic, "false"}, "the batch has 1398097 operations; 1 to 100 are allowed", 48 << 20},
		"a patch": {"PATCH", docs + "/1", list(2<<20 - 64), one, "the patch has 699030 operations; 1 to 10 are allowed", 24 << 20},
		"a patch with a condition": {
			"PATCH", docs + "/1", `{"condition":"from c","operations":` + list(2<<20-64) + "}", one, "the patch has 699030 operations; 1 to 10 are allowed", 24 << 20,
		},
		"parameters": {
			"POST", docs, `{"query":"SELECT * FROM c","parameters":` + list(1<<20-64) + "}",
			[]string{isQuery, "true", "x-ms-documentdb-query-enablecrosspartition", "true"},
			"the query has 349505 parameters; at most 2048 are allowed", 16 << 20,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			a := w.ask(c.method, c.path, c.body, c.headers...).is(400)
			runtime.ReadMemStats(&after)
			made := after.TotalAlloc - before.TotalAlloc
			if !strings.Contains(string(a.body), c.want) || made > c.most {
				t.Errorf("%s; %d bytes were allocated; want %q and fewer than %d", a.body, made, c.want, c.most)
			} else {
				t.Logf("%d bytes", made)
			}
		})
	}
}
