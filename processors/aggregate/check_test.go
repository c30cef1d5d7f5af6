package aggregate_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/aggregate"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		spoil     func(*accumulator.Spec)
		targetKey []string // default /customerId
		want      map[string]string
	}{
		"without a fault": {},
		"the partition key by where": {
			spoil: func(s *accumulator.Spec) { s.TargetWhere = `type = "customer" AND region = "x"` }, targetKey: []string{"/region", "/customerId"},
		},
		"the partition key is not fixed": {
			targetKey: []string{"/region", "/customerId"}, want: map[string]string{"aggregate.match": "its region is not fixed"},
		},
		"an equality inside OR fixes nothing": {
			spoil:     func(s *accumulator.Spec) { s.TargetWhere = `region = "x" OR type = "customer"` },
			targetKey: []string{"/region"}, want: map[string]string{"aggregate.match": "its region is not fixed"},
		},
		"create without an id": {
			spoil: func(s *accumulator.Spec) { s.Match = s.Match[:1] },
			want:  map[string]string{"aggregate.create": "id of the target"},
		},
		"no id, and none is made": {
			spoil: func(s *accumulator.Spec) { s.Match, s.Create = s.Match[:1], false },
		},
		"a field in the partition key": {
			spoil: func(s *accumulator.Spec) {
				s.Match = append(s.Match, accumulator.Pair{Target: "key.a", Source: "a"})
				s.Set[1].Path = "key"
			},
			want: map[string]string{"aggregate.set.key": "by which the target is matched"},
		},
		"a field that is the partition key": {
			spoil: func(s *accumulator.Spec) {
				s.TargetWhere, s.Set[1].Path = `type = "customer" AND key.a = 1`, "key.b"
			},
			targetKey: []string{"/key/a"},
		},
		"a field that holds the partition key": {
			spoil:     func(s *accumulator.Spec) { s.TargetWhere, s.Set[1].Path = `key.a = 1`, "key" },
			targetKey: []string{"/key/a"},
			want:      map[string]string{"aggregate.set.key": "aggregate.where reads"},
		},
		"a field that where reads": {
			spoil: func(s *accumulator.Spec) { s.Set[1].Path = "type" },
			want:  map[string]string{"aggregate.set.type": "aggregate.where reads"},
		},
		"the id": {
			spoil: func(s *accumulator.Spec) { s.Match, s.Create = s.Match[:1], false; s.Set[1].Path = "id" },
			want:  map[string]string{"aggregate.set.id": "id"},
		},
		"bad expressions": {
			spoil: func(s *accumulator.Spec) { s.SourceWhere, s.TargetWhere, s.Set[3].Expr = `type = `, `=`, `1 +` },
			want:  map[string]string{"source.where": "", "aggregate.where": "", "aggregate.set.total.sum": ""},
		},
		"an unreadable partition key": {
			targetKey: []string{"customerId"}, want: map[string]string{"aggregate.into": "cannot be read"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := byCustomer()
			if c.spoil != nil {
				c.spoil(&spec)
			}
			key := c.targetKey
			if key == nil {
				key = []string{"/customerId"}
			}
			problems := aggregate.Check(&aggregate.Config{Spec: spec}, []string{"/id"}, key)
			got := map[string]string{}
			for _, p := range problems {
				got[p.Field] += p.Message
			}
			for field, message := range c.want {
				if !strings.Contains(got[field], message) || got[field] == "" {
					t.Errorf("%s: %q, want a message with %q", field, got[field], message)
				}
				delete(got, field)
			}
			for field, message := range got {
				t.Errorf("%s: %q was not expected", field, message)
			}
		})
	}
}

// opened returns a container that is described and not there.
func opened(t *testing.T, id feed.ResourceID, partitions int, key ...string) *store.Container {
	t.Helper()
	info := store.ContainerInfo{Database: "default", Name: string(id), ID: id, Spec: store.ContainerSpec{PartitionKey: key, Partitions: partitions}}
	for i, r := range feed.EvenRanges(partitions) {
		info.Partitions = append(info.Partitions, store.PartitionInfo{Number: uint32(i), Range: r})
	}
	c, err := store.NewClient(nil, nil, store.ClientConfig{}).Open(info)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCompileSaysEverythingAtOnce(t *testing.T) {
	spec := byCustomer()
	spec.Match = spec.Match[:1]
	spec.Set[0].Path = "region"
	cfg := aggregate.Config{Pipeline: "p", Spec: spec, Source: opened(t, "aaaaaaaa", 1, "/id"), Target: opened(t, "bbbbbbbb", 1, "/region")}
	cfg.Spec.Create = false
	_, err := aggregate.Compile(cfg)
	if err == nil || !strings.Contains(err.Error(), "region is not fixed") || !strings.Contains(err.Error(), "aggregate.set.region") {
		t.Errorf("compiled: %v", err)
	}
	if _, err := aggregate.Compile(aggregate.Config{Spec: byCustomer()}); err == nil {
		t.Error("compiled without containers")
	}
	cfg.Target, cfg.Spec, cfg.FoldBytesMax = opened(t, "bbbbbbbb", 1, "/customerId"), byCustomer(), -1
	if _, err := aggregate.Compile(cfg); err == nil || !strings.Contains(err.Error(), "foldBytesMax") {
		t.Errorf("compiled with a negative limit: %v", err)
	}
}

func TestLocal(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*aggregate.Config)
		key    []string
		want   bool
	}{
		"the key is matched with itself":            {nil, []string{"/customerId"}, true},
		"another container":                         {func(c *aggregate.Config) { c.Target = opened(t, "bbbbbbbb", 2, "/customerId") }, []string{"/customerId"}, false},
		"the key is matched with another field":     {func(c *aggregate.Config) { c.Spec.Match[0].Source = "payer" }, []string{"/customerId"}, false},
		"named through the item":                    {func(c *aggregate.Config) { c.Spec.Match[0].Source = "item.customerId" }, []string{"/customerId"}, true},
		"of an element, bare":                       {func(c *aggregate.Config) { c.Spec.Each = "details" }, []string{"/customerId"}, false},
		"of an element, through the item":           {func(c *aggregate.Config) { c.Spec.Each = "details"; c.Spec.Match[0].Source = "c.customerId" }, []string{"/customerId"}, true},
		"half of the key":                           {nil, []string{"/customerId", "/type"}, false},
		"the other half is fixed to different text": {nil, []string{"/type", "/customerId"}, false},
		"the other half is fixed alike": {func(c *aggregate.Config) {
			c.Spec.SourceWhere, c.Spec.TargetWhere = `region = 1 AND type = "order"`, `type = "customer" AND region = 1.0`
		}, []string{"/region", "/customerId"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			both := opened(t, "aaaaaaaa", 2, c.key...)
			cfg := aggregate.Config{Pipeline: "p", Spec: byCustomer(), Source: both, Target: both}
			if c.change != nil {
				c.change(&cfg)
			}
			a, err := aggregate.Compile(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if got := aggregate.Local(a); got != c.want {
				t.Errorf("local: %v, want %v", got, c.want)
			}
		})
	}
}
