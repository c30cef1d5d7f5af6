package integration_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

var rounds = flag.Int("rounds", 5, "kill -9 rounds of the chaos test")

const (
	chaosCategories = 6
	chaosTags       = 8
	chaosWriters    = 6
)

// shadow is what one writer knows of an item that it alone writes.
type shadow struct {
	acked, tried int // versions; tried is at most one ahead
}

// chaosWriter writes products of its own, singly and in pairs.
type chaosWriter struct {
	n     int
	rand  *rand.Rand
	items map[string]*shadow // by id
	pairs map[string]*shadow
	acked int
}

// TestChaos_KillNineLosesNothing kills the one process at random moments under load, and
// takes the engine away at the kills of every third round: every acknowledged write is
// there (I2), no transaction is there in half, and when the writers stop every copy equals
// its source (I6). The logs are trimmed all the while, behind what the pipelines have read.
func TestChaos_KillNineLosesNothing(t *testing.T) {
	dir, port := t.TempDir(), strconv.Itoa(freePort(t))
	server := "nats://127.0.0.1:" + port
	node := spawn(t, "up", "--dir", dir, "--port", port, "--listen", "off",
		"--set", "store.snapshots.logBytes=65536", "--set", "store.snapshots.sharePercent=100",
		"--set", "store.trimBytes=1", "--set", "store.checkInterval=100ms", "--set", "store.syncInterval=100ms")
	mustRun(t, server, "apply", "-f", "../configs/webstore")
	client := dial(t, server)
	product, meta := open(t, client, "product"), open(t, client, "productMeta")
	for _, ct := range []*store.Container{product, meta} {
		spec := ct.Info().Spec
		spec.ChangeFeed.Retention = new(store.Retention(0))
		if _, err := client.Catalog().Update(t.Context(), "default", ct.Info().Name, spec); err != nil {
			t.Fatal(err)
		}
	}
	sources := make([]*shadow, chaosCategories+chaosTags)
	for i := range sources {
		sources[i] = &shadow{tried: 1}
		for sources[i].acked == 0 {
			rename(t.Context(), meta, i, sources[i])
		}
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	writers := make([]*chaosWriter, chaosWriters)
	for i := range writers {
		writers[i] = &chaosWriter{n: i, rand: rand.New(rand.NewPCG(seed, uint64(i+1))), items: map[string]*shadow{}, pairs: map[string]*shadow{}}
	}
	for round := range *rounds {
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, w := range writers {
			wg.Go(func() { w.run(ctx, product) })
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				i := dice.IntN(len(sources))
				rename(ctx, meta, i, sources[i])
			}
		})
		for range 1 + round%2 { // every other round a second kill hits the restart
			pause(t, 100*time.Millisecond+time.Duration(seed%900)*time.Millisecond)
			seed = seed*6364136223846793005 + 1442695040888963407
			node.kill()
			if round%3 == 2 { // the state is made again, from snapshots where there are any
				if err := os.RemoveAll(filepath.Join(dir, "engine")); err != nil {
					t.Fatal(err)
				}
			}
			node.start()
		}
		pause(t, 200*time.Millisecond)
		stop()
		wg.Wait()
		settle(t, product, meta)
		total := 0
		for _, w := range writers {
			w.check(t, product)
			total += w.acked
		}
		checkSources(t, meta, sources)
		if t.Failed() {
			t.Fatalf("round %d; the process said:\n%s", round, node.output())
		}
		t.Logf("round %d: %d writes acknowledged so far, none lost", round, total)
	}
	out, exit := run(t, server, "verify", "--timeout", "60s")
	if exit != 0 {
		t.Fatalf("verify: exit %d\n%s", exit, out)
	}
	said := node.output()
	t.Logf("after %d rounds, %d snapshots taken, %d loaded, %d trims:\n%s", *rounds,
		strings.Count(said, "snapshot taken"), strings.Count(said, "snapshot loaded"), strings.Count(said, "log trimmed"), out)
	if strings.Contains(said, "a snapshot cannot be used") {
		t.Errorf("a kill has left a snapshot that cannot be used:\n%s", said)
	}
	if strings.Contains(node.output(), "DATA RACE") {
		t.Error(node.output())
	}
}

// pause lets the load run: the moment of the kill is the point of the test.
func pause(t testing.TB, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

func sourceDoc(i, version int) (body []byte) {
	kind := "category"
	if i >= chaosCategories {
		kind = "tag"
	}
	return fmt.Appendf(nil, `{"id":"%s-%d","type":"%s","name":"name %d"}`, kind, i, kind, version)
}

// rename gives a source its next name. Who was not answered asks again with the
// same name.
func rename(ctx context.Context, meta *store.Container, i int, s *shadow) {
	if s.tried == s.acked {
		s.tried++
	}
	if _, err := meta.Upsert(ctx, sourceDoc(i, s.tried)); err == nil {
		s.acked = s.tried
	}
}

func checkSources(t *testing.T, meta *store.Container, sources []*shadow) {
	t.Helper()
	for i, s := range sources {
		var doc struct{ ID, Type, Name string }
		if err := json.Unmarshal(sourceDoc(i, 0), &doc); err != nil {
			t.Fatal(err)
		}
		k, err := feed.NewPartitionKey(doc.Type)
		if err != nil {
			t.Fatal(err)
		}
		item, err := meta.Read(t.Context(), k, doc.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(item.Body, &doc); err != nil {
			t.Fatal(err)
		}
		var version int
		if _, err := fmt.Sscanf(doc.Name, "name %d", &version); err != nil {
			t.Fatal(err)
		}
		s.expect(t, doc.ID, version)
	}
}

// expect compares a version that was read with those that were acknowledged and
// tried, and takes it as acknowledged.
func (s *shadow) expect(t *testing.T, id string, version int) {
	t.Helper()
	if version < s.acked || version > s.tried {
		t.Errorf("%s is at version %d; %d was acknowledged, %d tried", id, version, s.acked, s.tried)
	}
	s.acked, s.tried = version, version
}

func (w *chaosWriter) run(ctx context.Context, product *store.Container) {
	for ctx.Err() == nil {
		i := w.rand.IntN(40)
		category := fmt.Sprint("category-", i%chaosCategories)
		if i < 20 {
			w.single(ctx, product, fmt.Sprintf("w%d-%d", w.n, i), category)
		} else {
			w.pair(ctx, product, fmt.Sprintf("w%d-%d", w.n, i), category)
		}
	}
}

func next(m map[string]*shadow, id string) *shadow {
	s := m[id]
	if s == nil {
		s = &shadow{}
		m[id] = s
	}
	if s.tried == s.acked {
		s.tried++
	}
	return s
}

func (w *chaosWriter) body(id, category string, version int) []byte {
	tag := chaosCategories + w.rand.IntN(chaosTags)
	return fmt.Appendf(nil, `{"id":"%s","categoryId":"%s","sku":"%s","version":%d,"tags":[{"id":"tag-%d"}]}`, id, category, id, version, tag)
}

func (w *chaosWriter) single(ctx context.Context, product *store.Container, id, category string) {
	s := next(w.items, id)
	if _, err := product.Upsert(ctx, w.body(id, category, s.tried)); err == nil {
		s.acked = s.tried
		w.acked++
	}
}

// pair writes two items in one transaction; both always have one version.
func (w *chaosWriter) pair(ctx context.Context, product *store.Container, id, category string) {
	s := next(w.pairs, id)
	k, err := feed.NewPartitionKey(category)
	if err != nil {
		return
	}
	r, err := product.Batch(ctx, k, []store.Operation{
		{Kind: store.OpUpsert, Body: w.body(id+"-a", category, s.tried)},
		{Kind: store.OpUpsert, Body: w.body(id+"-b", category, s.tried)},
	}, "")
	if err == nil && !r.Failed {
		s.acked = s.tried
		w.acked += 2
	}
}

// settle waits for writes whose answers nobody waited for: on a slow machine they are still on
// their way to the log when somebody reads, who then does not see them, and sees them later. What
// the same client writes behind them is answered after them.
func settle(t *testing.T, product, meta *store.Container) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	write := func(ct *store.Container, body string) {
		for {
			_, err := ct.Upsert(ctx, []byte(body))
			if err == nil {
				return
			}
			if ctx.Err() != nil {
				t.Fatalf("nothing can be written: %v", err)
			}
		}
	}
	for i := range chaosCategories {
		write(product, fmt.Sprintf(`{"id":"settled","categoryId":"category-%d"}`, i))
	}
	for _, kind := range []string{"category", "tag"} {
		write(meta, fmt.Sprintf(`{"id":"settled","type":"%s","name":"settled"}`, kind))
	}
}

func (w *chaosWriter) check(t *testing.T, product *store.Container) {
	t.Helper()
	for id, s := range w.items {
		s.expect(t, id, version(t, product, id))
	}
	for id, s := range w.pairs {
		a, b := version(t, product, id+"-a"), version(t, product, id+"-b")
		if a != b {
			t.Errorf("transaction %s is there in half: versions %d and %d", id, a, b)
		}
		s.expect(t, id, a)
	}
}

// version reads an item's version, 0 if it is not there.
func version(t *testing.T, product *store.Container, id string) int {
	t.Helper()
	var n, w int
	if _, err := fmt.Sscanf(id, "w%d-%d", &w, &n); err != nil {
		t.Fatal(err)
	}
	k, err := feed.NewPartitionKey(fmt.Sprint("category-", n%chaosCategories))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	items, err := product.ReadMany(ctx, []store.ItemRef{{Key: k, ID: id}}, false)
	if err != nil {
		t.Fatal(err)
	}
	if items[0].ETag == (store.ETag{}) {
		return 0
	}
	var doc struct{ Version int }
	if err := json.Unmarshal(items[0].Body, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Version
}
