package integration_test

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/postgres"
	"github.com/millrace/millrace/integration/steps"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/store"
)

const (
	killWriters = 8
	killItems   = 400 // of each kind; so few that rows change often, and so many that not every commit touches every file
)

var killRounds = flag.Int("kills.rounds", 2, "rounds of each test that kills processes")

// slaughter is a whole Millrace in a process of its own, clients that write to it,
// and tables in files.
type slaughter struct {
	t      *testing.T
	node   *child
	server string
	files  string

	product, customer *store.Container
}

// newSlaughter starts the process and declares the containers. Checkpoints are far
// apart, so that a kill falls between a write and its checkpoint.
func newSlaughter(t *testing.T) *slaughter {
	t.Helper()
	return newWatchedSlaughter(t, t.TempDir(), nil)
}

// newWatchedSlaughter is newSlaughter of a process whose steps a watcher sees, with its
// tables in files.
func newWatchedSlaughter(t *testing.T, files string, watcher *steps.Watcher) *slaughter {
	t.Helper()
	port := strconv.Itoa(freePort(t))
	s := &slaughter{t: t, server: "nats://127.0.0.1:" + port, files: files}
	s.node = spawnWatched(t, watcher, "up", "--dir", t.TempDir(), "--port", port, "--listen", "off",
		"--set", "processors.checkpointInterval=1s", "--set", "processors.checkpointBusyInterval=1s", "--set", "sinks.roots="+s.files)
	tellOnFailure(t, s.node)
	s.apply(everyContainer)
	client := dial(t, s.server)
	s.product, s.customer = open(t, client, "product"), open(t, client, "customer")
	for n := range everyCategories {
		item := metaItem{ID: fmt.Sprint("c", n), Type: "category", Name: fmt.Sprint("category ", n)}
		if err := put(t.Context(), open(t, client, "productMeta"), item); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *slaughter) apply(yaml string) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "all.yaml")
	writeText(s.t, file, yaml)
	mustRun(s.t, s.server, "apply", "-f", file)
}

// clients write until the returned function is called, through all kills.
func (s *slaughter) clients() (stop func()) {
	done := make(chan struct{})
	var writing sync.WaitGroup
	for n := range killWriters {
		rng := rand.New(rand.NewPCG(*everySeed, uint64(n)))
		writing.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := s.write(n, rng); err != nil {
					s.t.Error(err)
					return
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		close(done)
		writing.Wait()
	})
}

// write makes, replaces or deletes one item of a writer.
func (s *slaughter) write(writer int, rng *rand.Rand) error {
	n := rng.IntN(killItems/killWriters)*killWriters + writer
	customer := fmt.Sprint("u", n%everyCustomers)
	switch rng.IntN(10) {
	case 0:
		p := everyProduct{productItem: productItem{ID: fmt.Sprint("p", n), CategoryID: fmt.Sprint("c", n%everyCategories)}, SKU: fmt.Sprint("s", n)}
		return insist(s.t, func(ctx context.Context) error { return put(ctx, s.product, p) })
	case 1:
		c := everyCustomer{ID: customer, CustomerID: customer, Type: "customer", Name: customer, Region: "r"}
		return insist(s.t, func(ctx context.Context) error { return put(ctx, s.customer, c) })
	case 2, 3:
		return insist(s.t, func(ctx context.Context) error {
			return gone(s.customer.Delete(ctx, keyOf(s.t, customer), fmt.Sprint("o", n)))
		})
	}
	o := everyOrder{ID: fmt.Sprint("o", n), CustomerID: customer, Type: "salesOrder", OrderDate: fmt.Sprint(2000 + rng.IntN(20))}
	for range rng.IntN(4) {
		o.Details = append(o.Details, everyLine{
			SKU: fmt.Sprint("s", rng.IntN(killItems)), Price: number(rng.IntN(100)), Quantity: fmt.Append(nil, rng.IntN(9)),
		})
	}
	return insist(s.t, func(ctx context.Context) error { return put(ctx, s.customer, o) })
}

// fill writes n orders and as many products before any pipeline is there.
func (s *slaughter) fill(n int) {
	var writing sync.WaitGroup
	for writer := range killWriters {
		rng := rand.New(rand.NewPCG(*everySeed, uint64(100+writer)))
		writing.Go(func() {
			for range n / killWriters {
				if err := s.write(writer, rng); err != nil {
					s.t.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
}

// kill ends the process as kill -9 does, and starts it again.
func (s *slaughter) kill() {
	s.node.kill()
	s.node.start()
}

// equal lets all pipelines catch up and proves every copy.
func (s *slaughter) equal() {
	s.t.Helper()
	if s.t.Failed() {
		return
	}
	r := verifyCopies(s.t, s.server, "--settle", "120s")
	copies := int64(0)
	for _, p := range r.Pipelines {
		copies += p.Copies
	}
	if r.exit != 0 || r.Verdict != verify.VerdictEqual || copies == 0 {
		s.t.Errorf("after the kills:\n%s", &r)
	}
	s.t.Logf("%d copies are equal", copies)
}

// TestKill_BetweenTargetWriteAndCheckpoint kills at random moments while pipelines
// of all kinds work, whose checkpoints are a second behind what they wrote.
func TestKill_BetweenTargetWriteAndCheckpoint(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	s := newSlaughter(t)
	s.apply(everyPipelineIn(s.files))
	stop := s.clients()
	defer stop()
	rng := rand.New(rand.NewPCG(*everySeed, 1))
	for range *killRounds * 2 {
		time.Sleep(time.Duration(1500+rng.IntN(2000)) * time.Millisecond) //nolint:forbidigo // a moment that nobody announces
		s.kill()
	}
	stop()
	s.equal()
}

// TestKill_MidBackfill declares pipelines of all kinds over data that is there, and
// kills while they read it.
func TestKill_MidBackfill(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	s := newSlaughter(t)
	s.fill(4000)
	s.apply(everyPipelineIn(s.files))
	caught := 0
	for range *killRounds {
		poll.Until(t, func() error {
			var st status.Status
			runJSON(t, s.server, &st, "status")
			filling := 0
			for i := range st.Pipelines {
				if st.Pipelines[i].State == status.Backfilling {
					filling++
				}
			}
			if filling > 0 {
				caught++
			}
			return poll.Unless(filling > 0 || len(st.Pipelines) == 0 || st.Pipelines[0].State == status.Idle, "no pipeline is backfilling or idle")
		})
		s.kill()
	}
	t.Logf("%d of %d kills fell into a backfill", caught, *killRounds)
	if caught == 0 {
		t.Error("no kill fell into a backfill")
	}
	s.equal()
}

// killAtFile waits for a new file whose path holds text, kills when it is there,
// and tells whether one came in time.
func (s *slaughter) killAtFile(text string, limit time.Duration) bool {
	s.t.Helper()
	before := s.filesOf(text)
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(200 * time.Microsecond) { //nolint:forbidigo // it polls
		for name := range s.filesOf(text) {
			if !before[name] {
				s.kill()
				return true
			}
		}
	}
	return false
}

func (s *slaughter) filesOf(text string) map[string]bool {
	found := map[string]bool{}
	_ = filepath.WalkDir(s.files, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(path, text) {
			found[path] = true
		}
		return nil // files come and go meanwhile
	})
	return found
}

// onlyAnalytics is the pipeline of everyPipeline that keeps files.
func (s *slaughter) onlyAnalytics() string {
	all := strings.Split(everyPipelineIn(s.files), "\n---\n")
	return all[len(all)-1]
}

// TestKill_MidManifest kills when rows have been staged and not committed, when a
// manifest has just been written, and at random moments.
func TestKill_MidManifest(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	s := newSlaughter(t)
	s.apply(s.onlyAnalytics())
	stop := s.clients()
	defer stop()
	for _, at := range []string{"_tmp", "/lines/data/", "/_manifest/"} {
		for range *killRounds {
			if !s.killAtFile(at, time.Minute) {
				t.Errorf("no file of %s was written", at)
			}
		}
	}
	stop()
	s.equal()
}

const postgresPipeline = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: relational}
spec:
  source: {container: customer}
  project:
    sink: {postgres: {dsnEnv: MILLRACE_TEST_DSN}}
    onExpire: delete
    tables:
      orders:
        where: type = "salesOrder"
        key: [id]
        columns: {id: id, customerId: customerId, orderDate: orderDate}
      lines:
        where: type = "salesOrder"
        each: details
        key: [orderId, line]
        columns:
          orderId: item.id
          line: {expr: index, type: int64}
          sku: sku
          price: {expr: price, type: "decimal(12,2)"}
          quantity: {expr: quantity, type: int64}
`

// awaitTransaction waits until somebody has written in a transaction of a database.
func awaitTransaction(t *testing.T, db *pgx.Conn) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Microsecond) { //nolint:forbidigo // the time itself is the test
		var writing int
		err := db.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_xid IS NOT NULL`).Scan(&writing)
		if err != nil {
			t.Fatal(err)
		}
		if writing > 0 {
			return
		}
	}
	t.Fatal("no transaction in a minute")
}

// TestKill_MidPostgresTransaction kills Millrace while it has a transaction open in
// PostgreSQL, and then PostgreSQL.
func TestKill_MidPostgresTransaction(t *testing.T) {
	onlyLong(t)
	server := postgres.Start(t)
	dsn := server.Database(t)
	t.Setenv("MILLRACE_TEST_DSN", dsn)
	s := newSlaughter(t)
	s.apply(postgresPipeline)
	stop := s.clients()
	defer stop()
	for range *killRounds {
		for _, victim := range []func(){s.kill, func() { server.Restart(t) }} {
			db, err := pgx.Connect(t.Context(), dsn)
			if err != nil {
				t.Fatal(err)
			}
			awaitTransaction(t, db)
			victim()
			_ = db.Close(context.WithoutCancel(t.Context())) // it may be gone with the server
			time.Sleep(time.Second)                          //nolint:forbidigo // the time itself is the test
		}
	}
	stop()
	s.equal()
}
