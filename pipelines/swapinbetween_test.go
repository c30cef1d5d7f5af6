package pipelines_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/postgres"
	"github.com/millrace/millrace/pipelines"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/plan"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/processors/project/pgsink"
)

// noted is what the script of a registry goes by.
type noted struct {
	Generation uint32 `json:"generation"`
	Shadow     bool   `json:"shadow"`
	Swapping   bool   `json:"swapping"`
}

var errCutOff = errors.New("cut off from the registry")

// scriptedKV is the registry's bucket as a process reaches it that is cut off at a moment.
type scriptedKV struct {
	jetstream.KeyValue
	mu     sync.Mutex
	refuse func(noted) bool // a record is not written
	lose   func(noted) bool // it is, and no answer comes until the process ends
	hits   int
}

func (s *scriptedKV) script(refuse, lose func(noted) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse, s.lose, s.hits = refuse, lose, 0
}

// cutOff waits until the script has had an effect.
func (s *scriptedKV) cutOff(t testing.TB) {
	t.Helper()
	poll.Until(t, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return poll.Unless(s.hits > 0, "nothing was lost yet")
	})
}

func (s *scriptedKV) hit(on func(noted) bool, n noted) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on == nil || !on(n) {
		return false
	}
	s.hits++
	return true
}

func (s *scriptedKV) Update(ctx context.Context, key string, value []byte, last uint64) (uint64, error) {
	var n noted
	if err := json.Unmarshal(value, &n); err != nil {
		return 0, err
	}
	s.mu.Lock()
	refuse, lose := s.refuse, s.lose
	s.mu.Unlock()
	if s.hit(refuse, n) {
		return 0, errCutOff
	}
	revision, err := s.KeyValue.Update(ctx, key, value, last)
	if err == nil && s.hit(lose, n) {
		<-ctx.Done() // it dies here: its next round would go on
		return 0, errCutOff
	}
	return revision, err
}

// workScripted runs a worker that reaches the registry through a script.
func (n *node) workScripted(t testing.TB) (script *scriptedKV, stop func()) {
	t.Helper()
	own, err := registry.Open(t.Context(), n.js, n.client, registry.Config{})
	if err != nil {
		t.Fatal(err)
	}
	script = &scriptedKV{KeyValue: own.KV}
	own.KV = script
	worker := &node{system: &system{nc: n.nc, js: n.js, client: n.client, registry: own}}
	return script, worker.workWith(t, n.client, 10*time.Millisecond, pipelines.SupervisorConfig{Verify: verify.ContinuousConfig{Continuous: "off"}})
}

// swapCase is one sink in one test of a swap that is in doubt.
type swapCase struct {
	*node
	declared string // the sink, as declared
	sink     func(t testing.TB) project.Sink
}

// totalsOf are the columns of the generations.
var totalsOf = map[uint32]string{1: "double", 2: "decimal(12,2)", 3: "decimal(14,2)"}

// declare returns the pipeline of a generation.
func (c *swapCase) declare(t testing.TB, generation uint32) string {
	t.Helper()
	return strings.NewReplacer("SINK", c.declared, "COLUMNS", `{customerId: customerId, orderId: id, total: {expr: total, type: "`+totalsOf[generation]+`"}}`).Replace(orderRows)
}

// rowsOf counts the rows of a generation, which has none if it is neither read nor being built.
func (c *swapCase) rowsOf(t testing.TB, generation uint32) int {
	t.Helper()
	return len(c.readsOf(t, c.sink(t), project.Config{Generation: generation, Shadow: true}, totalsOf[generation]))
}

// eachSink runs a test with each sink that has shadows.
func eachSink(t *testing.T, run func(*testing.T, *swapCase)) {
	t.Helper()
	t.Run("parquet", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		run(t, &swapCase{newIdleNode(t), "{parquet: {path: " + dir + ", commitInterval: 100ms}}", func(t testing.TB) project.Sink {
			t.Helper()
			sink, err := parquetsink.New(parquetsink.NewDir(dir), parquetsink.Config{})
			if err != nil {
				t.Fatal(err)
			}
			return sink
		}})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		env := postgres.Env(t, postgres.Start(t).Database(t))
		run(t, &swapCase{newIdleNode(t), "{postgres: {dsnEnv: " + env + "}}", func(t testing.TB) project.Sink {
			t.Helper()
			sink, err := pgsink.New(pgsink.Config{DSNEnv: env})
			if err != nil {
				t.Fatal(err)
			}
			return sink
		}})
	})
}

// begin brings a first generation in force, and a second one to its swap, at which its worker dies.
func (c *swapCase) begin(t testing.TB, refuse, lose func(noted) bool) {
	t.Helper()
	script, stop := c.workScripted(t)
	c.apply(t, decode(t, shopContainers))
	c.customers(t, 3, 2)
	c.apply(t, decode(t, c.declare(t, 1)))
	c.awaitInForce(t, "order-rows", 1)
	script.script(refuse, lose)
	c.apply(t, decode(t, c.declare(t, 2)), registry.ApplyOptions{Backfill: true})
	script.cutOff(t)
	stop()
}

// goOn lets another worker find out whose rows are read, and finish a third generation; until it
// is swapped in, those rows are kept equal to the items.
func (c *swapCase) goOn(t testing.TB, read, gone uint32) {
	t.Helper()
	script, stop := c.workScripted(t)
	defer stop()
	script.script(func(n noted) bool { return n.Generation == 3 && (n.Swapping || !n.Shadow) }, nil)
	poll.Until(t, func() error {
		rec := c.record(t, "order-rows")
		return poll.Unless(rec.Between == nil && rec.Former != nil && rec.Former.Generation == read, fmt.Sprintf("the rows of %d are not known to be read: %+v", read, rec))
	})
	c.put(t, "customer", order(0, 2))
	poll.Until(t, func() error {
		is, was := c.rowsOf(t, read), c.rowsOf(t, gone)
		return poll.Unless(is == 7 && was == 0, fmt.Sprintf("%d rows of generation %d are read, and %d of %d are there", is, read, was, gone))
	})
	script.cutOff(t) // it has come as far as its swap
	script.script(nil, nil)
	c.awaitInForce(t, "order-rows", 3)
	c.put(t, "customer", order(1, 2))
	c.idle(t)
	if is, was := c.rowsOf(t, 3), c.rowsOf(t, read); is != 8 || was != 0 {
		t.Errorf("%d rows at the end, and %d of generation %d", is, was, read)
	}
	if r, by := c.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual || by["order-rows"].Copies != 8 {
		t.Errorf("verify:\n%s", text(r))
	}
}

// A worker dies when it has put the rows of a second generation in place, and before that is
// noted; a third one is registered. The rows of the second one are read, and kept up to date,
// until those of the third take their place.
func TestSwap_ThatWasDoneAndNotNoted(t *testing.T) {
	t.Parallel()
	eachSink(t, func(t *testing.T, c *swapCase) {
		t.Helper()
		c.begin(t, func(n noted) bool { return n.Generation == 2 && !n.Shadow }, nil)
		if is, was := c.rowsOf(t, 2), c.rowsOf(t, 1); is != 6 || was != 0 {
			t.Fatalf("%d rows of the second generation, %d of the first one", is, was)
		}
		// A plan compares with the rows that are read. Were it those of the first one, all would be new.
		p, err := plan.New(c.js, c.registry, c.client, plan.Config{}).Plan(t.Context(), decode(t, c.declare(t, 3)))
		if err != nil {
			t.Fatal(err)
		}
		if e := p.Resources[0].Effect; e.Created != 0 || e.Equal != 6 {
			t.Errorf("a plan makes %d rows new, and finds %d", e.Created, e.Equal)
		}
		again := strings.Replace(c.declare(t, 1), `type = "order"`, `type = "order" AND total > 0`, 1)
		if reason := c.system.refused(t, decode(t, again), registry.ApplyOptions{FromNow: true}); !strings.Contains(reason, "do not fit") {
			t.Error(reason)
		}
		c.apply(t, decode(t, c.declare(t, 3)), registry.ApplyOptions{Backfill: true})
		c.goOn(t, 2, 1)
	})
}

// A worker dies when it has noted that the rows of a second generation are to take their place,
// and before it has put them there; a third one is registered and begins to build. The second
// one is given up, and the rows of the first one are kept up to date.
func TestSwap_ThatWasNotedAndNotDone(t *testing.T) {
	t.Parallel()
	eachSink(t, func(t *testing.T, c *swapCase) {
		t.Helper()
		c.begin(t, nil, func(n noted) bool { return n.Generation == 2 && n.Swapping })
		if is, was := c.rowsOf(t, 2), c.rowsOf(t, 1); is != 6 || was != 6 {
			t.Fatalf("%d rows of the second generation, %d of the first one", is, was)
		}
		c.apply(t, decode(t, c.declare(t, 3)), registry.ApplyOptions{Backfill: true})
		c.open(t, 3)
		c.goOn(t, 1, 2)
	})
}

// open opens the sink as the processors of a generation do, of what is registered.
func (c *swapCase) open(t testing.TB, generation uint32) {
	t.Helper()
	rec := c.record(t, "order-rows")
	rec.Generation = generation
	source := c.container(t, "customer").Info()
	p, err := compile.Projection(c.client, &rec, &registry.Bound{Source: &source}, compile.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	producer := p.Resource(feed.Partition{Container: source.ID}).Producer()
	w, _, err := p.Sink().Open(t.Context(), p.Schema(), project.Term{Producer: producer, Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), p.Sink().Close()); err != nil {
		t.Fatal(err)
	}
}
