package store_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/store"
)

func newCatalog(t *testing.T) *store.Catalog {
	t.Helper()
	return catalogOf(t, natstest.Start(t).JS)
}

func databaseNames(t *testing.T, c *store.Catalog) []string {
	t.Helper()
	infos, err := c.Databases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, info := range infos {
		names = append(names, info.Name)
	}
	return names
}

// A database is there because it was created, or because it has a container.
func TestCatalog_Databases(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	ctx := t.Context()
	if _, err := c.Create(ctx, "implied", "things", store.ContainerSpec{PartitionKey: []string{"/a"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateDatabase(ctx, "made"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"implied", "made"} {
		if _, err := c.CreateDatabase(ctx, name); !errors.Is(err, store.ErrConflict) {
			t.Errorf("creating %s again: %v, want a conflict", name, err)
		}
	}
	if _, err := c.CreateDatabase(ctx, "no good"); !errors.Is(err, store.ErrBadRequest) {
		t.Errorf("a bad name: %v", err)
	}
	if diff := cmp.Diff([]string{"implied", "made"}, databaseNames(t, c)); diff != "" {
		t.Error(diff)
	}
	if all, err := c.List(ctx); err != nil || len(all) != 1 {
		t.Errorf("containers: %v, %v; a database is none", all, err)
	}
	for _, name := range []string{"implied", "made"} {
		if err := c.DeleteDatabase(ctx, name); err != nil {
			t.Fatal(err)
		}
		if err := c.DeleteDatabase(ctx, name); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("deleting %s again: %v, want not found", name, err)
		}
	}
	if left := databaseNames(t, c); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if all, err := c.List(ctx); err != nil || len(all) != 0 {
		t.Errorf("containers left: %v, %v", all, err)
	}
}

func TestContainerInfo_RIDIsWellFormed(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	spec := store.ContainerSpec{PartitionKey: []string{"/a"}}
	first, err := c.Create(t.Context(), "shop", "things", spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), "shop", "things"); err != nil {
		t.Fatal(err)
	}
	again, err := c.Create(t.Context(), "shop", "things", spec)
	if err != nil {
		t.Fatal(err)
	}
	rid, second := first.RID(), again.RID()
	if rid == second {
		t.Error("a container that was made anew has the rid of the one before")
	}
	if [4]byte(rid[:4]) != store.DatabaseRID("shop") || rid[4]&0x80 == 0 {
		t.Errorf("rid %x: want the database's %x and then the high bit", rid, store.DatabaseRID("shop"))
	}
	back, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(store.RIDText(rid[:]), "-", "/"))
	if err != nil || !cmp.Equal(rid[:], back) {
		t.Errorf("%s decodes to %x, %v", store.RIDText(rid[:]), back, err)
	}
}

func TestCatalog_PoliciesOfTheFirst(t *testing.T) {
	t.Parallel()
	c := newCatalog(t)
	info, err := c.Create(t.Context(), "shop", "things", store.ContainerSpec{PartitionKey: []string{"/a"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetPolicies(t.Context(), &info, []byte(`{"by":"one"}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetPolicies(t.Context(), &info, []byte(`{"by":"two"}`)); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the second: %v, want a conflict", err)
	}
	got, err := c.Get(t.Context(), "shop", "things")
	if err != nil || string(got.Policies) != `{"by":"one"}` {
		t.Errorf("%s, %v", got.Policies, err)
	}
}
