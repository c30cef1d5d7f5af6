package registry

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// TestIsRestored_AsksForAllContainers: of one that was made after the time that was restored
// there is no other one.
func TestIsRestored_AsksForAllContainers(t *testing.T) {
	made := func(ids ...feed.ResourceID) (all []store.ContainerInfo) {
		for _, id := range ids {
			all = append(all, store.ContainerInfo{Database: "d", ID: "new-" + id, State: store.ContainerReady, Origin: &store.Origin{ID: id}})
		}
		return all
	}
	cascade := &Record{Database: "d", Source: "s", Target: "t"}
	files := &Record{Database: "d", Source: "s"}
	tables := &Record{Database: "d", Source: "s", Tables: []feed.ResourceID{"t1", "t2"}}
	for _, c := range []struct {
		rec        *Record
		containers []store.ContainerInfo
		want       bool
	}{
		{cascade, made("s", "t"), true},
		{cascade, made("s"), false},
		{cascade, made("t"), false},
		{files, made("s"), true},
		{files, made("t"), false},
		{tables, made("s", "t1", "t2"), true},
		{tables, made("s", "t1"), false},
	} {
		if is := c.rec.IsRestored(c.containers); is != c.want {
			t.Errorf("%+v with %+v: %v", c.rec, c.containers, is)
		}
		creating := slices.Clone(c.containers)
		creating[0].State = store.ContainerCreating
		elsewhere := slices.Clone(c.containers)
		elsewhere[0].Database = "other"
		if c.rec.IsRestored(creating) || c.rec.IsRestored(elsewhere) {
			t.Errorf("%+v is restored with a container that is not ready, or elsewhere", c.rec)
		}
	}
}
