package users_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/store/rid"
	"github.com/millrace/millrace/store/users"
)

func newJetStream(t *testing.T) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

var (
	shop    = rid.Database{1, 2, 3, 4}
	another = rid.Database{1, 2, 3, 5}
)

func scope(container string) users.Scope {
	return users.Scope{Mode: users.Read, Resource: "dbs/shop/colls/" + container, Container: container, ContainerRID: container}
}

func names(all []users.User) (names []string) {
	for _, u := range all {
		names = append(names, u.Name)
	}
	return names
}

// Users are of one database and of no other of its name, whatever they are called, and another process sees them.
func TestBook_UsersOfADatabase(t *testing.T) {
	t.Parallel()
	js := newJetStream(t)
	b, ctx := users.New(js, 1), t.Context()
	if all, err := b.List(ctx, "shop", shop); err != nil || len(all) != 0 {
		t.Errorf("before the first: %v, %v", all, err)
	}
	if _, err := b.Get(ctx, "shop", shop, "ann"); !errors.Is(err, users.ErrNotFound) {
		t.Errorf("before the first: %v", err)
	}
	if err := b.RemoveAll(ctx, "shop", shop); err != nil {
		t.Errorf("before the first: %v", err)
	}
	for _, name := range []string{"bob", "ann", "日本 @x.y", "*", ">"} {
		must[users.User](t)(b.Create(ctx, "shop", shop, name))
	}
	must[users.User](t)(b.Create(ctx, "shop.a", another, "eve"))
	_, err := b.Create(ctx, "shop", shop, "ann")
	if _, taken := errors.AsType[*users.TakenError](err); !taken {
		t.Errorf("a second ann: %v", err)
	}
	other := users.New(js, 1)
	if diff := cmp.Diff([]string{"*", ">", "ann", "bob", "日本 @x.y"}, names(must[[]users.User](t)(other.List(ctx, "shop", shop)))); diff != "" {
		t.Error(diff)
	}
	// The database was deleted by a release that knows no users, and made anew.
	if all := must[[]users.User](t)(b.List(ctx, "shop", another)); len(all) != 0 {
		t.Errorf("users of the database of before: %v", names(all))
	}
	if _, err := b.Get(ctx, "shop", another, "ann"); !errors.Is(err, users.ErrNotFound) {
		t.Errorf("a user of the database of before: %v", err)
	}
	was := must[users.User](t)(b.Get(ctx, "shop", shop, "ann"))
	anew := must[users.User](t)(b.Create(ctx, "shop", another, "ann"))
	if anew.RID == was.RID || len(anew.Permissions) > 0 {
		t.Errorf("ann of the new database is %+v", anew)
	}
	if err := b.RemoveAll(ctx, "shop", shop); err != nil {
		t.Fatal(err)
	}
	if all := must[[]users.User](t)(b.List(ctx, "shop", another)); len(all) != 1 {
		t.Errorf("those of the new database are %v", names(all))
	}
	if all := must[[]users.User](t)(b.List(ctx, "shop.a", another)); len(all) != 1 {
		t.Errorf("those of another database are %v", names(all))
	}
}

// Permissions change under compare-and-set: none is lost where two change at once.
func TestBook_PermissionsAtOnce(t *testing.T) {
	t.Parallel()
	b, ctx := users.New(newJetStream(t), 1), t.Context()
	must[users.User](t)(b.Create(ctx, "shop", shop, "ann"))
	const n = 8
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			err := b.Change(ctx, "shop", shop, "ann", func(u *users.User) error {
				_, err := u.Permit(fmt.Sprint("p", i), scope(fmt.Sprint("c", i)))
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	u := must[users.User](t)(b.Get(ctx, "shop", shop, "ann"))
	serials := map[users.Serial]bool{}
	for _, p := range u.Permissions {
		serials[p.Serial] = true
	}
	if len(serials) != n {
		t.Errorf("%d permissions with serials of their own, want %d: %+v", len(serials), n, u)
	}
}

// A name and a resource are free for one permission of a user; a serial changes with what a permission opens alone.
func TestUser_Permissions(t *testing.T) {
	t.Parallel()
	b := users.New(newJetStream(t), 1)
	u := must[users.User](t)(b.Create(t.Context(), "shop", shop, "ann"))
	must[*users.Permission](t)(u.Permit("p", scope("a")))
	must[*users.Permission](t)(u.Permit("q", scope("b")))
	p := u.Permission("p")
	taken := func(what string, err error) {
		t.Helper()
		if _, is := errors.AsType[*users.TakenError](err); !is {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := u.Permit("p", scope("c"))
	taken("its name", err)
	_, err = u.Permit("r", scope("a"))
	taken("its resource", err)
	taken("a name", u.Replace(p, "q", scope("a")))
	taken("a resource", u.Replace(p, "p", scope("b")))
	was := *p
	rewritten := was.Scope
	rewritten.Resource = "dbs/x/colls/y"
	if err := u.Replace(p, "renamed", rewritten); err != nil || p.Serial != was.Serial || p.Tag == was.Tag || p.RID != was.RID {
		t.Errorf("renamed: %v, %+v", err, p)
	}
	for _, change := range []func(*users.Scope){
		func(s *users.Scope) { s.Mode = users.All },
		func(s *users.Scope) { s.Key = `["a"]` },
		func(s *users.Scope) { s.Item = "1" },
		func(s *users.Scope) { s.ItemRID = "1" },
		func(s *users.Scope) { s.Container, s.ContainerRID = "z", "z" },
		func(s *users.Scope) { s.Mode = users.Read },
	} {
		was, next := *p, p.Scope
		change(&next)
		if err := u.Replace(p, p.Name, next); err != nil || p.Serial == was.Serial || u.PermissionOf(was.Serial) != nil {
			t.Errorf("changed to %+v: %v, %+v", next, err, p)
		}
	}
	u.Forbid(p)
	if u.Permission("renamed") != nil || u.Permission("q") == nil || len(u.Permissions) != 1 {
		t.Errorf("left are %+v", u.Permissions)
	}
}

// A user has a bound number of permissions, and a record of bound size.
func TestUser_IsBounded(t *testing.T) {
	t.Parallel()
	b, ctx := users.New(newJetStream(t), 1), t.Context()
	must[users.User](t)(b.Create(ctx, "shop", shop, "ann"))
	full := func(what string, err error) {
		t.Helper()
		if _, is := errors.AsType[*users.FullError](err); !is {
			t.Errorf("%s: %v", what, err)
		}
	}
	full("too many", b.Change(ctx, "shop", shop, "ann", func(u *users.User) error {
		for i := range users.PermissionsMax + 1 {
			if _, err := u.Permit(fmt.Sprint(i), scope(fmt.Sprint("c", i))); err != nil {
				return err
			}
		}
		return nil
	}))
	full("too large", b.Change(ctx, "shop", shop, "ann", func(u *users.User) error {
		_, err := u.Permit("p", scope(fmt.Sprintf("%0600000d", 1)))
		return err
	}))
	if u := must[users.User](t)(b.Get(ctx, "shop", shop, "ann")); len(u.Permissions) != 0 {
		t.Errorf("it has %d permissions", len(u.Permissions))
	}
}

// A user keeps its id and permissions under another name; one that has changed is not renamed or deleted unseen.
func TestBook_RenameAndDelete(t *testing.T) {
	t.Parallel()
	b, ctx := users.New(newJetStream(t), 1), t.Context()
	seen := must[users.User](t)(b.Create(ctx, "shop", shop, "ann"))
	must[users.User](t)(b.Create(ctx, "shop", shop, "bob"))
	permit := func(u *users.User) error {
		_, err := u.Permit("p", scope("c"))
		return err
	}
	if err := b.Change(ctx, "shop", shop, "ann", permit); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Rename(ctx, &seen, "eve"); !errors.Is(err, users.ErrChanged) {
		t.Errorf("renamed, as it was: %v", err)
	}
	if _, err := b.Rename(ctx, &seen, "ann"); !errors.Is(err, users.ErrChanged) {
		t.Errorf("renamed to itself, as it was: %v", err)
	}
	if err := b.Delete(ctx, &seen); !errors.Is(err, users.ErrChanged) {
		t.Errorf("deleted, as it was: %v", err)
	}
	seen = must[users.User](t)(b.Get(ctx, "shop", shop, "ann"))
	_, err := b.Rename(ctx, &seen, "bob")
	if _, taken := errors.AsType[*users.TakenError](err); !taken {
		t.Errorf("renamed to another's name: %v", err)
	}
	eve := must[users.User](t)(b.Rename(ctx, &seen, "eve"))
	if eve.RID != seen.RID || eve.Tag == seen.Tag || len(eve.Permissions) != 1 {
		t.Errorf("renamed: %+v", eve)
	}
	if diff := cmp.Diff([]string{"bob", "eve"}, names(must[[]users.User](t)(b.List(ctx, "shop", shop)))); diff != "" {
		t.Error(diff)
	}
	if err := b.Change(ctx, "shop", shop, "ann", permit); !errors.Is(err, users.ErrNotFound) {
		t.Errorf("changed under its old name: %v", err)
	}
	if err := b.Delete(ctx, &eve); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Lookup(ctx, "shop", "eve"); !errors.Is(err, users.ErrNotFound) {
		t.Errorf("it is there still: %v", err)
	}
}
