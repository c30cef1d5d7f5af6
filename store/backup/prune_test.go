package backup_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/backup"
	"github.com/millrace/millrace/store/snapshot"
)

// comparing is a directory that compares before it replaces, as a bucket does.
type comparing struct {
	snapshot.Store
	mu sync.Mutex
}

func (c *comparing) Look(ctx context.Context, name string) ([]byte, snapshot.Revision, error) {
	data, err := c.Get(ctx, name)
	return data, snapshot.Revision(data), err
}

func (c *comparing) Replace(ctx context.Context, name string, data []byte, seen snapshot.Revision) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if there, err := c.Get(ctx, name); string(there) != string(seen) || err != nil && !errors.Is(err, snapshot.ErrNotFound) {
		return errors.Join(snapshot.ErrChanged, err)
	}
	return c.Put(ctx, name, data)
}

// stepped calls at before each of its uses.
type stepped struct {
	snapshot.Store
	at func(what, name string) error
}

func (s *stepped) Put(ctx context.Context, name string, data []byte) error {
	if err := s.at("put", name); err != nil {
		return err
	}
	return s.Store.Put(ctx, name, data)
}

func (s *stepped) List(ctx context.Context, prefix string) ([]string, error) {
	if err := s.at("list", prefix); err != nil {
		return nil, err
	}
	return s.Store.List(ctx, prefix)
}

func (s *stepped) Look(ctx context.Context, name string) ([]byte, snapshot.Revision, error) {
	if err := s.at("look", name); err != nil {
		return nil, "", err
	}
	return s.Store.Look(ctx, name)
}

func (s *stepped) Replace(ctx context.Context, name string, data []byte, seen snapshot.Revision) error {
	if err := s.at("replace", name); err != nil {
		return err
	}
	return s.Store.Replace(ctx, name, data, seen)
}

func (s *stepped) Remove(ctx context.Context, name string) error {
	if err := s.at("remove", name); err != nil {
		return err
	}
	return s.Store.Remove(ctx, name)
}

func prune(t testing.TB, place snapshot.Store, keep backup.Keep, dry bool) *backup.Pruned {
	t.Helper()
	r, err := backup.Prune(t.Context(), place, keep, dry, nil)
	must(t, err)
	return r
}

// based starts a store with one partition; next writes what the next backup is to send.
func based(t testing.TB) (s *storetest.Store, next func()) {
	t.Helper()
	s = storetest.Start(t)
	c := s.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}})
	round := 0
	return s, func() {
		round++
		write(t, c, 0, 3, round)
	}
}

func TestPrune_OnlyWhatNoOtherBackupNeedsGoes(t *testing.T) {
	t.Parallel()
	s, next := based(t)
	dir := t.TempDir()
	place := snapshot.Directory(dir)
	var made []string
	for range 4 {
		next()
		made = append(made, create(t, s, place).ID)
	}
	must(t, place.Put(t.Context(), "parts/c/0/0123456789abcdef-7", []byte("left by a create that was cut off")))
	before := len(objects(t, dir))
	would := prune(t, place, backup.Keep{Last: 2}, true)
	if would.Done || fmt.Sprint(would.Backups, would.Kept) != fmt.Sprint(made[:2], made[2:]) || len(objects(t, dir)) != before {
		t.Errorf("a dry run: %+v, %d objects of %d", would, len(objects(t, dir)), before)
	}
	if stay := prune(t, place, backup.Keep{Last: 1, Within: time.Hour}, true); len(stay.Backups) > 0 {
		t.Errorf("backups of the last hour go: %+v", stay)
	}
	if all := prune(t, place, backup.Keep{Within: time.Nanosecond}, true); len(all.Kept) != 1 {
		t.Errorf("the newest one goes: %+v", all)
	}
	done := prune(t, place, backup.Keep{Last: 2}, false)
	if !done.Done || done.Objects != would.Objects || len(objects(t, dir)) != before-done.Objects || done.Objects != 3 {
		t.Errorf("%+v; %d objects of %d are there", done, len(objects(t, dir)), before)
	}
	if r := whole(t, place); fmt.Sprint(r.Backups) != fmt.Sprint(made[2:]) {
		t.Errorf("there are %v, want %v", r.Backups, made[2:])
	}
	next()
	create(t, s, place)
	if r := whole(t, place); len(r.Backups) != 3 {
		t.Errorf("there are %v", r.Backups)
	}
}

// TestSweep_WhatAKilledCreateWasWriting goes with the next create, and with the next prune that
// is no dry run.
func TestSweep_WhatAKilledCreateWasWriting(t *testing.T) {
	t.Parallel()
	s, next := based(t)
	dir := t.TempDir()
	place := snapshot.Directory(dir)
	next()
	create(t, s, place)
	left := func() (all []string) {
		for _, name := range objects(t, dir) {
			if strings.HasSuffix(name, ".tmp") {
				all = append(all, name)
			}
		}
		return all
	}
	kill := func() {
		t.Helper()
		for _, name := range []string{"backups/20260101T000000.000000Z.json.tmp", "parts/c7k2x4ab/0/0123456789abcdef-7.tmp", "log/c7k2x4ab/0/1-2.tmp"} {
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
			must(t, os.WriteFile(filepath.Join(dir, name), []byte("in part"), 0o600))
		}
	}
	kill()
	next()
	create(t, s, place)
	if names := left(); len(names) > 0 {
		t.Errorf("the next create leaves %q", names)
	}
	kill()
	prune(t, place, backup.Keep{Last: 1}, true)
	if names := left(); len(names) != 3 {
		t.Errorf("a dry run leaves %q", names)
	}
	prune(t, place, backup.Keep{Last: 1}, false)
	if names := left(); len(names) > 0 {
		t.Errorf("a prune leaves %q", names)
	}
}

// A manifest that cannot be read may need anything, so nothing goes.
func TestPrune_RefusesWhereAManifestCannotBeRead(t *testing.T) {
	t.Parallel()
	s, next := based(t)
	dir := t.TempDir()
	place := snapshot.Directory(dir)
	for range 2 {
		next()
		create(t, s, place)
	}
	for _, name := range objects(t, dir) {
		if strings.Contains(name, "/backups/") {
			must(t, os.WriteFile(name, []byte("{"), 0o600))
			break
		}
	}
	before := len(objects(t, dir))
	_, err := backup.Prune(t.Context(), place, backup.Keep{Last: 1}, false, nil)
	if _, ok := errors.AsType[*backup.UnreadableError](err); !ok || len(objects(t, dir)) != before {
		t.Errorf("%v; %d objects of %d", err, len(objects(t, dir)), before)
	}
}

var errEnd = errors.New("killed")

// TestPrune_EndsAtAnyStep: what is listed afterwards is whole, and the next ones go on.
func TestPrune_EndsAtAnyStep(t *testing.T) {
	t.Parallel()
	s, next := based(t)
	ended := false
	for n := 1; !ended; n++ {
		place := snapshot.Directory(t.TempDir())
		for range 3 {
			next()
			create(t, s, place)
		}
		step := 0
		_, err := backup.Prune(t.Context(), &stepped{place, func(string, string) error {
			if step++; step >= n {
				return errEnd
			}
			return nil
		}}, backup.Keep{Last: 1}, false, nil)
		if ended = err == nil; !ended && !errors.Is(err, errEnd) {
			t.Fatal(err)
		}
		whole(t, place)
		next()
		create(t, s, place)
		whole(t, place)
		if r := prune(t, place, backup.Keep{Last: 1}, false); len(r.Kept) != 1 {
			t.Errorf("step %d: %+v", n, r)
		}
		if r := whole(t, place); len(r.Backups) != 1 {
			t.Errorf("step %d: %+v", n, r)
		}
	}
}

// TestPrune_EndsWhileItChooses: a backup that is made while a prune chooses, and is said to be one,
// stays one wherever the prune ends, and for the next prune.
func TestPrune_EndsWhileItChooses(t *testing.T) {
	backup.TakeForDeadAfter(t, time.Millisecond)
	s, next := based(t)
	ended := false
	for n := 1; !ended; n++ {
		place := &comparing{Store: snapshot.Directory(t.TempDir())}
		for range 2 {
			next()
			create(t, s, place)
		}
		made, step := "", 0
		_, err := backup.Prune(t.Context(), &stepped{place, func(what, _ string) error {
			if made == "" && what == "replace" { // the epoch is raised next
				next()
				made = create(t, s, place).ID
			}
			if made != "" {
				step++
			}
			if step > n {
				return errEnd
			}
			return nil
		}}, backup.Keep{Last: 1}, false, nil)
		if ended = err == nil; !ended && !errors.Is(err, errEnd) {
			t.Fatal(err)
		}
		there := func(when string) {
			t.Helper()
			if r := whole(t, place); !strings.Contains(fmt.Sprint(r.Backups), made) {
				t.Errorf("ended after %d steps, %s: there are %v, and %q was made", n, when, r.Backups, made)
			}
		}
		there("at once")
		next()
		create(t, s, place)
		there("after a create")
		prune(t, place, backup.Keep{Last: 2}, false)
		there("after a prune")
	}
}

// TestPrune_BesideACreate prunes in a place that compares, before each step of a create that
// goes on with what is there, and creates before each step of a prune at which the prune
// finds out that it was taken for dead. What both say is there is whole.
func TestPrune_BesideACreate(t *testing.T) {
	backup.TakeForDeadAfter(t, time.Millisecond)
	s, next := based(t)
	for _, first := range []string{"create", "prune"} {
		for n, ended := 1, false; !ended; n++ {
			place := &comparing{Store: snapshot.Directory(t.TempDir())}
			for range 2 {
				next()
				create(t, s, place)
			}
			next()
			// What a create that was cut off has sent, and the next one finds.
			_, err := backup.Create(t.Context(), &stepped{place, func(what, name string) error {
				if what == "replace" {
					return errEnd
				}
				return nil
			}}, source(s))
			if !errors.Is(err, errEnd) {
				t.Fatal(err)
			}
			step := 0
			beside := func(what, name string) error {
				if what == "remove" {
					return nil // it has shown that it is alive just before
				}
				if step++; step != n {
					return nil
				}
				if first == "create" {
					prune(t, place, backup.Keep{Last: 1}, false)
					return nil
				}
				create(t, s, place)
				return nil
			}
			var made string
			if first == "create" {
				made = create(t, s, &stepped{place, beside}).ID
			} else if _, err := backup.Prune(t.Context(), &stepped{place, beside}, backup.Keep{Last: 1}, false, nil); err != nil && !errors.Is(err, snapshot.ErrChanged) {
				t.Fatalf("step %d: %v", n, err)
			}
			ended = step < n
			if r := whole(t, place); made != "" && !strings.Contains(fmt.Sprint(r.Backups), made) || len(r.Backups) == 0 {
				t.Errorf("%s, step %d: there are %v, and %q was made", first, n, r.Backups, made)
			}
		}
	}
}

// deaf fails, or does not have, what has a name that ends so.
type deaf struct {
	snapshot.Store
	name string
	err  error
}

func (d *deaf) Get(ctx context.Context, name string) ([]byte, error) {
	if strings.HasSuffix(name, d.name) {
		return nil, d.err
	}
	return d.Store.Get(ctx, name)
}

// TestAPlaceThatDoesNotAnswerHasNoDamage: a manifest that cannot be read now is not one that is to be removed, and others
// can be restored; one that was pruned meanwhile is none any more. One that is damaged is told of where a time was asked for that it may have.
func TestAPlaceThatDoesNotAnswerHasNoDamage(t *testing.T) {
	t.Parallel()
	s := storetest.Start(t)
	c := s.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}})
	write(t, c, 0, 4, 1)
	dir := t.TempDir()
	place := snapshot.Directory(dir)
	first := create(t, s, place)
	write(t, c, 0, 4, 2)
	second := create(t, s, place)
	manifest := second.ID + ".json"

	slow := &deaf{place, manifest, errors.New("no answer in time")}
	all, damage, err := backup.List(t.Context(), slow)
	if err != nil || len(all) != 1 || len(damage) != 1 || !errors.Is(damage[0], slow.err) {
		t.Errorf("list: %v, %v, %v", all, damage, err)
	}
	if _, err := backup.Choose(t.Context(), slow, first.ID, backup.Latest, nil); err != nil {
		t.Errorf("one that can be read is named: %v", err)
	}
	_, err = backup.Prune(t.Context(), slow, backup.Keep{Last: 1}, true, nil)
	if _, unreadable := errors.AsType[*backup.UnreadableError](err); unreadable || !errors.Is(err, slow.err) {
		t.Errorf("prune: %v", err)
	}
	gone := &deaf{place, manifest, snapshot.ErrNotFound}
	all, damage, err = backup.List(t.Context(), gone)
	if err != nil || len(damage) > 0 || len(all) != 1 || all[0].ID != first.ID {
		t.Errorf("list: %v, %v, %v", all, damage, err)
	}

	must(t, os.WriteFile(filepath.Join(dir, "backups", manifest), []byte("{"), 0o600))
	_, err = backup.Choose(t.Context(), place, "", "2200-01-01T00:00:00Z", nil)
	if _, outside := errors.AsType[*backup.OutsideError](err); !outside || !strings.Contains(err.Error(), manifest) {
		t.Errorf("choose: %v", err)
	}
}
