package integration_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/process"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

var clusterProducts = flag.Int("products", 20_000, "products of the cluster test")

// natsServerBinary builds the plain NATS server of the module, once.
var natsServerBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "millrace-nats-")
	if err != nil {
		return "", err
	}
	return process.BuildNATS("..", dir)
})

// natsServer runs a plain NATS server as a process of its own, which syncs every
// append, and returns its URL.
func natsServer(t testing.TB) (url string) {
	t.Helper()
	binary, err := natsServerBinary()
	if err != nil {
		t.Fatal(err)
	}
	dir, port := t.TempDir(), freePort(t)
	config := filepath.Join(dir, "nats.conf")
	err = os.WriteFile(config, fmt.Appendf(nil, `
		listen: "127.0.0.1:%d"
		max_payload: 8MB
		jetstream { store_dir: %q, sync_interval: always }
	`, port, filepath.Join(dir, "jetstream")), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-c", config)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended already
		_ = cmd.Wait()
		if t.Failed() && bytes.Contains(log.Bytes(), []byte("[ERR]")) {
			t.Logf("nats-server said:\n%s", &log)
		}
	})
	url = "nats://127.0.0.1:" + strconv.Itoa(port)
	poll.Until(t, func() error {
		nc, err := nats.Connect(url)
		if err != nil {
			return err
		}
		nc.Close()
		return nil
	})
	return url
}

// member is a process of a cluster with a directory, so that it has an identity.
type member struct {
	*child
	node, http string
}

// holds says whether the member, in any of its lives, is the owner of a lease.
func (m *member) holds(l *leases.Lease) bool { return strings.HasPrefix(l.Owner, m.node+"/") }

// cluster is Millrace in separate processes over a plain NATS server.
type cluster struct {
	t       testing.TB
	server  string
	js      jetstream.JetStream
	client  *store.Client
	stores  []*member
	workers []*member
}

func newCluster(t testing.TB, stores, workers int, flags ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, server: natsServer(t)}
	nc, err := nats.Connect(c.server, nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if c.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	for range stores {
		c.stores = append(c.stores, c.spawn("store", c.server, flags...))
	}
	for range workers {
		c.workers = append(c.workers, c.spawn("worker", c.server, flags...))
	}
	c.client = dial(t, c.server)
	return c
}

// spawn starts a member that reaches NATS at server.
func (c *cluster) spawn(role, server string, flags ...string) *member {
	c.t.Helper()
	dir, http := c.t.TempDir(), "127.0.0.1:"+strconv.Itoa(freePort(c.t))
	if role == "worker" {
		// All workers see the same files, where commands expect them too.
		flags = append(slices.Clone(flags), "--set", "sinks.roots="+filepath.Join(workDir(c.t, []string{"--server", c.server}), configs.DirDefault))
	}
	m := &member{child: spawn(c.t, append([]string{role, "--server", server, "--dir", dir, "--listen", http}, flags...)...), http: http}
	id, err := os.ReadFile(filepath.Join(dir, "node-id"))
	if err != nil {
		c.t.Fatal(err)
	}
	m.node = strings.TrimSpace(string(id))
	return m
}

// leases reads the leases whose resource begins with prefix.
func (c *cluster) leases(prefix string) (found []leases.Lease) {
	c.t.Helper()
	all, err := leases.List(c.t.Context(), c.js, "")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, l := range all {
		if strings.HasPrefix(l.Resource, prefix) {
			found = append(found, l)
		}
	}
	return found
}

// balanced waits until every member has a share of the leases that begin with
// prefix, and all of them have an owner.
func (c *cluster) balanced(members []*member, prefix string, n int) {
	c.t.Helper()
	poll.Until(c.t, func() error {
		all := c.leases(prefix)
		held := make([]int, len(members))
		for i := range all {
			for j, m := range members {
				if m.holds(&all[i]) {
					held[j]++
				}
			}
		}
		least, total := n, 0
		for _, h := range held {
			least, total = min(least, h), total+h
		}
		return poll.Unless(total == n && least >= n/len(members), fmt.Sprintf("of %d leases %s* the members hold %v", n, prefix, held))
	})
}

// fanOutRole returns the lease of a pipeline on the one partition of its source,
// and which worker holds it; nil if none does.
func (c *cluster) fanOutRole(pipeline string) (processors.Resource, *member) {
	c.t.Helper()
	for _, l := range c.leases("pipe/" + pipeline) {
		r, err := processors.ParseResource(l.Resource)
		if err != nil {
			c.t.Fatal(err)
		}
		if r.Role != processors.RoleSource {
			continue
		}
		for _, w := range c.workers {
			if w.holds(&l) {
				return r, w
			}
		}
		return r, nil
	}
	return processors.Resource{}, nil
}

// witness reads the change feed of a container and keeps what a pipeline wrote.
type witness struct {
	mu     sync.Mutex
	writes map[string]map[string]int // how often items got a name, by name and id
	pages  map[feed.Partition][]feed.Page
	epochs map[uint64]bool
	wrong  []string          // what a late write did: copies that went back, and epochs
	last   map[string]int    // version that a page wrote last, by id
	newest map[string]uint64 // epoch, by producer and partition
	paged  map[string]int    // how often a page wrote a name into an item
}

// watch begins at the end of the container's feed. version is the version that
// an item's copy shows.
func (c *cluster) watch(ct *store.Container, pipeline string, version func(body []byte) (name string, n int)) *witness {
	c.t.Helper()
	w := &witness{
		writes: map[string]map[string]int{}, pages: map[feed.Partition][]feed.Page{}, epochs: map[uint64]bool{}, last: map[string]int{}, newest: map[string]uint64{}, paged: map[string]int{},
	}
	for _, p := range ct.Partitions() {
		log, err := feed.OpenLog(c.t.Context(), c.js, p, feed.LogConfig{})
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(log.Close)
		_, last, err := log.Bounds(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		tail, err := log.Tail(c.t.Context(), last+1, feed.TailOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
		storetest.Run(c.t, func(ctx context.Context) error {
			defer tail.Close()
			for {
				commit, err := tail.Next(ctx)
				if err != nil {
					return err
				}
				w.see(p, commit, pipeline, version)
			}
		})
	}
	return w
}

func (w *witness) see(p feed.Partition, commit *feed.Commit, pipeline string, version func([]byte) (string, int)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range commit.Transactions {
		txn := &commit.Transactions[i]
		if txn.Effect == nil || !strings.HasPrefix(txn.Effect.Producer.Pipeline, pipeline) {
			continue
		}
		by := fmt.Sprint(txn.Effect.Producer, " in ", p)
		if txn.Effect.Epoch < w.newest[by] {
			w.wrong = append(w.wrong, fmt.Sprintf("%s wrote %d under epoch %d, behind one of epoch %d", by, commit.LSN, txn.Effect.Epoch, w.newest[by]))
		}
		w.newest[by] = txn.Effect.Epoch
		if txn.Page != nil && strings.HasSuffix(txn.Page.Source, "/"+catalogueTag) {
			w.pages[p] = append(w.pages[p], *txn.Page)
			w.epochs[txn.Effect.Epoch] = true
		}
		for j := range txn.Changes {
			ch := &txn.Changes[j]
			name, n := version(ch.After)
			if w.writes[name] == nil {
				w.writes[name] = map[string]int{}
			}
			w.writes[name][ch.ID]++
			// A check reads the source, and may set a name before its fan-out comes, in the middle of
			// that of an older one, which sets the older name once more: only pages have an order.
			if txn.Page == nil {
				continue
			}
			w.paged[name+" of "+ch.ID]++
			if n < w.last[ch.ID] {
				w.wrong = append(w.wrong, fmt.Sprintf("%s went from version %d back to %d at %d of %s, by %s under epoch %d (page: %+v)",
					ch.ID, w.last[ch.ID], n, commit.LSN, p, txn.Effect.Producer, txn.Effect.Epoch, txn.Page))
			}
			w.last[ch.ID] = n
		}
	}
}

// written counts the items that got a name, and those that got it more than once.
func (w *witness) written(name string) (items, twice int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.writes[name] {
		items++
		if n > 1 {
			twice++
		}
	}
	return items, twice
}

// catalogue is what the cluster test fills its containers with: one tag that
// every product has.
const (
	catalogueCategories = 64
	catalogueTag        = "everywhere"
)

func catalogueProduct(i int) []byte {
	c := i % catalogueCategories
	return fmt.Appendf(nil, `{"id":"p%06d","categoryId":"c%02d","categoryName":"Category %d","sku":"MR-%06d","name":"Product %d",`+
		`"description":"The product called Product %d, of which the test knows no more than this","price":%d.95,`+
		`"tags":[{"id":"t%d","name":"Tag %d"},{"id":%q,"name":"v0"}]}`, i, c, c, i, i, i, i%97, i%50, i%50, catalogueTag)
}

// load declares the WebStore and fills it with n products, whose copies are right.
func (c *cluster) load(n int) (meta, product *store.Container) {
	c.t.Helper()
	for _, name := range []string{"product", "productMeta"} {
		mustRun(c.t, c.server, "apply", "-f", "../configs/webstore/"+name+".yaml")
	}
	meta, product = open(c.t, c.client, "productMeta"), open(c.t, c.client, "product")
	sources := []metaItem{{catalogueTag, "tag", "v0"}}
	for i := range catalogueCategories {
		sources = append(sources, metaItem{fmt.Sprintf("c%02d", i), "category", fmt.Sprint("Category ", i)})
	}
	for i := range 50 {
		sources = append(sources, metaItem{fmt.Sprint("t", i), "tag", fmt.Sprint("Tag ", i)})
	}
	for _, s := range sources {
		c.insist(func(ctx context.Context) error { return put(ctx, meta, s) })
	}
	var g errgroup.Group
	g.SetLimit(16)
	for category := range min(catalogueCategories, n) {
		key := keyOf(c.t, fmt.Sprintf("c%02d", category))
		g.Go(func() error {
			var ops []store.Operation
			flush := func() error {
				defer func() { ops = nil }()
				r, err := product.Batch(c.t.Context(), key, ops, "")
				if err == nil && r.Failed {
					err = fmt.Errorf("batch: %+v", r.Results[0])
				}
				return err
			}
			for i := category; i < n; i += catalogueCategories {
				ops = append(ops, store.Operation{Kind: store.OpUpsert, Body: catalogueProduct(i)})
				if len(ops) == store.BatchOpsMax {
					if err := flush(); err != nil {
						return err
					}
				}
			}
			if len(ops) == 0 {
				return nil
			}
			return flush()
		})
	}
	if err := g.Wait(); err != nil {
		c.t.Fatal(err)
	}
	return meta, product
}

// insist repeats a write whose outcome was not learned.
func (c *cluster) insist(write func(ctx context.Context) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	for {
		err := write(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil || !errors.Is(err, store.ErrUnknown) && !errors.Is(err, store.ErrUnavailable) {
			c.t.Fatal(err)
		}
	}
}

// renameTag gives the tag of all products the version n.
func (c *cluster) renameTag(meta *store.Container, n int) {
	c.t.Helper()
	c.insist(func(ctx context.Context) error {
		return put(ctx, meta, metaItem{catalogueTag, "tag", fmt.Sprint("v", n)})
	})
}

// tagVersion reads the version that a product's copy of the tag shows.
func tagVersion(body []byte) (name string, n int) {
	const before = `"` + catalogueTag + `","name":"`
	_, after, ok := bytes.Cut(body, []byte(before))
	if !ok {
		return "", -1
	}
	rest := after
	name = string(rest[:bytes.IndexByte(rest, '"')])
	if _, err := fmt.Sscanf(name, "v%d", &n); err != nil {
		return name, -1
	}
	return name, n
}

// TestCluster_KilledWorkersResumeTheFanOut kills workers of a cluster in the
// middle of a rename of a tag that all products have: first both, which start
// again, then the one at work, whose place the other takes. The fan-out goes on
// where it stood.
func TestCluster_KilledWorkersResumeTheFanOut(t *testing.T) {
	n := *clusterProducts
	// At full speed all would be done before the second kill. On a busy machine the test
	// learns seconds late how far it is.
	c := newCluster(t, 2, 2, "--set", "leases.ttl=2s", "--set", fmt.Sprint("cascade.fanOutRateMax=", n/24))
	began := time.Now()
	meta, product := c.load(n)
	t.Logf("%d products written in %s", n, time.Since(began).Round(time.Millisecond))
	mustRun(t, c.server, "apply", "-f", "../pipelines/testdata/shop")
	partitions := len(product.Partitions())
	c.balanced(c.stores, "store/", partitions+1+4+1) // with productMeta, customer and the dead letters
	c.balanced(c.workers, "pipe/", 2*(partitions+1))
	want := map[string]int64{"category-names": int64(n), "tag-names": int64(2 * n)}
	r := verifyCopies(t, c.server)
	r.equal(t, "loaded", want)

	w := c.watch(product, "tag-names", tagVersion)
	began = time.Now()
	c.renameTag(meta, 1)
	reached := func(items int) {
		t.Helper()
		poll.Until(t, func() error {
			done, _ := w.written("v1")
			return poll.Unless(done >= items, fmt.Sprintf("%d of %d products have the new name", done, items))
		})
	}
	// From here on the pages that each partition had when the workers died.
	reached(n / 5)
	for _, k := range c.workers {
		_ = k.Cmd.Process.Kill() // both at once; kill below waits
	}
	for _, k := range c.workers {
		k.kill()
	}
	first, _ := w.written("v1")
	for _, k := range c.workers {
		k.start()
	}
	reached(n / 2)
	var at *member
	poll.Until(t, func() error { // nobody for a moment, while the workers share their leases anew
		_, at = c.fanOutRole("tag-names")
		return poll.Unless(at != nil, "nobody holds the fan-out's lease though it goes on")
	})
	at.kill()
	second, _ := w.written("v1")
	if first >= n || second >= n {
		t.Fatalf("killed too late: %d and %d of %d products had the new name", first, second, n)
	}
	reached(n)
	t.Logf("both workers killed at %d products, then the one at work at %d; all %d have the new name after %s",
		first, second, n, time.Since(began).Round(time.Millisecond))
	r = verifyCopies(t, c.server)
	r.equal(t, "renamed", want)
	w.resumed(t, partitions, n)
	at.start()
}

// resumed checks, in what the feed showed of one rename, that every page went on
// behind the one before, and that hardly anything was written twice.
func (w *witness) resumed(t *testing.T, partitions, n int) {
	t.Helper()
	const pageItems = 500 // store.pageItemsMax
	items, twice := w.written("v1")
	pages, round := 0, 0
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, all := range w.pages {
		pages += len(all)
		for i := 1; i < len(all); i++ {
			if all[i].Position != all[i-1].Position || bytes.Compare(all[i].Cursor, all[i-1].Cursor) >= 0 {
				continue
			}
			// The rename may meet the scan of the pipeline's beginning, which is under way with the
			// name before: it takes that scan over where it stands, and comes round once.
			if all[i].Wrapped && !all[i-1].Wrapped {
				round++
				continue
			}
			t.Errorf("page %d of partition %s begins anew: was %+v, is %+v", i, p, all[i-1], all[i])
		}
	}
	t.Logf("%d items in %d pages of %d partitions, under %d epochs; %d items written twice; the scan came round in %d partitions",
		items, pages, partitions, len(w.epochs), twice, round)
	if items != n || twice > partitions*pageItems {
		t.Errorf("%d of %d items got the new name, %d of them twice; at most one page of %d in each of %d partitions is allowed",
			items, n, twice, pageItems, partitions)
	}
	if len(w.epochs) < 3 {
		t.Errorf("pages of %d terms; the two kills make three", len(w.epochs))
	}
	for _, why := range w.wrong {
		t.Error(why)
	}
}
