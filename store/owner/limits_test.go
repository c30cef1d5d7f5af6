package owner

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// statusOf is the status of an error, 0 for none.
func statusOf(t *testing.T, err error) store.Status {
	t.Helper()
	if err == nil {
		return 0
	}
	var e *store.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is not a store.Error", err)
	}
	return e.Status
}

func TestItemLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	pad := func(size int) string {
		const frame = `{"id":"big","a":"x","p":""}`
		return `{"id":"big","a":"x","p":"` + strings.Repeat("p", size-len(frame)) + `"}`
	}
	deep := func(levels int) string {
		return `{"id":"deep","a":"x","v":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
	}
	for _, c := range []struct {
		name string
		op   store.Operation
		want store.Status
	}{
		{"an item of 2 MiB", upsert(pad(store.ItemBytesMax)), 0},
		{"a byte more", upsert(pad(store.ItemBytesMax + 1)), store.StatusTooLarge},
		{"an id of 1023 bytes", upsert(`{"id":"` + strings.Repeat("i", 1023) + `","a":"x"}`), 0},
		{"an id of 1024 bytes", upsert(`{"id":"` + strings.Repeat("i", 1024) + `","a":"x"}`), store.StatusBadRequest},
		{"an empty id", upsert(`{"id":"","a":"x"}`), store.StatusBadRequest},
		{"no id", upsert(`{"a":"x"}`), store.StatusBadRequest},
		{"an id that is a number", upsert(`{"id":1,"a":"x"}`), store.StatusBadRequest},
		{"an id that is a dot", upsert(`{"id":".","a":"x"}`), store.StatusBadRequest},
		{"an id that is two dots", store.Operation{Kind: store.OpCreate, Body: []byte(`{"id":"..","a":"x"}`)}, store.StatusBadRequest},
		{"an id of three dots", upsert(`{"id":"...","a":"x"}`), 0},
		{"128 levels", upsert(deep(128)), 0},
		{"129 levels", upsert(deep(129)), store.StatusBadRequest},
		{"no JSON", upsert(`{"id":"1","a":"x"`), store.StatusBadRequest},
		{"an array", upsert(`[1]`), store.StatusBadRequest},
		{"invalid UTF-8", upsert("{\"id\":\"1\",\"a\":\"x\",\"s\":\"\xff\"}"), store.StatusBadRequest},
		{"another partition key", upsert(`{"id":"1","a":"y"}`), store.StatusBadRequest},
		{"another id than asked", store.Operation{Kind: store.OpUpsert, ID: "2", Body: []byte(`{"id":"1","a":"x"}`)}, store.StatusBadRequest},
		{"a read of nothing", store.Operation{Kind: store.OpRead, ID: "none"}, store.StatusNotFound},
		{"a replace of nothing", store.Operation{Kind: store.OpReplace, ID: "none", Body: []byte(`{"id":"none","a":"x"}`)}, store.StatusNotFound},
		{"a delete of nothing", store.Operation{Kind: store.OpDelete, ID: "none"}, store.StatusNotFound},
		{"a patch of nothing", patch("none", set("/b", "1")), store.StatusNotFound},
		{"an unknown operation", store.Operation{Kind: 77, ID: "1"}, store.StatusBadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := n.state.Load().lsn
			_, err := n.one(k, c.op)
			if got := statusOf(t, err); got != c.want {
				t.Errorf("status %d (%v), want %d", got, err, c.want)
			}
			if c.want != 0 && n.state.Load().lsn != before {
				t.Error("a refusal was written to the log")
			}
		})
	}
}

func TestBatchLimits(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	ops := func(count, size int) []store.Operation {
		out := make([]store.Operation, count)
		for i := range out {
			out[i] = upsert(fmt.Sprintf(`{"id":"%d","a":"x","p":"%s"}`, i, strings.Repeat("p", size)))
		}
		return out
	}
	if r, err := n.batch(k, ops(100, 1)...); err != nil || r.Failed {
		t.Errorf("100 operations: %v %+v", err, r)
	}
	if _, err := n.batch(k, ops(101, 1)...); statusOf(t, err) != store.StatusBadRequest {
		t.Errorf("101 operations: %v", err)
	}
	if _, err := n.batch(k); statusOf(t, err) != store.StatusBadRequest {
		t.Errorf("no operation: %v", err)
	}
	if _, err := n.batch(k, ops(3, 1<<20)...); statusOf(t, err) != store.StatusTooLarge {
		t.Errorf("3 MiB: %v", err)
	}
}

func TestBatchIsAllOrNothingAndInOrder(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	r, err := n.batch(k,
		create(`{"id":"1","a":"x","n":1}`),
		patch("1", document.Op{Kind: "incr", Path: "/n", Value: []byte("2")}),
		store.Operation{Kind: store.OpRead, ID: "1"},
		store.Operation{Kind: store.OpReplace, ID: "1", Body: []byte(`{"id":"1","a":"x","n":9}`)},
	)
	if err != nil || r.Failed {
		t.Fatalf("%v %+v", err, r)
	}
	if got := string(r.Results[2].Item.Body); got != `{"id":"1","a":"x","n":3}` {
		t.Errorf("the read in the batch saw %s", got)
	}
	if r.Results[0].Status != store.StatusCreated || r.Results[1].Status != store.StatusOK {
		t.Errorf("statuses %+v", r.Results)
	}
	last := r.Results[3].Item.ETag
	r, err = n.batch(k,
		create(`{"id":"2","a":"x"}`),
		store.Operation{Kind: store.OpDelete, ID: "1", IfMatch: store.ETag{LSN: 1}},
		create(`{"id":"3","a":"x"}`),
	)
	if err != nil || !r.Failed {
		t.Fatalf("%v %+v", err, r)
	}
	got := []store.Status{r.Results[0].Status, r.Results[1].Status, r.Results[2].Status}
	if want := []store.Status{424, 412, 424}; got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("statuses %v, want %v", got, want)
	}
	if n.read(k, "2") != "" || n.read(k, "3") != "" {
		t.Error("a failed batch left something behind")
	}
	if item := n.mustOne(k, store.Operation{Kind: store.OpRead, ID: "1"}); item.ETag != last {
		t.Errorf("etag %s, want %s", item.ETag, last)
	}
	commits := w.commits()
	batch := commits[len(commits)-1].Transactions
	if len(batch) != 1 || len(batch[0].Changes) != 3 {
		t.Errorf("the batch is %d transactions in its commit", len(batch))
	}
}

func TestPatchLimits(t *testing.T) {
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/a", "/b/c"}, TTL: -1})
	n := w.start(t.TempDir())
	k := pk(t, "x", feed.Missing)
	n.mustOne(k, create(`{"id":"1","a":"x","n":1,"big":123456789012345678901234567890,"list":[1,2]}`))
	eleven := make([]document.Op, 11)
	for i := range eleven {
		eleven[i] = set("/n", "1")
	}
	op := func(kind, path, value string) document.Op {
		return document.Op{Kind: kind, Path: path, Value: []byte(value)}
	}
	for _, c := range []struct {
		name string
		op   store.Operation
		want store.Status
	}{
		{"ten operations", patch("1", eleven[:10]...), 0},
		{"eleven operations", patch("1", eleven...), store.StatusBadRequest},
		{"no operation", patch("1"), store.StatusBadRequest},
		{"the id", patch("1", set("/id", `"2"`)), store.StatusBadRequest},
		{"the partition key", patch("1", set("/a", `"2"`)), store.StatusBadRequest},
		{"a parent of the partition key", patch("1", set("/b", `{"c":1}`)), store.StatusBadRequest},
		{"a system property", patch("1", set("/_etag", `"2"`)), store.StatusBadRequest},
		{"a move of the partition key", patch("1", document.Op{Kind: "move", From: "/a", Path: "/z"}), store.StatusBadRequest},
		{"replace of a missing path", patch("1", op("replace", "/none", "1")), store.StatusBadRequest},
		{"remove of a missing path", patch("1", document.Op{Kind: "remove", Path: "/none"}), store.StatusBadRequest},
		{"set under a missing parent", patch("1", set("/none/x", "1")), store.StatusBadRequest},
		{"an increment of a string", patch("1", op("incr", "/a", "1")), store.StatusBadRequest},
		{"an increment beyond 2^53", patch("1", op("incr", "/big", "1")), 0},
		{"a condition that holds", store.Operation{Kind: store.OpPatch, ID: "1", Patch: eleven[:1], Condition: "from c where c.n = 1"}, 0},
		{"a condition that does not", store.Operation{Kind: store.OpPatch, ID: "1", Patch: eleven[:1], Condition: "n > 1"}, store.StatusPreconditionFailed},
		{"a condition on system properties", store.Operation{Kind: store.OpPatch, ID: "1", Patch: eleven[:1], Condition: "from c where c._ts > 0 and is_string(c._etag)"}, 0},
		{"one of them does not hold", store.Operation{Kind: store.OpPatch, ID: "1", Patch: eleven[:1], Condition: "_ts < 0"}, store.StatusPreconditionFailed},
		{"a condition on a link", store.Operation{Kind: store.OpPatch, ID: "1", Patch: eleven[:1], Condition: "from c where c._self != 'x'"}, store.StatusBadRequest},
		{"a condition that is no SQL", store.Operation{Kind: store.OpPatch, ID: "1", Patch: eleven[:1], Condition: "n >"}, store.StatusBadRequest},
		{"an old etag", store.Operation{Kind: store.OpPatch, ID: "1", Patch: eleven[:1], IfMatch: store.ETag{LSN: 1}}, store.StatusPreconditionFailed},
		{"a bad ttl", patch("1", set("/ttl", "0")), store.StatusBadRequest},
		{"a null ttl", patch("1", set("/ttl", "null")), store.StatusBadRequest},
		{"a ttl", patch("1", set("/ttl", "-1")), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := n.one(k, c.op)
			if got := statusOf(t, err); got != c.want {
				t.Errorf("status %d (%v), want %d", got, err, c.want)
			}
		})
	}
	want := `{"id":"1","a":"x","n":1,"big":123456789012345678901234567891,"list":[1,2],"ttl":-1}`
	if got := n.read(k, "1"); got != want {
		t.Errorf("item\n got %s\nwant %s", got, want)
	}
}

func TestUniqueKeys(t *testing.T) {
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/a"}, UniqueKeys: [][]string{{"/sku"}, {"/x", "/y"}}})
	n := w.start(t.TempDir())
	k, other := pk(t, "x"), pk(t, "other")
	steps := []struct {
		name string
		key  feed.PartitionKey
		op   store.Operation
		want store.Status
	}{
		{"first", k, create(`{"id":"1","a":"x","sku":"s","x":1,"y":1}`), 0},
		{"the same sku", k, create(`{"id":"2","a":"x","sku":"s","x":1,"y":2}`), store.StatusConflict},
		{"the same sku in other case", k, create(`{"id":"2","a":"x","sku":"S","x":1,"y":2}`), 0},
		{"the same sku in another logical partition", other, create(`{"id":"2","a":"other","sku":"s"}`), 0},
		{"the same pair, written otherwise", k, create(`{"id":"3","a":"x","sku":"t","x":1.0,"y":1e0}`), store.StatusConflict},
		{"missing counts as null", k, create(`{"id":"4","a":"x"}`), 0},
		{"null then conflicts with missing", k, create(`{"id":"5","a":"x","sku":null,"x":7}`), store.StatusConflict},
		{"an item keeps its own", k, store.Operation{Kind: store.OpReplace, ID: "1", Body: []byte(`{"id":"1","a":"x","sku":"s","x":1,"y":1,"z":0}`)}, 0},
		{"a patch into a conflict", k, patch("2", set("/sku", `"s"`)), store.StatusConflict},
		{"a patch that frees", k, patch("1", set("/sku", `"free"`)), 0},
		{"what was freed", k, patch("2", set("/sku", `"s"`)), 0},
		{"a delete frees", k, store.Operation{Kind: store.OpDelete, ID: "2"}, 0},
		{"what was deleted", k, create(`{"id":"6","a":"x","sku":"s","x":8}`), 0},
	}
	for _, c := range steps {
		_, err := n.one(c.key, c.op)
		if got := statusOf(t, err); got != c.want {
			t.Errorf("%s: status %d (%v), want %d", c.name, got, err, c.want)
		}
	}
	r, err := n.batch(k, create(`{"id":"7","a":"x","sku":"u","x":9}`), create(`{"id":"8","a":"x","sku":"u","x":10}`))
	if err != nil || !r.Failed || r.Results[1].Status != store.StatusConflict {
		t.Errorf("two of one batch: %v %+v", err, r)
	}
	r, err = n.batch(k, create(`{"id":"10","a":"x","sku":{"p":1,"q":2},"x":20}`), create(`{"id":"11","a":"x","sku":{"q":2,"p":1.0},"x":21}`))
	if err != nil || !r.Failed || r.Results[1].Status != store.StatusConflict {
		t.Errorf("one object in two spellings: %v %+v", err, r)
	}
	r, err = n.batch(k, patch("6", set("/sku", `"moved"`)), create(`{"id":"9","a":"x","sku":"s","x":11}`))
	if err != nil || r.Failed {
		t.Errorf("freed and taken in one batch: %v %+v", err, r)
	}
}

func TestTimeToLive(t *testing.T) {
	t.Parallel()
	const second = 1000
	for _, c := range []struct {
		name      string
		container store.TTL
		ttl       string
		lives     int64 // milliseconds after which it is gone; 0 for ever
	}{
		{"off, none", 0, "", 0},
		{"off, of its own", 0, `,"ttl":1`, 0},
		{"on, none", -1, "", 0},
		{"on, of its own", -1, `,"ttl":20`, 20 * second},
		{"on, never", -1, `,"ttl":-1`, 0},
		{"default, none", 10, "", 10 * second},
		{"default, of its own", 10, `,"ttl":20`, 20 * second},
		{"default, never", 10, `,"ttl":-1`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/a"}, TTL: c.container, UniqueKeys: [][]string{{"/u"}}})
			n := w.start(t.TempDir())
			k := pk(t, "x")
			n.mustOne(k, create(`{"id":"1","a":"x","u":1`+c.ttl+`}`))
			if c.lives == 0 {
				w.clock.Add(1000 * 3600 * 24 * 365)
				if n.read(k, "1") == "" {
					t.Fatal("gone")
				}
				return
			}
			w.clock.Add(c.lives - 1)
			if n.read(k, "1") == "" {
				t.Fatal("gone too early")
			}
			w.clock.Add(1)
			if n.read(k, "1") != "" {
				t.Fatal("there after its time")
			}
			n.mustOne(k, create(`{"id":"2","a":"x","u":1,"ttl":-1}`))
			expiry := false
			for _, commit := range w.commits() {
				for _, tx := range commit.Transactions {
					for _, change := range tx.Changes {
						expiry = expiry || change.Op == feed.OpExpire && change.ID == "1" && len(change.Before) > 0
					}
				}
			}
			if !expiry {
				t.Error("the expiry is not in the log")
			}
		})
	}
}
