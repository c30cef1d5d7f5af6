package queryrun_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/queryrun"
)

// An index on a system property, which no item holds, serves no query that sees system properties. One that
// sees items as they were written goes on using it.
func TestPage_NoIndexHasSystemProperties(t *testing.T) {
	t.Parallel()
	const items, held = 20, 5
	source := systemSource(t, items, held)
	all := make([]string, items)
	for i := range all {
		all[i] = fmt.Sprintf("i%02d", i)
	}
	for _, c := range []struct {
		text   string
		system bool
		want   []string
		access string
	}{
		{`SELECT VALUE c.id FROM c WHERE c._ts > 0`, true, all, "scan"},
		{`SELECT VALUE c.id FROM c ORDER BY c._ts`, true, all, "scan"},
		{`SELECT VALUE c.id FROM c WHERE c._attachments.x = 1`, true, nil, "scan"},
		{`SELECT VALUE c.id FROM c WHERE c._ts > 0`, false, all[:held], "index /_ts"},
	} {
		var got []string
		r := &store.Query{Text: c.text, System: c.system, RowsMax: 3, Now: time.Now()}
		for {
			result, err := queryrun.Page(t.Context(), source, queryrun.Limits{PageTime: time.Hour, Time: time.Hour}, r)
			if err != nil {
				t.Fatalf("%s: %v", c.text, err)
			}
			if !strings.Contains(result.Metrics.Access, c.access) {
				t.Errorf("%s: access %q, want %q", c.text, result.Metrics.Access, c.access)
			}
			for _, row := range result.Rows {
				got = append(got, strings.Trim(string(row.Body), `"`))
			}
			if r.After, r.Via = result.Reached, result.Via; !result.More {
				break
			}
		}
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("%s with system properties %t: %s, want %s", c.text, c.system, got, c.want)
		}
	}
}

// systemSource has items, of which the first were written with a _ts of their own, and indexes on system
// properties.
func systemSource(t *testing.T, items, held int) *queryrun.Source {
	t.Helper()
	source := &queryrun.Source{Schema: &engine.Schema{}, Now: time.Now().UnixMilli()}
	for i, pointer := range []string{"/shop", "/_ts", "/_attachments/x"} {
		path, err := document.ParsePointer(pointer)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			source.Key = []document.Path{path}
			continue
		}
		source.Schema.Indexes = append(source.Schema.Indexes, engine.Index{Number: uint32(i), Path: path, Ordered: true, Ready: true})
		source.Indexes = append(source.Indexes, store.IndexSetting{Number: uint32(i), Path: pointer, Ordered: true, Ready: true})
	}
	p := newPartition(t)
	key, err := feed.NewPartitionKey("s1")
	if err != nil {
		t.Fatal(err)
	}
	b := p.NewBatch(source.Schema)
	for i := range items {
		body := fmt.Sprintf(`{"id":"i%02d","shop":"s1"}`, i)
		if i < held {
			body = fmt.Sprintf(`{"id":"i%02d","shop":"s1","_ts":7}`, i)
		}
		if err := b.Put(&engine.Item{Key: key, ID: fmt.Sprintf("i%02d", i), Body: []byte(body), Position: feed.Position{LSN: 1}, Modified: 1_000_000}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	source.Snapshot = p.Snapshot()
	t.Cleanup(source.Snapshot.Close)
	return source
}
