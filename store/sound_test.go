package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/store"
)

var byID = store.ContainerSpec{PartitionKey: []string{"/id"}, Partitions: 2}

func system(t *testing.T) jetstream.JetStream {
	t.Helper()
	return natstest.Start(t).JS
}

func catalogOf(t *testing.T, js jetstream.JetStream) *store.Catalog {
	t.Helper()
	c, err := store.OpenCatalog(t.Context(), js, store.CatalogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// damaged is what a catalog must answer that cannot know.
func damaged(t *testing.T, what string, err error, words string) {
	t.Helper()
	if _, ok := errors.AsType[*store.DamageError](err); !ok || errors.Is(err, store.ErrNotFound) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%s: %v; want damage, and not that there is nothing", what, err)
		return
	}
	if !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), "millrace doctor") {
		t.Errorf("%s: %v; want %q and doctor in it", what, err, words)
	}
}

// TestI3_OpeningNeverCreatesACatalogBesideLogs loses the catalog in each way there is.
func TestI3_OpeningNeverCreatesACatalogBesideLogs(t *testing.T) {
	key := store.CatalogKey("shop", "orders")
	for name, c := range map[string]struct {
		lose  func(t *testing.T, js jetstream.JetStream)
		words string
	}{
		"the bucket is gone": {func(t *testing.T, js jetstream.JetStream) {
			t.Helper()
			if err := js.DeleteKeyValue(t.Context(), store.CatalogBucket); err != nil {
				t.Fatal(err)
			}
		}, "its bucket millrace_catalog is not there, though 2 logs are"},
		"the bucket is empty": {func(t *testing.T, js jetstream.JetStream) {
			t.Helper()
			if err := js.DeleteKeyValue(t.Context(), store.CatalogBucket); err != nil {
				t.Fatal(err)
			}
			if _, err := js.CreateKeyValue(t.Context(), store.CatalogBucketConfig(1)); err != nil {
				t.Fatal(err)
			}
		}, "belongs to no container"},
		"a record is gone": {func(t *testing.T, js jetstream.JetStream) {
			t.Helper()
			if err := keyValue(t, js).Purge(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}, "belongs to no container"},
		"a record is no JSON": {func(t *testing.T, js jetstream.JetStream) {
			t.Helper()
			if _, err := keyValue(t, js).Put(t.Context(), key, []byte(`{"database":"sh`)); err != nil {
				t.Fatal(err)
			}
		}, "record " + key + " cannot be read"},
		"a record says nothing": {func(t *testing.T, js jetstream.JetStream) {
			t.Helper()
			if _, err := keyValue(t, js).Put(t.Context(), key, []byte(`{}`)); err != nil {
				t.Fatal(err)
			}
		}, "record " + key + " cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			js := system(t)
			running := catalogOf(t, js)
			info, err := running.Create(t.Context(), "shop", "orders", byID)
			if err != nil {
				t.Fatal(err)
			}
			c.lose(t, js)
			before, err := feed.StreamNames(t.Context(), js)
			if err != nil {
				t.Fatal(err)
			}
			_, err = store.OpenCatalog(t.Context(), js, store.CatalogConfig{})
			damaged(t, "open", err, c.words)

			// A process that is there already must not say that there is nothing either.
			store.Forget(running)
			_, err = running.Get(t.Context(), "shop", "orders")
			damaged(t, "get", err, c.words)
			_, err = running.Database(t.Context(), "shop")
			damaged(t, "database", err, c.words)
			_, err = running.Create(t.Context(), "shop", "orders", byID)
			damaged(t, "create", err, c.words)
			_, err = running.Create(t.Context(), "shop", "others", byID)
			damaged(t, "create another", err, c.words)

			after, err := feed.StreamNames(t.Context(), js)
			if err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("streams were %v and are %v, %v", before, after, err)
			}
			for _, p := range info.Partitions {
				log, err := feed.OpenLog(t.Context(), js, feed.Partition{Container: info.ID, Number: p.Number}, feed.LogConfig{})
				if err != nil || log.ID() != p.Log {
					t.Errorf("log %d: %v", p.Number, err)
				}
			}
		})
	}
}

func keyValue(t *testing.T, js jetstream.JetStream) jetstream.KeyValue {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), store.CatalogBucket)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

func TestCatalog_ALostDatabaseIsNotAbsent(t *testing.T) {
	js := system(t)
	c := catalogOf(t, js)
	for _, name := range []string{"kept", "lost", "deleted"} {
		if _, err := c.CreateDatabase(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.DeleteDatabase(t.Context(), "deleted"); err != nil {
		t.Fatal(err)
	}
	if err := c.Sound(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The last message of its key is removed, as by damage, and no marker is left.
	if _, err := c.Database(t.Context(), "deleted"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
	stream, err := js.Stream(t.Context(), "KV_"+store.CatalogBucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("$KV."+store.CatalogBucket+".database.lost")); err != nil {
		t.Fatal(err)
	}
	store.Forget(c)
	_, err = c.Database(t.Context(), "lost")
	damaged(t, "lost", err, "the record of database lost is lost")
	if _, err := c.Database(t.Context(), "kept"); err != nil {
		t.Errorf("kept: %v", err)
	}
}

// TestCatalog_IsSoundWhileContainersComeAndGo looks while others declare and delete.
func TestCatalog_IsSoundWhileContainersComeAndGo(t *testing.T) {
	js := system(t)
	first := make(chan *store.Catalog, 4)
	var opening sync.WaitGroup
	for range cap(first) { // of nothing, all at once
		opening.Go(func() {
			c, err := store.OpenCatalog(t.Context(), js, store.CatalogConfig{})
			if err != nil {
				t.Error(err)
			}
			first <- c
		})
	}
	opening.Wait()
	close(first)
	var working sync.WaitGroup
	done := make(chan struct{})
	i := 0
	for c := range first {
		if c == nil {
			t.FailNow()
		}
		i++
		name := fmt.Sprintf("orders%d", i)
		working.Go(func() {
			for range 15 {
				if _, err := c.Create(t.Context(), "shop", name, byID); err != nil {
					t.Error(err)
				}
				if err := c.Delete(t.Context(), "shop", name); err != nil {
					t.Error(err)
				}
				if _, err := c.Get(t.Context(), "shop", name); !errors.Is(err, store.ErrNotFound) {
					t.Errorf("a container that was deleted: %v", err)
				}
			}
		})
	}
	go func() { working.Wait(); close(done) }()
	for looks := 0; ; looks++ {
		e, err := store.Examine(t.Context(), js)
		if err == nil {
			err = e.Err()
		}
		if err != nil {
			t.Fatalf("look %d: %v", looks, err)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}
