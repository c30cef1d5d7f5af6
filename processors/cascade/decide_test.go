package cascade

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// open returns a container that is described and not there.
func open(t testing.TB, name string, partitions int, key ...string) *store.Container {
	t.Helper()
	info := store.ContainerInfo{Database: "default", Name: name, ID: "aaaaaaaa", Spec: store.ContainerSpec{PartitionKey: key, Partitions: partitions}}
	for i, r := range feed.EvenRanges(partitions) {
		info.Partitions = append(info.Partitions, store.PartitionInfo{Number: uint32(i), Range: r})
	}
	c, err := store.NewClient(nil, nil, store.ClientConfig{}).Open(info)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func compile(t testing.TB, change func(*Config)) *Cascade {
	t.Helper()
	cfg := Config{
		Pipeline: "category-names", Generation: 1, SourceWhere: `type = "category"`,
		Source: open(t, "productMeta", 2, "/type"), Target: open(t, "product", 3, "/categoryId"),
		Match: []Pair{{"categoryId", "id"}}, Set: []Pair{{"categoryName", "name"}},
	}
	if change != nil {
		change(&cfg)
	}
	c, err := Compile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tagged(cfg *Config) {
	cfg.SourceWhere, cfg.Each = `type = "tag"`, "tags"
	cfg.Match, cfg.Set = []Pair{{"id", "id"}}, []Pair{{"name", "name"}}
	cfg.OnSourceDelete = Clear
}

func key(t testing.TB, components ...any) feed.PartitionKey {
	t.Helper()
	k, err := feed.NewPartitionKey(components...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestRelevance(t *testing.T) {
	const a, b = `{"id":"1","type":"category","name":"A"}`, `{"id":"1","type":"category","name":"B"}`
	const other, undefined = `{"id":"1","type":"category","name":"A","x":1}`, `{"id":"1","type":"category"}`
	const tag = `{"id":"1","type":"tag","name":"A"}`
	// undo takes "B" back to "A" in b, at a pointer.
	undo := func(pointer string) []document.Splice {
		return []document.Splice{{Path: pointer, Offset: uint32(len(b) - 3), Len: 1, Old: []byte("A")}}
	}
	for name, c := range map[string]struct {
		ch          feed.Change
		keep, clear relevance
	}{
		"a category comes":              {feed.Change{Op: feed.OpCreate, After: []byte(a)}, sourceChanged, sourceChanged},
		"a tag comes":                   {feed.Change{Op: feed.OpCreate, After: []byte(tag)}, irrelevant, irrelevant},
		"a rename":                      {feed.Change{Op: feed.OpReplace, Before: []byte(a), After: []byte(b)}, sourceChanged, sourceChanged},
		"a rename by patch":             {feed.Change{Op: feed.OpReplace, Undo: undo("/name"), After: []byte(b)}, sourceChanged, sourceChanged},
		"a patch elsewhere":             {feed.Change{Op: feed.OpReplace, Undo: undo("/x"), After: []byte(b)}, irrelevant, irrelevant},
		"another field":                 {feed.Change{Op: feed.OpReplace, Before: []byte(a), After: []byte(other)}, irrelevant, irrelevant},
		"the copied field goes":         {feed.Change{Op: feed.OpReplace, Before: []byte(a), After: []byte(undefined)}, sourceChanged, sourceChanged},
		"written otherwise, equal":      {feed.Change{Op: feed.OpReplace, Before: []byte(a), After: []byte(` {"type":"category","name":"\u0041","id":"1"}`)}, irrelevant, irrelevant},
		"becomes a category":            {feed.Change{Op: feed.OpReplace, Before: []byte(tag), After: []byte(a)}, sourceChanged, sourceChanged},
		"ceases to be a category":       {feed.Change{Op: feed.OpReplace, Before: []byte(a), After: []byte(tag)}, irrelevant, sourceDeleted},
		"a tag is replaced":             {feed.Change{Op: feed.OpReplace, Before: []byte(tag), After: []byte(tag)}, irrelevant, irrelevant},
		"a category goes":               {feed.Change{Op: feed.OpDelete, Before: []byte(a)}, irrelevant, sourceDeleted},
		"a category expires":            {feed.Change{Op: feed.OpExpire, Before: []byte(a)}, irrelevant, sourceDeleted},
		"a tag goes":                    {feed.Change{Op: feed.OpDelete, Before: []byte(tag)}, irrelevant, irrelevant},
		"a patch of what where reads":   {feed.Change{Op: feed.OpReplace, Undo: undo("/type"), After: []byte(b)}, sourceChanged, sourceChanged},
		"a patch of the whole item's /": {feed.Change{Op: feed.OpReplace, Undo: undo(""), After: []byte(b)}, sourceChanged, sourceChanged},
	} {
		for action, want := range map[OnSourceDelete]relevance{Keep: c.keep, Clear: c.clear, Delete: c.clear} {
			cas := compile(t, func(cfg *Config) { cfg.OnSourceDelete = action })
			got, err := cas.relevance(&c.ch)
			if err != nil || got != want {
				t.Errorf("%s, %s: %d, %v, want %d", name, action, got, err, want)
			}
		}
	}
}

func TestRelevanceOfABrokenUndo(t *testing.T) {
	ch := feed.Change{Op: feed.OpReplace, ID: "1", After: []byte(`{}`), Undo: []document.Splice{{Path: "/name", Offset: 9, Len: 9}}}
	if _, err := compile(t, nil).relevance(&ch); err == nil {
		t.Error("no error")
	}
}

func TestDigest(t *testing.T) {
	c := compile(t, nil)
	at := feed.Position{LSN: 3}
	digest := func(body string) uint64 { return c.version(at, []byte(body)).digest }
	a := digest(`{"type":"category","name":"A"}`)
	if b := digest(`{"x":1,"type":"category","name":"A"}`); a != b {
		t.Error("equal values have different digests")
	}
	seen := map[uint64]string{}
	for _, body := range []string{
		`{"type":"category","name":"A"}`, `{"type":"category","name":"B"}`, `{"type":"category"}`, `{"type":"category","name":null}`,
		`{"type":"category","name":""}`, `{"type":"tag","name":"A"}`,
	} {
		d := digest(body)
		if other, ok := seen[d]; ok || d == 0 {
			t.Errorf("%s and %s have the digest %d", body, other, d)
		}
		seen[d] = body
	}
	if none := c.version(at, nil); none.digest != digest(`{"type":"tag"}`) || !none.gone {
		t.Error("a source that is not there is another than one that does not count")
	}
}

func TestPlace(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		source store.ItemRef
		index  string
		scope  store.Scope
		match  []store.Field
		one    bool
	}{
		"match is the target's partition key": {
			nil,
			store.ItemRef{Key: key(t, "category"), ID: `C"1`},
			"",
			store.Scope{Key: key(t, `C"1`)},
			[]store.Field{{Path: "categoryId", Value: []byte(`"C\"1"`)}},
			true,
		},
		"an index on elements": {
			tagged,
			store.ItemRef{Key: key(t, "tag"), ID: "T-5"},
			"/tags/*/id",
			store.Scope{Index: "/tags/*/id", Value: []byte(`"T-5"`)},
			[]store.Field{{Path: "id", Value: []byte(`"T-5"`)}},
			false,
		},
		"an index on a nested field, though a second match fixes the partition key": {
			func(cfg *Config) {
				cfg.SourceWhere, cfg.Source = "", open(t, "customer", 1, "/region")
				cfg.Target = open(t, "order", 2, "/region")
				cfg.Match = []Pair{{"region", "region"}, {"customer.id", "id"}}
			},
			store.ItemRef{Key: key(t, 7), ID: "1"},
			"/customer/id",
			store.Scope{Index: "/customer/id", Value: []byte(`"1"`)},
			[]store.Field{{Path: "region", Value: []byte(`7`)}, {Path: "customer.id", Value: []byte(`"1"`)}},
			false,
		},
		"the items beside their parent, whose id is its partition key": {
			parentOfItsPartition(t),
			store.ItemRef{Key: key(t, "k1"), ID: "k1"},
			"",
			store.Scope{Key: key(t, "k1")},
			[]store.Field{{Path: "customerId", Value: []byte(`"k1"`)}},
			true,
		},
		"one to one: the same id under the same key": {
			func(cfg *Config) {
				cfg.SourceWhere, cfg.Source, cfg.Target = "", open(t, "a", 1, "/pk"), open(t, "b", 2, "/pk")
				cfg.Match = []Pair{{"id", "id"}, {"pk", "pk"}}
			},
			store.ItemRef{Key: key(t, true), ID: "1"},
			"",
			store.Scope{Key: key(t, true)},
			[]store.Field{{Path: "id", Value: []byte(`"1"`)}, {Path: "pk", Value: []byte(`true`)}},
			true,
		},
	} {
		cas := compile(t, c.change)
		if cas.Index() != c.index {
			t.Errorf("%s: index %q, want %q", name, cas.Index(), c.index)
		}
		p, ok := cas.targetsOf(c.source)
		if !ok {
			t.Errorf("%s: nowhere", name)
		}
		if diff := cmp.Diff(c.scope, p.scope, cmp.AllowUnexported(feed.PartitionKey{})); diff != "" {
			t.Errorf("%s: scope (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(c.match, p.match); diff != "" {
			t.Errorf("%s: match (-want +got):\n%s", name, diff)
		}
		if c.one != (len(p.partitions) == 1 && p.scope.Index == "") {
			t.Errorf("%s: in %d partitions", name, len(p.partitions))
		}
	}
	if _, ok := compile(t, func(cfg *Config) {
		cfg.SourceWhere, cfg.Source = "", open(t, "customer", 1, "/region")
		cfg.Match = append(cfg.Match, Pair{"region", "region"})
	}).targetsOf(store.ItemRef{Key: key(t, feed.Missing), ID: "1"}); ok {
		t.Error("a source without a partition key has copies")
	}
}

// parentOfItsPartition declares copies of the item whose id is their partition key.
func parentOfItsPartition(t *testing.T) func(*Config) {
	t.Helper()
	return func(cfg *Config) {
		cfg.SourceWhere, cfg.Source, cfg.Target = "", open(t, "customer", 2, "/customerId"), open(t, "order", 2, "/customerId")
		cfg.Match = []Pair{{"customerId", "customerId"}, {"customerId", "id"}}
	}
}

// A field that equals several fields of the source names only sources in which they
// are equal; the others have no copies.
func TestMatchOfSeveralFields(t *testing.T) {
	cas := compile(t, parentOfItsPartition(t))
	refs := cas.Expected([]byte(`{"id":"o1","customerId":"k1"}`))
	if want := (store.ItemRef{Key: key(t, "k1"), ID: "k1"}); len(refs) != 1 || !refs[0].Possible || refs[0].Source != want {
		t.Errorf("an order names %+v, want %s", refs, want)
	}
	for name, order := range map[string]string{"a number": `{"id":"o1","customerId":7}`, "a boolean": `{"id":"o1","customerId":true}`} {
		if refs := cas.Expected([]byte(order)); len(refs) != 1 || refs[0].Possible {
			t.Errorf("%s is the id of a source: %+v", name, refs)
		}
	}
	for _, source := range []store.ItemRef{{Key: key(t, "k1"), ID: "o1"}, {Key: key(t, 7), ID: "7"}, {Key: key(t, feed.Missing), ID: "k1"}} {
		if p, ok := cas.targetsOf(source); ok {
			t.Errorf("%s has copies at %+v", source, p)
		}
	}
	// Two fields of the target that both have to be the id.
	both := compile(t, func(cfg *Config) { cfg.Match = append(cfg.Match, Pair{"alsoId", "id"}) })
	if refs := both.Expected([]byte(`{"categoryId":"1","alsoId":"2"}`)); len(refs) != 1 || refs[0].Possible {
		t.Errorf("two ids name a source: %+v", refs)
	}
	p, ok := both.targetsOf(store.ItemRef{Key: key(t, "category"), ID: "1"})
	want := []store.Field{{Path: "categoryId", Value: []byte(`"1"`)}, {Path: "alsoId", Value: []byte(`"1"`)}}
	if diff := cmp.Diff(want, p.match); diff != "" || !ok {
		t.Errorf("copies by two fields (-want +got):\n%s", diff)
	}
}

func TestExpectedAndCompare(t *testing.T) {
	cat := compile(t, func(cfg *Config) { cfg.TargetWhere = "price >= 0" })
	tag := compile(t, tagged)
	category := []byte(`{"id":"1","type":"category","name":"A"}`)
	tag5 := []byte(`{"id":"T-5","type":"tag","name":"Five"}`)
	type copyIs struct {
		Element int
		Source  string
		Verdict string
	}
	for name, c := range map[string]struct {
		cas    *Cascade
		item   string
		source []byte
		want   []copyIs
	}{
		"equal":                             {cat, `{"price":1,"categoryId":"1","categoryName":"A"}`, category, []copyIs{{-1, `["category"]/1`, "equal"}}},
		"another name":                      {cat, `{"price":1,"categoryId":"1","categoryName":"B"}`, category, []copyIs{{-1, `["category"]/1`, "drift"}}},
		"no copy yet":                       {cat, `{"price":1,"categoryId":"1"}`, category, []copyIs{{-1, `["category"]/1`, "drift"}}},
		"no source":                         {cat, `{"price":1,"categoryId":"1"}`, nil, []copyIs{{-1, `["category"]/1`, "dangling"}}},
		"a source that where does not mean": {cat, `{"price":1,"categoryId":"1"}`, []byte(`{"type":"tag"}`), []copyIs{{-1, `["category"]/1`, "dangling"}}},
		"where is not true":                 {cat, `{"price":-1,"categoryId":"1"}`, category, nil},
		"no reference":                      {cat, `{"price":1}`, category, nil},
		"a null reference":                  {cat, `{"price":1,"categoryId":null}`, category, nil},
		"a reference that no id can be":     {cat, `{"price":1,"categoryId":7}`, category, []copyIs{{-1, `[]/`, "dangling"}}},
		"elements": {
			tag, `{"tags":[{"id":"T-5","name":"Five"},7,{"name":"x"},{"id":"T-5","name":"5"}]}`, tag5,
			[]copyIs{{0, `["tag"]/T-5`, "equal"}, {3, `["tag"]/T-5`, "drift"}},
		},
		"not an array": {tag, `{"tags":{"id":"T-5"}}`, tag5, nil},
		"no array":     {tag, `{}`, tag5, nil},
	} {
		var got []copyIs
		origin := c.cas.OriginOf(c.source)
		for _, r := range c.cas.Expected([]byte(c.item)) {
			got = append(got, copyIs{r.Element, r.Source.String(), c.cas.Compare(&r, &origin, 1).String()})
			if mend := c.cas.RepairOf(&r, &origin); c.cas.Compare(&r, &origin, 1) == Drift && len(mend.Set) > 0 && string(mend.Set[0].Value) == "" {
				t.Errorf("%s: a repair sets nothing: %+v", name, mend)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// What becomes of a copy whose source has left a tombstone, and of one whose source
// never was.
func TestCompareWithATombstone(t *testing.T) {
	const before, at, after = 1, 2, 3 // when a client wrote the item; the source went at 2
	was, never := []byte(`{"id":"1","type":"category","name":"A"}`), []byte(nil)
	for name, c := range map[string]struct {
		action   OnSourceDelete
		each     bool
		item     string
		modified int64
		source   []byte
		want     Verdict
		mend     store.CopyAction // of the repair
	}{
		"keep: the last value":         {Keep, false, `{"categoryId":"1","categoryName":"A"}`, after, was, Equal, 0},
		"keep: an older value":         {Keep, false, `{"categoryId":"1","categoryName":"old"}`, after, was, Drift, store.CopySet},
		"keep: it never was":           {Keep, false, `{"categoryId":"1","categoryName":"old"}`, after, never, Dangling, 0},
		"clear: an old copy":           {Clear, false, `{"categoryId":"1","categoryName":"A"}`, after, was, Drift, store.CopyClear},
		"clear: cleared":               {Clear, false, `{"categoryId":"1"}`, before, was, Equal, 0},
		"clear: it never was":          {Clear, false, `{"categoryId":"1","categoryName":"A"}`, before, never, Dangling, 0},
		"clear: an element":            {Clear, true, `{"tags":[{"id":"1"}]}`, after, was, Drift, store.CopyClear},
		"delete: written before":       {Delete, false, `{"categoryId":"1"}`, before, was, Drift, store.CopyDelete},
		"delete: written at that time": {Delete, false, `{"categoryId":"1"}`, at, was, Drift, store.CopyDelete},
		"delete: written later":        {Delete, false, `{"categoryId":"1","categoryName":"A"}`, after, was, Dangling, 0},
		"delete: it never was":         {Delete, false, `{"categoryId":"1"}`, before, never, Dangling, 0},
	} {
		cas := compile(t, func(cfg *Config) {
			if c.each {
				tagged(cfg)
				cfg.SourceWhere = `type = "category"`
			}
			cfg.OnSourceDelete = c.action
		})
		origin := cas.OriginOf(nil)
		if c.source != nil {
			origin = cas.OriginGone(c.source, at)
		}
		refs := cas.Expected([]byte(c.item))
		if len(refs) != 1 {
			t.Fatalf("%s: %d references", name, len(refs))
		}
		if got := cas.Compare(&refs[0], &origin, c.modified); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if repair := cas.RepairOf(&refs[0], &origin); c.want == Drift && repair.Action != c.mend {
			t.Errorf("%s: the repair is %d, want %d", name, repair.Action, c.mend)
		}
	}
}

func TestInterest(t *testing.T) {
	own := feed.Producer{Pipeline: "category-names", Generation: 1, Source: "target:aaaaaaaa/0"}
	page := func(pipeline string, generation uint32, action store.CopyAction, paths ...string) *feed.Transaction {
		return &feed.Transaction{
			Effect: &feed.Effect{Producer: feed.Producer{Pipeline: pipeline, Generation: generation}},
			Page:   &feed.Page{Action: uint8(action), Paths: paths},
		}
	}
	folded := page("category-names", 1, store.CopySet, "/tags/*/name")
	folded.Folds = []feed.Fold{{Pipeline: "totals", Generation: 1}}
	for name, tc := range map[string]struct {
		t    *feed.Transaction
		want interest
	}{
		"a client's write":                {&feed.Transaction{}, checkEach},
		"a repair":                        {&feed.Transaction{Effect: &feed.Effect{Producer: own}}, checkEach},
		"its own page":                    {page("category-names", 1, store.CopySet, "/tags/*/name"), checkOnce},
		"a page of an earlier generation": {page("category-names", 0, store.CopySet, "/tags/*/name"), checkEach},
		"another's page":                  {page("x", 1, store.CopySet, "/categoryName"), checkEach},
		"its own page that deletes":       {page("category-names", 1, store.CopyDelete, ""), checkNothing},
		"another's page that deletes":     {page("x", 1, store.CopyDelete, ""), checkEach},
		"its own page, and an aggregate":  {folded, checkEach},
	} {
		if got := interestIn(tc.t, &own); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

// A page of an older change needs no check: pages of the newer one follow it. One that its source
// contradicts otherwise does.
func TestPageStands(t *testing.T) {
	c := compile(t, tagged)
	is := func(lsn feed.LSN, name string) version {
		return c.version(feed.Position{LSN: lsn}, []byte(`{"type":"tag","name":"`+name+`"}`))
	}
	set := is(7, "A").digest
	for name, tc := range map[string]struct {
		now  version
		want bool
	}{
		"as it was":                   {is(7, "A"), true},
		"another field changed":       {is(9, "A"), true},
		"a newer name":                {is(9, "B"), true},
		"it went":                     {version{position: feed.Position{LSN: 9}, gone: true, left: true, digest: c.digest(nil)}, true},
		"it never was":                {c.version(feed.Position{}, nil), false},
		"another name, and not newer": {is(7, "B"), false},
		"an older name":               {is(5, "B"), false},
	} {
		r := newRound(c)
		page := &feed.Page{Source: `["tag"]/1`, Position: feed.Position{LSN: 7}, Digest: set}
		r.addPage(page)
		r.sources[0].v = tc.now
		if got := r.pageStands(page); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	r := newRound(c)
	page := &feed.Page{Source: "tag", Digest: set}
	if r.addPage(page); r.pageStands(page) {
		t.Error("a page of nobody stands")
	}
}

// A round finds the copies that differ, repairs an item once for each source,
// and takes the last of several states of an item.
func TestRoundCompares(t *testing.T) {
	c := compile(t, tagged)
	k := key(t, "c")
	r := newRound(c)
	add := func(id string, lsn feed.LSN, body string) {
		r.addItem(store.ItemRef{Key: k, ID: id}, &store.Item{Body: []byte(body), ETag: store.ETag{LSN: lsn}}, "")
	}
	add("right", 1, `{"tags":[{"id":"1","name":"One"}]}`)
	add("wrong", 2, `{"tags":[{"id":"1","name":"x"},{"id":"2","name":"Two"},{"id":"1","name":"y"}]}`)
	add("dangling", 3, `{"tags":[{"id":"3","name":"x"},{"id":9}]}`)
	add("late", 4, `{"tags":[{"id":"2","name":"x"}]}`)
	add("late", 5, `{"tags":[{"id":"2","name":"Two"}]}`)
	add("later", 6, `{"tags":[{"id":"1","name":"One"}]}`)
	add("later", 7, `{"tags":[{"id":"1"}]}`)
	add("unordered", 9, `{"tags":[{"id":"1"}]}`)
	add("unordered", 8, `{"tags":[{"id":"1","name":"One"}]}`)
	if len(r.sources) != 4 {
		t.Errorf("%d sources, want four: each once", len(r.sources))
	}
	for i := range r.sources {
		s := &r.sources[i]
		body := map[string]string{"1": `{"type":"tag","name":"One"}`, "2": `{"type":"tag","name":"Two"}`}[s.ref.ID]
		s.v = c.version(feed.Position{LSN: 9}, []byte(body))
		if body == "" {
			s.v = c.version(feed.Position{}, nil)
		}
	}
	want := []string{
		`["c"]/wrong at 0000000000000002-0: "1" "One"`, `["c"]/later at 0000000000000007-0: "1" "One"`,
		`["c"]/unordered at 0000000000000009-0: "1" "One"`,
	}
	var got []string
	for _, m := range r.compare() {
		line := fmt.Sprintf("%s at %s:", m.Ref, m.IfMatch)
		for _, cp := range m.Copies {
			line += fmt.Sprintf(" %s %s", cp.Match[0].Value, cp.Set[0].Value)
		}
		got = append(got, line)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("repairs (-want +got):\n%s", diff)
	}
	if r.checked != 12 || r.dangling != 2 {
		t.Errorf("checked %d, dangling %d, want 12 and 2", r.checked, r.dangling)
	}
}

func TestParseRef(t *testing.T) {
	for _, want := range []store.ItemRef{
		{Key: key(t, "a/b", nil, 1.5), ID: "x"},
		{Key: key(t, feed.Missing), ID: "é"},
		{Key: key(t, `a"]/b`), ID: `c"]/d`},
		{Key: key(t, true, "]"), ID: "/"},
		{Key: key(t, "a"), ID: "?#"},
	} {
		got, err := store.ParseItemRef(want.String())
		if err != nil || got != want {
			t.Errorf("%s parses to %s, %v", want, got, err)
		}
	}
	for _, bad := range []string{"", "x", `["a"]`, `{}/x`, `["a/x`, `["a"]x`} {
		if got, err := store.ParseItemRef(bad); err == nil {
			t.Errorf("%q parses to %s", bad, got)
		}
	}
}
