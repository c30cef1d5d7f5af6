package integration_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/steps"
	"github.com/millrace/millrace/store"
)

// stepPipelines copy what chaos writers write, by a pipeline of each kind. LEAST makes
// another meaning of an aggregate that has the same results.
const stepPipelines = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: category-names}
spec:
  source: {container: productMeta, where: type = "category"}
  cascade: {into: product, match: {categoryId: id}, set: {categoryName: name}, onSourceDelete: keep}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: tag-names}
spec:
  source: {container: productMeta, where: type = "tag"}
  cascade: {into: product, each: tags, match: {id: id}, set: {name: name}, onSourceDelete: keep}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: category-totals}
spec:
  source: {container: product, where: version > LEAST}
  aggregate:
    into: productMeta
    match: {id: categoryId}
    where: type = "category"
    set: {products: {count: true}, versions: {sum: version}}
    consistency: eventual
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: product-table}
spec:
  source: {container: product}
  project:
    sink: {parquet: {path: FILES, commitInterval: 100ms}}
    onExpire: delete
    tables:
      products:
        key: [id]
        columns: {id: id, categoryName: categoryName, version: {expr: version, type: int64}}
`

// stepKills is a store with pipelines of all kinds in one process that is killed at its
// steps, and writers that know what was acknowledged.
type stepKills struct {
	stepper
	t                  *testing.T
	dir, files, server string
	http               string
	node               *child
	writers            []*chaosWriter
	sources            []*shadow
	product, meta      *store.Container
	js                 jetstream.JetStream
	commands           [][]string // that have not come to their end
}

func newStepKills(t *testing.T) *stepKills {
	t.Helper()
	seed := newStepSeed(t)
	port := strconv.Itoa(freePort(t))
	k := &stepKills{
		stepper: stepper{dice: rand.New(rand.NewPCG(seed, 0)), known: map[string]map[string]*tally{}},
		t:       t, dir: t.TempDir(), files: t.TempDir(), server: "nats://127.0.0.1:" + port,
	}
	k.folders = map[string]string{k.dir: "", k.files: "tables/"}
	k.http = "127.0.0.1:" + strconv.Itoa(freePort(t))
	k.node = spawnWatched(t, steps.New(t, k.see), "up", "--dir", k.dir, "--port", port, "--listen", k.http,
		"--set", "sinks.roots="+k.files, "--set", "store.snapshots.logBytes=65536", "--set", "store.snapshots.sharePercent=100",
		"--set", "store.snapshots.rest=1s", "--set", "store.trimBytes=1", "--set", "store.checkInterval=100ms", "--set", "store.syncInterval=100ms")
	tellOnFailure(t, k.node)
	for _, name := range []string{"product", "productMeta"} {
		mustRun(t, k.server, "apply", "-f", "../configs/webstore/"+name+".yaml")
	}
	nc, err := nats.Connect(k.server, asTester(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if k.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	client := dial(t, k.server)
	k.product, k.meta = open(t, client, "product"), open(t, client, "productMeta")
	for _, ct := range []*store.Container{k.product, k.meta} {
		spec := ct.Info().Spec
		spec.ChangeFeed.Retention = new(store.Retention(0))
		if _, err := client.Catalog().Update(t.Context(), "default", ct.Info().Name, spec); err != nil {
			t.Fatal(err)
		}
	}
	mustRun(t, k.server, "apply", "-f", k.pipelines(0))
	for i := range chaosCategories + chaosTags {
		k.sources = append(k.sources, &shadow{tried: 1})
		for k.sources[i].acked == 0 {
			rename(t.Context(), k.meta, i, k.sources[i])
		}
	}
	for i := range chaosWriters {
		k.writers = append(k.writers, &chaosWriter{n: i, rand: rand.New(rand.NewPCG(seed, uint64(i+1))), items: map[string]*shadow{}, pairs: map[string]*shadow{}})
	}
	return k
}

// pipelines writes the declarations to a file. Each n gives the aggregate another meaning.
func (k *stepKills) pipelines(n int) (file string) {
	file = filepath.Join(k.t.TempDir(), "pipelines.yaml")
	writeText(k.t, file, strings.NewReplacer("FILES", k.files, "LEAST", strconv.Itoa(-n)).Replace(stepPipelines))
	return file
}

// await waits until the process was killed, and kills it itself when over closes or most of
// the time has passed.
func (k *stepKills) await(phase string, over <-chan struct{}, most time.Duration) {
	k.t.Helper()
	select {
	case <-k.node.Ended:
	case <-over:
	case <-time.After(most): // no event tells that a step does not come
	}
	if missed := k.end(); missed != "" {
		k.t.Logf("while %s the step %q did not come", phase, missed)
	}
	k.node.kill()
}

// TestKill_AtEveryStep kills the one process at each step that changes files, while it
// writes, takes snapshots, trims and walks, and while it starts, from its engine or from
// snapshots alone. Every acknowledged write is there (I2), no transaction is there in half,
// every copy is right (I6), counted again by code that is not the product's; bytes on disk
// come back to what lives, and nothing stays that nobody names.
func TestKill_AtEveryStep(t *testing.T) {
	t.Parallel()
	k := newStepKills(t)
	for n := range *stepRounds {
		k.write(n)
		switch n % 3 {
		case 1:
			k.restart("starting")
		case 2:
			if err := os.RemoveAll(filepath.Join(k.dir, "engine")); err != nil {
				t.Fatal(err)
			}
			k.restart("loading")
		}
		k.start()
		for _, args := range k.commands { // who was not answered asks again
			mustRun(t, k.server, args...)
		}
		k.commands = nil
		k.settle(n)
		if t.Failed() {
			t.Fatalf("round %d", n)
		}
	}
	k.tell()
	if said := k.node.output(); strings.Contains(said, "was moved aside") || strings.Contains(said, "a snapshot cannot be used") {
		t.Errorf("a kill has left an engine or a snapshot that cannot be used:\n%s", said)
	}
}

// write has the writers write until the process was killed. In every other round
// generations begin meanwhile, which walk.
func (k *stepKills) write(n int) {
	k.t.Helper()
	ctx, stop := context.WithCancel(k.t.Context())
	var work sync.WaitGroup
	for _, w := range k.writers {
		work.Go(func() { w.run(ctx, k.product) })
	}
	seed := k.dice.Uint64()
	work.Go(func() {
		for dice := rand.New(rand.NewPCG(seed, 0)); ctx.Err() == nil; {
			i := dice.IntN(len(k.sources))
			rename(ctx, k.meta, i, k.sources[i])
		}
	})
	phase := "writing"
	if n%2 == 1 {
		phase = "walking"
		k.commands = [][]string{
			{"apply", "--backfill", "-f", k.pipelines(n)},
			{"rewind", "category-names", "--to", "beginning"},
			{"rewind", "product-table", "--to", "beginning"},
		}
		work.Go(func() { k.command(ctx) })
	}
	k.begin(phase)
	k.await(phase, nil, 5*stepPatience)
	stop()
	work.Wait()
}

// command runs the commands until ctx ends, and keeps those that have not come to their end.
func (k *stepKills) command(ctx context.Context) {
	for len(k.commands) > 0 {
		cmd := invocation(k.t, append(slices.Clone(k.commands[0]), "--server", k.server)...)
		if err := cmd.Start(); err != nil {
			k.t.Error(err)
			return
		}
		over := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // it may have ended
		err := cmd.Wait()
		if over(); err != nil {
			return // the process may have been killed meanwhile
		}
		k.commands = k.commands[1:]
	}
}

// restart starts the process and kills it before it is ready.
func (k *stepKills) restart(phase string) {
	k.t.Helper()
	k.begin(phase)
	k.node.begin()
	k.await(phase, k.node.Ready, time.Minute)
}

// start starts the process, and says what it waits for if it does not become ready.
func (k *stepKills) start() {
	k.t.Helper()
	k.node.begin()
	select {
	case <-k.node.Ready:
		return
	case <-k.node.Ended:
	case <-time.After(poll.Most):
	}
	for _, args := range [][]string{{"status"}, {"doctor"}} {
		out, exit := run(k.t, k.server, args...)
		k.t.Logf("%s: exit %d\n%s", args, exit, out)
	}
	ask, err := http.NewRequestWithContext(k.t.Context(), http.MethodGet, "http://"+k.http+"/readyz", http.NoBody)
	if err != nil {
		k.t.Fatal(err)
	}
	if answer, err := http.DefaultClient.Do(ask); err == nil {
		body, _ := io.ReadAll(answer.Body)
		k.t.Logf("%s\n%s", answer.Status, body)
		_ = answer.Body.Close()
	}
	k.t.Fatal("it does not become ready")
}

// tell logs at which steps the process was killed, and what it did meanwhile.
func (k *stepKills) tell() {
	said := k.node.output()
	k.t.Logf("%s%d snapshots taken, %d loaded, %d trims", k.table(),
		strings.Count(said, "snapshot taken"), strings.Count(said, "snapshot loaded"), strings.Count(said, "log trimmed"))
}
