package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

// scanAll returns all items of a container.
func scanAll[T any](t testing.TB, c *store.Container) []T {
	t.Helper()
	var all []T
	for _, p := range c.Partitions() {
		for scan := (store.Scan{ItemsMax: 1000}); ; {
			result, err := c.Scan(t.Context(), p, scan)
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range result.Items {
				var v T
				if err := json.Unmarshal(item.Body, &v); err != nil {
					t.Fatal(err)
				}
				all = append(all, v)
			}
			if scan.After = result.Cursor; scan.After == nil {
				break
			}
		}
	}
	return all
}

// compare compares the store at rest with what was written.
func (m *model) compare() {
	t := m.w.t
	t.Helper()
	metas := map[string]metaItem{}
	for _, item := range scanAll[metaItem](t, m.meta) {
		metas[item.Type+"/"+item.ID] = item
	}
	if !maps.Equal(metas, m.metas) {
		t.Errorf("the sources are not what was written: %d, want %d", len(metas), len(m.metas))
	}
	products := map[string]productItem{}
	for _, p := range scanAll[productItem](t, m.product) {
		if other, twice := products[p.ID]; twice {
			t.Errorf("product %s is there twice: %+v, %+v", p.ID, p, other)
		}
		products[p.ID] = p
		m.compareProduct(&p)
	}
	for id := range m.products {
		if _, ok := products[id]; !ok {
			t.Errorf("product %s is not there", id)
		}
	}
	reviews := map[string]bool{}
	for _, r := range scanAll[reviewItem](t, m.review) {
		reviews[r.ID] = true
		want := m.reviews[r.ID]
		if r.ProductID != want.ProductID || r.CategoryID != want.CategoryID {
			t.Errorf("review %+v, want %+v", r, want)
		}
		p, ok := products[r.ProductID]
		if ok && p.CategoryID == r.CategoryID && (r.ProductN != p.N || r.CategoryName != p.CategoryName) {
			t.Errorf("review %+v of product %+v", r, p)
		}
	}
	m.agree()
	for id, r := range m.reviews {
		if !reviews[id] && !m.bereaved[r.CategoryID+"/"+r.ProductID] {
			t.Errorf("review %+v is not there", r)
		}
	}
	if deadLetters, err := m.w.DeadLetters.List(context.Background(), "tag-names", 1); err != nil || len(deadLetters) > 0 {
		t.Errorf("dead letters: %+v, %v", deadLetters, err)
	}
}

// agree asks for every copy what its source says, or its source's tombstone.
func (m *model) agree() {
	t := m.w.t
	t.Helper()
	for _, cfg := range m.configs {
		cas, err := cascade.Compile(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range m.w.disagreements(cas) {
			t.Errorf("%s: %s", cfg.Pipeline, line)
		}
	}
}

// compareProduct compares a product with its author's and its copies with their
// sources, or with what their sources were last. What refers to what never was is what
// the author wrote.
func (m *model) compareProduct(p *productItem) {
	t := m.w.t
	t.Helper()
	want, ok := m.products[p.ID]
	if !ok || p.CategoryID != want.CategoryID || p.N != want.N {
		t.Errorf("product %+v, want %+v", p, want)
		return
	}
	category, ever := m.last["category/"+p.CategoryID]
	if !ever {
		category.Name = want.CategoryName
	}
	if p.CategoryName != category.Name {
		t.Errorf("product %s has category %q, want %q; category: %s\nproduct: %s", p.ID, p.CategoryName, category.Name,
			m.history(m.meta, p.CategoryID), m.history(m.product, p.ID))
	}
	rest, kept := want.Tags, map[string]bool{}
	for _, tag := range p.Tags {
		// The elements that are left are in the author's order.
		i := slices.IndexFunc(rest, func(x tagItem) bool { return x.ID == tag.ID })
		if i < 0 {
			t.Errorf("product %s has tags %+v, want %+v", p.ID, p.Tags, want.Tags)
			return
		}
		kept[tag.ID] = true
		rest = rest[i+1:]
		source, ok := m.metas["tag/"+tag.ID]
		if _, ever := m.last["tag/"+tag.ID]; !ever {
			source = metaItem{Name: want.Tags[len(want.Tags)-len(rest)-1].Name}
			ok = true
		}
		if !ok || tag.Name != source.Name {
			t.Errorf("product %s has tag %+v, want %q (%t); tag: %s\nproduct: %s", p.ID, tag, source.Name, ok,
				m.history(m.meta, tag.ID), m.history(m.product, p.ID))
		}
	}
	for _, tag := range want.Tags {
		if !kept[tag.ID] && m.removed[tag.ID] < m.written[p.ID] && m.lives("tag/"+tag.ID) {
			t.Errorf("product %s lost tag %s, which was not gone since; tag: %s\nproduct: %s", p.ID, tag.ID,
				m.history(m.meta, tag.ID), m.history(m.product, p.ID))
		}
	}
}

// lives says that a category or tag is there, or never was.
func (m *model) lives(name string) bool {
	_, there := m.metas[name]
	_, ever := m.last[name]
	return there || !ever
}

// history tells what the logs hold of an item: what went wrong, and when.
func (m *model) history(c *store.Container, id string) string {
	var b strings.Builder
	for _, p := range c.Partitions() {
		end := m.w.End(p)
		for lsn := end - min(end, 3000) + 1; lsn <= end; lsn++ {
			commit, err := m.w.Log(p).Read(m.w.t.Context(), lsn)
			if err != nil {
				return err.Error()
			}
			index := 0
			for _, t := range commit.Transactions {
				for _, ch := range t.Changes {
					if ch.ID == id {
						fmt.Fprintf(&b, "\n  %s at %d.%d by %q, %d ms: %s %s", p, lsn, index, commit.Owner, commit.Time%1e6, ch.Op, ch.After)
						if t.Effect != nil {
							fmt.Fprintf(&b, " by %s epoch %d", t.Effect.Producer, t.Effect.Epoch)
						}
						if t.Page != nil {
							fmt.Fprintf(&b, " page of %s at %s", t.Page.Source, t.Page.Position)
						}
					}
					index++
				}
			}
		}
	}
	return b.String()
}
