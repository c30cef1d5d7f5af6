package cascade_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/processors/cascade"
)

// categories is a declaration without a fault; tests spoil it.
func categories() cascade.Config {
	return cascade.Config{
		Pipeline: "category-names", Generation: 1, SourceWhere: `type = "category"`,
		Match: []cascade.Pair{{Target: "categoryId", Source: "id"}},
		Set:   []cascade.Pair{{Target: "categoryName", Source: "name"}},
	}
}

func tags() cascade.Config {
	return cascade.Config{
		Pipeline: "tag-names", Generation: 1, SourceWhere: `type = "tag"`, Each: "tags",
		Match: []cascade.Pair{{Target: "id", Source: "id"}}, Set: []cascade.Pair{{Target: "name", Source: "name"}},
		OnSourceDelete: cascade.Clear,
	}
}

func TestCheck(t *testing.T) {
	pair := func(target, source string) cascade.Pair { return cascade.Pair{Target: target, Source: source} }
	for name, c := range map[string]struct {
		base      func() cascade.Config
		spoil     func(*cascade.Config)
		sourceKey []string // default /type
		targetKey []string // default /categoryId
		want      map[string]string
	}{
		"the two of the store": {base: categories, want: nil},
		"an array":             {base: tags, want: nil},
		"key and id by match": {
			base: categories, sourceKey: []string{"/region", "/kind"},
			spoil: func(c *cascade.Config) {
				c.SourceWhere = `kind = "x" AND price > 3`
				c.Match = append(c.Match, pair("regionId", "region"))
			},
		},
		"partition key not fixed": {
			base: categories, spoil: func(c *cascade.Config) { c.SourceWhere = `price > 3` },
			want: map[string]string{"cascade.match": "its type is not fixed"},
		},
		"an equality inside OR fixes nothing": {
			base: categories, spoil: func(c *cascade.Config) { c.SourceWhere = `type = "category" OR price > 3` },
			want: map[string]string{"cascade.match": "its type is not fixed"},
		},
		"id not fixed": {
			base: categories, spoil: func(c *cascade.Config) { c.Match[0].Source = "type" },
			want: map[string]string{"cascade.match": "its id is not fixed"},
		},
		"match on a field that may change": {
			base: categories, spoil: func(c *cascade.Config) { c.Match = append(c.Match, pair("region", "region")) },
			want: map[string]string{"cascade.match.region": "neither its id nor its partition key"},
		},
		"one field that is key and id": {
			base: categories, sourceKey: []string{"/customerId"}, targetKey: []string{"/customerId"},
			spoil: func(c *cascade.Config) {
				c.SourceWhere, c.Match = "", []cascade.Pair{pair("customerId", "customerId"), pair("customerId", "id")}
			},
		},
		"one field that is the key alone": {
			base: categories, sourceKey: []string{"/customerId"}, targetKey: []string{"/customerId"},
			spoil: func(c *cascade.Config) {
				c.SourceWhere, c.Match = "", []cascade.Pair{pair("customerId", "customerId")}
			},
			want: map[string]string{"cascade.match": "if both are equal, customerId: [customerId, id]"},
		},
		"a list with a field that may change": {
			base: categories, spoil: func(c *cascade.Config) { c.Match = append(c.Match, pair("categoryId", "region")) },
			want: map[string]string{"cascade.match.categoryId": "matches the source's region, which is neither its id nor its partition key"},
		},
		"a list with a field twice": {
			base: categories, spoil: func(c *cascade.Config) { c.Match = append(c.Match, pair("categoryId", "id")) },
			want: map[string]string{"cascade.match.categoryId": "names the source's id twice"},
		},
		"no match, no set": {
			base: categories, spoil: func(c *cascade.Config) { c.Match, c.Set = nil, nil },
			want: map[string]string{"cascade.match": "has 0 fields", "cascade.set": "has 0 fields"},
		},
		"bad expressions": {
			base: categories, spoil: func(c *cascade.Config) { c.SourceWhere, c.TargetWhere = `type = `, `=` },
			want: map[string]string{"source.where": "", "cascade.where": ""},
		},
		"set of the matched field": {
			base: categories, spoil: func(c *cascade.Config) { c.Set[0].Target = "categoryId" }, targetKey: []string{"/pk"},
			want: map[string]string{"cascade.set.categoryId": "by which the copy is matched"},
		},
		"set of the partition key": {
			base: categories, spoil: func(c *cascade.Config) { c.Set[0].Target = "pk.a" }, targetKey: []string{"/pk/a"},
			want: map[string]string{"cascade.set.pk.a": "partition key"},
		},
		"set of the id": {
			base: categories, spoil: func(c *cascade.Config) { c.Set[0].Target = "id" },
			want: map[string]string{"cascade.set.id": "id, which cannot be changed"},
		},
		"set of what where reads": {
			base: categories, spoil: func(c *cascade.Config) { c.TargetWhere = `categoryName != "x"` },
			want: map[string]string{"cascade.set.categoryName": "what cascade.where reads"},
		},
		"set of one field twice": {
			base: categories, spoil: func(c *cascade.Config) { c.Set = append(c.Set, pair("categoryName.first", "first")) },
			want: map[string]string{"cascade.set.categoryName.first": "lies inside another"},
		},
		"set of an array's elements by index": {
			base: categories, spoil: func(c *cascade.Config) { c.Set[0].Target = "names[0]" },
			want: map[string]string{"cascade.set.names[0]": "names joined by dots"},
		},
		"copies of many values": {
			base: categories, spoil: func(c *cascade.Config) { c.Set[0].Source = "names[*]" },
			want: map[string]string{"cascade.set.categoryName": "one value is expected"},
		},
		"delete with each": {
			base: tags, spoil: func(c *cascade.Config) { c.OnSourceDelete = cascade.Delete },
			want: map[string]string{"cascade.onSourceDelete": "clear removes the element"},
		},
		"unknown onSourceDelete": {
			base: tags, spoil: func(c *cascade.Config) { c.OnSourceDelete = "drop" },
			want: map[string]string{"cascade.onSourceDelete": "keep, clear or delete"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := c.base()
			if c.spoil != nil {
				c.spoil(&cfg)
			}
			if c.sourceKey == nil {
				c.sourceKey = []string{"/type"}
			}
			if c.targetKey == nil {
				c.targetKey = []string{"/categoryId"}
			}
			got := map[string]string{}
			for _, p := range cascade.Check(&cfg, c.sourceKey, c.targetKey) {
				want, ok := c.want[p.Field]
				if !ok || !strings.Contains(p.Message, want) {
					t.Errorf("problem: %s", p)
				}
				if strings.HasSuffix(p.Field, "where") && p.Line == 0 {
					t.Errorf("no place in the expression: %+v", p)
				}
				got[p.Field] = want
			}
			if diff := cmp.Diff(c.want, got, cmp.FilterPath(func(cmp.Path) bool { return len(c.want) == 0 && len(got) == 0 }, cmp.Ignore())); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
