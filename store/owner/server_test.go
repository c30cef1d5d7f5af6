package owner_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/owner"
)

var quiet = slog.New(slog.DiscardHandler)

// cluster is a NATS server to which store processes connect.
type cluster struct {
	t       testing.TB
	srv     *natsd.Server
	js      jetstream.JetStream
	catalog *store.Catalog
	connect func() *nats.Conn // nil: to srv
	cfg     owner.Config      // of processes
	locked  bool              // a process keeps its node's name when it starts again, as one does that has its directory's lock
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	srv := natstest.Start(t)
	c := &cluster{t: t, srv: srv.Server, js: srv.JS}
	var err error
	if c.catalog, err = store.OpenCatalog(t.Context(), c.js, store.CatalogConfig{}); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) conn() *nats.Conn {
	c.t.Helper()
	if c.connect != nil {
		return c.connect()
	}
	nc, err := c.srv.Conn()
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	return nc
}

// process is one store process: a server with an engine and leases of its own.
type process struct {
	client *store.Client
	server *owner.Server
	stop   func()
}

func (c *cluster) process(name, dir string) *process {
	c.t.Helper()
	nc := c.conn()
	js, err := jetstream.New(nc)
	if err != nil {
		c.t.Fatal(err)
	}
	// What a test of memory puts fits: a flush beside it would be counted.
	db, err := engine.Open(dir, engine.Config{MemTableBytes: 32 << 20}, quiet)
	if err != nil {
		c.t.Fatal(err)
	}
	manager, err := leases.Open(c.t.Context(), js, leases.Config{
		// Nothing expires here: partitions pass on because a process hands them over.
		Group: "store", Node: name, NodeLocked: c.locked, TTL: time.Minute, RenewInterval: 2 * time.Second, DrainTimeout: time.Minute, Log: quiet,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	local := &store.Local{}
	cfg := c.cfg
	cfg.Local, cfg.Logger = local, cmp.Or(cfg.Logger, quiet)
	srv, err := owner.NewServer(nc, c.catalog, db, manager, cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	p := &process{server: srv, client: store.NewClient(nc, c.catalog, patient(local))}
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Errorf("%s stopped with %v", name, err)
		}
		if err := srv.Engine().Close(); err != nil {
			c.t.Error(err)
		}
	})
	c.t.Cleanup(p.stop)
	return p
}

// patient is the configuration of a client that waits for an owner on a busy machine.
func patient(local *store.Local) store.ClientConfig {
	return store.ClientConfig{Local: local, Timeout: time.Minute, HandoverWait: time.Minute}
}

func (c *cluster) container(client *store.Client, name string) *store.Container {
	c.t.Helper()
	ct, err := client.Container(c.t.Context(), "default", name)
	if err != nil {
		c.t.Fatal(err)
	}
	return ct
}

func TestTwoProcessesShareAContainer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	if _, err := c.catalog.Create(t.Context(), "default", "things", store.ContainerSpec{PartitionKey: []string{"/a"}, Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	first := c.process("one", t.TempDir())
	remote := store.NewClient(c.conn(), c.catalog, patient(nil))
	ct := c.container(remote, "things")
	for i := range 40 {
		if _, err := ct.Create(t.Context(), fmt.Appendf(nil, `{"id":"%d","a":"a%d"}`, i, i)); err != nil {
			t.Fatal(err)
		}
	}
	c.process("two", t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), poll.Most)
	defer cancel()
	for owners := 0; owners < 2; {
		seen := map[string]int{}
		for _, p := range ct.Partitions() {
			st, err := ct.Status(ctx, p)
			if err != nil {
				t.Fatal(err)
			}
			seen[st.Owner]++
		}
		owners = len(seen)
	}
	began := time.Now()
	first.stop()
	var refs []store.ItemRef
	for i := range 40 {
		k, err := feed.NewPartitionKey(fmt.Sprint("a", i))
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, store.ItemRef{Key: k, ID: fmt.Sprint(i)})
	}
	items, err := ct.ReadMany(ctx, refs, true)
	if err != nil {
		t.Fatal(err)
	}
	for i := range items {
		if items[i].ID != fmt.Sprint(i) {
			t.Errorf("item %d is %q after the hand-over", i, items[i].ID)
		}
	}
	t.Logf("read by the other process %s after the stop began", time.Since(began))
}

// TestOpeningEndsARowOfFailures has a process take over a partition at which the one before it has
// failed. Without that, the pauses after failures grow for as long as the cluster lives.
func TestOpeningEndsARowOfFailures(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	info, err := c.catalog.Create(t.Context(), "default", "things", store.ContainerSpec{PartitionKey: []string{"/a"}, Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	resource := owner.LeaseResource(feed.Partition{Container: info.ID, Number: info.Partitions[0].Number})
	failing, err := leases.Open(t.Context(), c.js, leases.Config{Group: "store", Node: "one", Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	failing.SetResources([]string{resource}, nil)
	lease := func() (l leases.Lease) {
		t.Helper()
		all, err := leases.List(t.Context(), c.js, leases.DefaultBucket)
		if err != nil {
			t.Fatal(err)
		}
		for _, l = range all {
			if l.Resource == resource {
				return l
			}
		}
		return leases.Lease{}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- failing.Run(ctx, func(context.Context, *leases.Held) error { return errors.New("no answer") })
	}()
	poll.Until(t, func() error { return poll.Unless(lease().Attempts > 0, "it has not failed yet") })
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	c.process("two", t.TempDir())
	poll.Until(t, func() error {
		l := lease()
		return poll.Unless(l.Owner != "" && l.Attempts == 0 && l.LastError == "", fmt.Sprintf("the lease is %+v", l))
	})
}

func TestAnIndexIsBuiltWhileWritesGoOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	if _, err := c.catalog.Create(t.Context(), "default", "things", store.ContainerSpec{PartitionKey: []string{"/a"}}); err != nil {
		t.Fatal(err)
	}
	p := c.process("one", t.TempDir())
	ct := c.container(p.client, "things")
	put := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if _, err := ct.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d","a":"x","tags":[{"id":"t%d"}]}`, i, i%3)); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(0, 100)
	scope := store.Scope{Index: "/tags/*/id", Value: []byte(`"t0"`)}
	part := ct.Partitions()[0]
	if _, err := ct.Count(t.Context(), part, scope); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a count on an index that is not there: %v", err)
	}
	if err := c.catalog.WantIndex(t.Context(), "default", "things", "/tags/*/id"); err != nil {
		t.Fatal(err)
	}
	put(50, 200)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		n, err := ct.Count(ctx, part, scope)
		if err == nil {
			if n != 67 {
				t.Errorf("the index finds %d items, want 67", n)
			}
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

func TestADeletedContainerIsGone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	spec := store.ContainerSpec{PartitionKey: []string{"/a"}}
	if _, err := c.catalog.Create(t.Context(), "default", "things", spec); err != nil {
		t.Fatal(err)
	}
	p := c.process("one", t.TempDir())
	ct := c.container(p.client, "things")
	body := []byte(`{"id":"1","a":"x"}`)
	if _, err := ct.Create(t.Context(), body); err != nil {
		t.Fatal(err)
	}
	if err := c.catalog.Delete(t.Context(), "default", "things"); err != nil {
		t.Fatal(err)
	}
	var none *store.NoContainerError
	if _, err := p.client.Container(t.Context(), "default", "things"); !errors.As(err, &none) {
		t.Errorf("after the delete: %v", err)
	}
	// No other change of the catalog is needed.
	poll.Until(t, func() error {
		left, err := p.server.Engine().Partitions()
		return poll.Unless(err == nil && len(left) == 0, fmt.Sprintf("the engine still holds %v, %v", left, err))
	})
	held, err := leases.List(t.Context(), c.js, "")
	if err != nil || len(held) != 0 {
		t.Errorf("the lease records left are %v, %v", held, err)
	}
	if _, err := c.catalog.Create(t.Context(), "default", "things", spec); err != nil {
		t.Fatal(err)
	}
	again := c.container(p.client, "things")
	if again.Info().ID == ct.Info().ID {
		t.Error("the container made again has its old resource id")
	}
	if _, err := again.Create(t.Context(), body); err != nil {
		t.Errorf("a create in the new container: %v", err)
	}
}

func TestAStreamThatIsGoneOrOtherIsSaid(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(*testing.T, *cluster, feed.Partition){
		"deleted": func(t *testing.T, c *cluster, p feed.Partition) {
			t.Helper()
			if err := c.js.DeleteStream(t.Context(), p.Stream()); err != nil {
				t.Fatal(err)
			}
		},
		"made anew": func(t *testing.T, c *cluster, p feed.Partition) {
			t.Helper()
			if err := c.js.DeleteStream(t.Context(), p.Stream()); err != nil {
				t.Fatal(err)
			}
			if err := feed.CreateLog(t.Context(), c.js, p, feed.NewLogID(), feed.LogConfig{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.locked = true
			if _, err := c.catalog.Create(t.Context(), "default", "things", store.ContainerSpec{PartitionKey: []string{"/a"}}); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			p := c.process("one", dir)
			ct := c.container(p.client, "things")
			if _, err := ct.Create(t.Context(), []byte(`{"id":"1","a":"x"}`)); err != nil {
				t.Fatal(err)
			}
			p.stop()
			harm(t, c, ct.Partitions()[0])
			p = c.process("one", dir)
			ct = c.container(p.client, "things")
			k, _ := feed.NewPartitionKey("x")
			if _, err := ct.Read(t.Context(), k, "1"); err != nil {
				t.Errorf("reads should go on: %v", err)
			}
			_, err := ct.Create(t.Context(), []byte(`{"id":"2","a":"x"}`))
			if !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("a write was answered %v", err)
			}
			t.Log(err)
		})
	}
}

// largeSnapshot makes a partition whose process has stopped, and a snapshot of it that asks for room.
func (c *cluster) largeSnapshot() feed.Partition {
	c.t.Helper()
	c.cfg.Snapshots = owner.SnapshotConfig{Directory: c.t.TempDir(), LogBytes: 1, Rest: time.Hour}
	c.cfg.CheckInterval = 20 * time.Millisecond
	p := newThings(c.t, c)
	first := c.process("one", c.t.TempDir())
	ct := c.container(first.client, "things")
	for i := range 6 { // of less nobody asks for room
		if _, err := ct.Upsert(c.t.Context(), fmt.Appendf(nil, `{"id":"%d","a":"x","text":"%0900000d"}`, i, i)); err != nil {
			c.t.Fatal(err)
		}
	}
	if pin, err := ct.PinSnapshot(c.t.Context(), p, store.PinSnapshot{Holder: "h"}); err != nil || pin.State != store.PinReady {
		c.t.Fatalf("pinned %+v, %v", pin, err)
	}
	first.stop()
	return p
}

// TestSnapshot_IsLoadedWhenTheDiskHasRoom opens a partition without its engine where the disk has no
// room for its snapshot: it says so, does not replay its log, and opens when there is room.
func TestSnapshot_IsLoadedWhenTheDiskHasRoom(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.cfg.Alone = true
	p := c.largeSnapshot()
	var reserve atomic.Int64
	reserve.Store(1 << 60)
	owner.LoadReserve(&c.cfg, reserve.Load)
	ct := c.container(c.process("two", t.TempDir()).client, "things")
	key, err := feed.NewPartitionKey("x")
	if err != nil {
		t.Fatal(err)
	}
	read := func() error {
		_, err := ct.Read(t.Context(), key, "5")
		return err
	}
	poll.Until(t, func() error { // nobody answers before the lease is taken
		err := read()
		return poll.Unless(errors.Is(err, store.ErrDiskFull), fmt.Sprint("a read without room is answered: ", err))
	})
	status, err := ct.Status(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"partition " + p.String() + " answers nothing until the disk has room for its snapshot", "are needed to load partition",
		"free some space", "store.diskReserve", "tried again every 20ms",
	} {
		if !strings.Contains(status.Refusing, part) {
			t.Errorf("the status says %q, want %q in it", status.Refusing, part)
		}
	}
	reserve.Store(0)
	poll.Until(t, read)
}

// TestSnapshot_WithoutRoomAnotherStoreLoadsIt has a store whose disk lacks room own a partition, and
// another join that has room: the partition goes to that.
func TestSnapshot_WithoutRoomAnotherStoreLoadsIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	p := c.largeSnapshot()
	owner.LoadReserve(&c.cfg, func() int64 { return 1 << 60 })
	ct := c.container(c.process("two", t.TempDir()).client, "things")
	key, err := feed.NewPartitionKey("x")
	if err != nil {
		t.Fatal(err)
	}
	// While nobody has the lease, between two tries, nobody answers.
	poll.Until(t, func() error {
		_, err := ct.Read(t.Context(), key, "5")
		return poll.Unless(errors.Is(err, store.ErrDiskFull), fmt.Sprint("a read without room is answered: ", err))
	})
	owner.LoadReserve(&c.cfg, func() int64 { return 0 })
	c.process("three", t.TempDir())
	poll.Until(t, func() error {
		_, err := ct.Read(t.Context(), key, "5")
		return err
	})
	if status, err := ct.Status(t.Context(), p); err != nil || !strings.HasPrefix(status.Owner, "three-") {
		t.Errorf("the status is of %q, %v", status.Owner, err)
	}
}

// TestSnapshot_ACopyLeavesMoreRoomThanAnOwner loads a snapshot where an owner has room for it, as a copy of another store's
// partition: that would be the last room of the disk.
func TestSnapshot_ACopyLeavesMoreRoomThanAnOwner(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	p := c.largeSnapshot()
	var part atomic.Int64 // of what is free, in tenths
	part.Store(9)
	dir := t.TempDir()
	owner.LoadReserve(&c.cfg, func() int64 {
		free, err := owner.FreeBytes(dir)
		if err != nil {
			t.Error(err)
		}
		return free / 10 * part.Load()
	})
	ct := c.container(c.process("two", t.TempDir()).client, "things")
	key, err := feed.NewPartitionKey("x")
	if err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		_, err := ct.Read(t.Context(), key, "5")
		return err
	})
	standby := c.process("three", t.TempDir()).server
	follow := func() (stopped bool, err error) {
		poll.Until(t, func() error {
			err = standby.Follow(t.Context(), p, func(_ context.Context, r *owner.Replayer, _ feed.LSN) error {
				stopped = r.Stopped()
				return nil
			})
			return poll.Unless(!errors.Is(err, owner.ErrNotFollowed), "it has not read the catalog yet")
		})
		return stopped, err
	}
	_, err = follow()
	if _, full := errors.AsType[*engine.NoRoomError](err); !full {
		t.Errorf("a copy takes the last room of the disk: %v", err)
	}
	part.Store(5)
	for _, loads := range []bool{true, false} { // it is there when it is followed again
		if stopped, err := follow(); stopped != loads || err != nil {
			t.Errorf("the engine stood still to load a copy: %t, %v; want %t", stopped, err, loads)
		}
	}
}
