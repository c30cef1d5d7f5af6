package upkeep_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/store"
)

var errKilled = errors.New("killed")

// doomed is JetStream of a process that is killed at one of the steps in which it changes something of a
// catalog or of streams. It has a connection of its own, which ends with it.
type doomed struct {
	jetstream.JetStream
	before func() // runs before the step
	at     int    // the step, from 0 on
	done   bool   // the step is done before the process dies

	mu     sync.Mutex
	steps  int
	killed bool
}

// dooms returns the JetStream of a process that dies at a step.
func dooms(t testing.TB, server *natstest.Server, at int, done bool, before func()) *doomed {
	t.Helper()
	js := must[jetstream.JetStream](t)(jetstream.New(server.Connect(t), jetstream.WithDefaultTimeout(time.Minute)))
	return &doomed{JetStream: js, at: at, done: done, before: before}
}

// step does one step, unless the process is dead.
func (d *doomed) step(do func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	dies := d.steps == d.at
	if d.steps++; d.killed {
		return errKilled
	}
	if !dies {
		return do()
	}
	d.killed = true
	d.before()
	if d.done {
		_ = do() // its outcome dies with it
	}
	d.Conn().Close()
	return errKilled
}

func (d *doomed) CreateStream(ctx context.Context, cfg jetstream.StreamConfig) (s jetstream.Stream, err error) { //nolint:gocritic // the interface's
	err = d.step(func() (err error) {
		s, err = d.JetStream.CreateStream(ctx, cfg)
		return err
	})
	return s, err
}

func (d *doomed) KeyValue(ctx context.Context, name string) (jetstream.KeyValue, error) {
	kv, err := d.JetStream.KeyValue(ctx, name)
	return doomedKV{kv, d}, err
}

type doomedKV struct {
	jetstream.KeyValue
	d *doomed
}

func (kv doomedKV) Create(ctx context.Context, key string, value []byte, opts ...jetstream.KVCreateOpt) (n uint64, err error) {
	err = kv.d.step(func() (err error) {
		n, err = kv.KeyValue.Create(ctx, key, value, opts...)
		return err
	})
	return n, err
}

func (kv doomedKV) Update(ctx context.Context, key string, value []byte, last uint64) (n uint64, err error) {
	err = kv.d.step(func() (err error) {
		n, err = kv.KeyValue.Update(ctx, key, value, last)
		return err
	})
	return n, err
}

// TestKilled_WhoMakesLogs: the maker of a container dies at each step, before or behind it, and the container is deleted
// just before or not. The next maker goes on, or begins anew, and nothing is left of the first one.
func TestKilled_WhoMakesLogs(t *testing.T) {
	t.Parallel()
	spec := store.ContainerSpec{PartitionKey: []string{"/id"}, Partitions: 2}
	for at, step := range []string{"the record", "the first log", "the second log", "the record that says ready"} {
		for _, done := range []bool{false, true} {
			for _, deleted := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, done %v, deleted %v", step, done, deleted), func(t *testing.T) {
					t.Parallel()
					server := natstest.Start(t)
					catalog := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), server.JS, store.CatalogConfig{}))
					dies := dooms(t, server, at, done, func() {
						if err := catalog.Delete(t.Context(), "default", "orders"); deleted && at > 0 && err != nil {
							t.Error(err)
						}
					})
					if !deleted {
						dies.before = func() {}
					}
					maker := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), dies, store.CatalogConfig{}))
					if _, err := maker.Create(t.Context(), "default", "orders", spec); err == nil || !dies.killed {
						t.Fatalf("the maker has not died: %v", err)
					}
					// Another process, which has heard of nothing.
					next := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), server.JS, store.CatalogConfig{}))
					info := must[store.ContainerInfo](t)(next.Create(t.Context(), "default", "orders", spec))
					if info.State != store.ContainerReady {
						t.Errorf("it is %s", info.State)
					}
					onlyLogsOf(t, server.JS, next, info)
				})
			}
		}
	}
}

// onlyLogsOf lets a keeper make a pass, and compares the logs that are there with those of one container.
func onlyLogsOf(t *testing.T, js jetstream.JetStream, catalog *store.Catalog, info store.ContainerInfo) {
	t.Helper()
	if _, err := keeper(js, catalog, 1).Pass(t.Context()); err != nil {
		t.Error(err)
	}
	var want []string
	for _, p := range info.Partitions {
		partition := feed.Partition{Container: info.ID, Number: p.Number}
		want = append(want, partition.Stream())
		log := must[*feed.Log](t)(feed.OpenLog(t.Context(), js, partition, feed.LogConfig{}))
		if _, last, err := log.Bounds(t.Context()); err != nil || last != 1 || log.ID() != p.Log {
			t.Errorf("log %s of partition %d ends at %d, %v; want log %s with its first commit", log.ID(), p.Number, last, err, p.Log)
		}
		log.Close()
	}
	names := slices.DeleteFunc(must[[]string](t)(feed.StreamNames(t.Context(), js)), func(name string) bool { return !strings.HasPrefix(name, "MILLRACE_") })
	if !slices.Equal(names, want) {
		t.Errorf("streams %v, want %v", names, want)
	}
	if exam := must[*store.Exam](t)(store.Examine(t.Context(), js)); exam.Err() != nil || len(exam.Left) > 0 {
		t.Errorf("%v, left %v", exam.Err(), exam.Left)
	}
}

// TestKilled_WhoMovesALog: an owner dies when it has made the new stream of a log, while the container is deleted. The
// stream, whose name ends in _2, is no damage: nobody waits for an operator, and a keeper removes it.
func TestKilled_WhoMovesALog(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	catalog := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), server.JS, store.CatalogConfig{}))
	spec := store.ContainerSpec{PartitionKey: []string{"/id"}}
	former := must[store.ContainerInfo](t)(catalog.Create(t.Context(), "default", "orders", spec))
	p := feed.Partition{Container: former.ID}
	// As an earlier release made it.
	cfg := must[jetstream.Stream](t)(server.JS.Stream(t.Context(), p.Stream())).CachedInfo().Config
	cfg.DenyPurge = true
	must[jetstream.Stream](t)(server.JS.UpdateStream(t.Context(), cfg))

	dies := dooms(t, server, 0, true, func() {
		if err := catalog.Delete(t.Context(), "default", "orders"); err != nil {
			t.Error(err)
		}
	})
	log := must[*feed.Log](t)(feed.OpenLog(t.Context(), dies, p, feed.LogConfig{}))
	if _, err := log.BeginMove(t.Context(), 1); !errors.Is(err, errKilled) {
		t.Fatalf("the owner has not died: %v", err)
	}
	exam := must[*store.Exam](t)(store.Examine(t.Context(), server.JS))
	if exam.Err() != nil || !slices.Equal(exam.Left, []feed.Partition{p}) {
		t.Errorf("%v, left %v", exam.Err(), exam.Left)
	}
	next := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), server.JS, store.CatalogConfig{}))
	info := must[store.ContainerInfo](t)(next.Create(t.Context(), "default", "orders", spec))
	onlyLogsOf(t, server.JS, next, info)
}

// TestKeeper_LeavesLogsWhoseRecordIsLost: a record that went in another way than by a deletion is damage, and its logs stay.
func TestKeeper_LeavesLogsWhoseRecordIsLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(context.Context, jetstream.KeyValue) error{
		"by nats kv del": func(ctx context.Context, kv jetstream.KeyValue) error {
			return kv.Delete(ctx, "container.default.orders")
		},
		"by nats kv purge": func(ctx context.Context, kv jetstream.KeyValue) error {
			return kv.Purge(ctx, "container.default.orders")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js := alone(t)
			catalog := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), js, store.CatalogConfig{}))
			spec := store.ContainerSpec{PartitionKey: []string{"/id"}}
			must[store.ContainerInfo](t)(catalog.Create(t.Context(), "default", "orders", spec))
			if err := catalog.Delete(t.Context(), "default", "orders"); err != nil { // one of that name was deleted once
				t.Fatal(err)
			}
			info := must[store.ContainerInfo](t)(catalog.Create(t.Context(), "default", "orders", spec))
			if err := lose(t.Context(), must[jetstream.KeyValue](t)(js.KeyValue(t.Context(), store.CatalogBucket))); err != nil {
				t.Fatal(err)
			}
			if _, err := keeper(js, catalog, 1).Pass(t.Context()); err != nil {
				t.Error(err)
			}
			exam := must[*store.Exam](t)(store.Examine(t.Context(), js))
			if want := []feed.Partition{{Container: info.ID}}; exam.Err() == nil || !slices.Equal(exam.Unnamed, want) || len(exam.Left) > 0 {
				t.Errorf("%v: unnamed %v, left %v; want the log to be there and without a name", exam.Err(), exam.Unnamed, exam.Left)
			}
		})
	}
}
