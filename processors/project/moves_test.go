package project_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/sinktest"
	"github.com/millrace/millrace/store"
)

var movesSeed = flag.Uint64("moves.seed", 0, "seed of the model of moving items; 0 takes one of the clock")

// mover changes items of a container, moves them between partition keys, and ends
// and begins the terms of its two partitions as it likes, so that their feeds
// lag differently.
type mover struct {
	*stage
	rnd    *rand.Rand
	source *store.Container
	p      *project.Projection
	leases map[feed.Partition]*lease
	stops  map[feed.Partition]func() error
	at     map[string]string // where an item is: its partition key
}

// Items move while terms come and go; in the end each has its rows.
func TestI6_AMovedItemKeepsItsRows(t *testing.T) {
	t.Parallel()
	seed := *movesSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	for name, sink := range map[string]func(*stage) sinktest.Sink{
		"written through": func(*stage) sinktest.Sink { return sinktest.NewMemory(sinktest.NewDisk(), false) },
		"buffered":        func(*stage) sinktest.Sink { return sinktest.NewMemory(sinktest.NewDisk(), true) },
		"container": func(s *stage) sinktest.Sink {
			return project.NewContainerSink(map[string]*store.Container{
				"orders": s.container(t, "orders", 2, "/id"), "orderItems": s.container(t, "lines", 1, "/orderId"),
			}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Logf("-moves.seed=%d", seed)
			s := newStage(t)
			m := &mover{stage: s, rnd: rand.New(rand.NewPCG(seed, 1)), source: s.container(t, "customer", 2, "/customerId")}
			m.leases, m.stops, m.at = map[feed.Partition]*lease{}, map[feed.Partition]func() error{}, map[string]string{}
			cfg := analytics(t)
			cfg.Tables = cfg.Tables[1:]
			cfg.Source, cfg.Sink, cfg.OnExpire, cfg.FlushInterval = m.source, sink(s), project.Delete, 3*time.Millisecond
			m.p = compile(t, cfg)
			for range 400 {
				m.step()
			}
			m.settle()
		})
	}
}

func (m *mover) step() {
	m.t.Helper()
	id := fmt.Sprint("o", m.rnd.IntN(6))
	to := fmt.Sprint("c", m.rnd.IntN(6))
	partition := m.source.Partitions()[m.rnd.IntN(2)]
	from, n := m.at[id], m.rnd.IntN(20)
	switch {
	case n < 1 && from != "":
		m.remove(id)
	case n < 7 && from != "" && from != to: // a move, in either order
		if m.rnd.IntN(2) == 0 {
			m.remove(id)
			m.write(id, to)
		} else {
			m.write(id, to)
			if err := m.source.Delete(m.t.Context(), key(m.t, from), id); err != nil {
				m.t.Fatal(err)
			}
		}
	case n < 18 || m.rnd.IntN(2) == 0:
		if from == "" {
			from = to
		}
		m.write(id, from)
	default:
		m.turn(partition)
	}
}

func (m *mover) write(id, at string) {
	m.t.Helper()
	skus := []string{"a", "b", "c", "d"}
	m.rnd.Shuffle(len(skus), func(i, j int) { skus[i], skus[j] = skus[j], skus[i] })
	skus = skus[:m.rnd.IntN(5)]
	body := strings.Replace(orderItem(id, []string{day, "never"}[m.rnd.IntN(8)/7], skus...), `"c1"`, fmt.Sprintf("%q", at), 1)
	if _, err := m.source.Upsert(m.t.Context(), []byte(body)); err != nil {
		m.t.Fatal(err)
	}
	m.at[id] = at
}

func (m *mover) remove(id string) {
	m.t.Helper()
	if err := m.source.Delete(m.t.Context(), key(m.t, m.at[id]), id); err != nil {
		m.t.Fatal(err)
	}
	m.at[id] = ""
}

// turn ends the term of a partition, or begins one.
func (m *mover) turn(p feed.Partition) {
	m.t.Helper()
	if stop := m.stops[p]; stop != nil {
		if err := stop(); err != nil {
			m.t.Errorf("the term of %s ended with %v", p, err)
		}
		delete(m.stops, p)
		return
	}
	if m.leases[p] == nil {
		m.leases[p] = newLease()
	}
	m.partition = p
	m.stops[p] = m.run(m.leases[p], m.p)
}

// settle brings both partitions to the end and compares.
func (m *mover) settle() {
	m.t.Helper()
	var items []store.Item
	for _, p := range m.source.Partitions() {
		if m.stops[p] != nil {
			m.turn(p)
		}
		m.turn(p)
		status, err := m.source.Status(m.t.Context(), p)
		if err != nil {
			m.t.Fatal(err)
		}
		m.last = status.Applied
		m.done(m.leases[p])
		page, err := m.source.Scan(m.t.Context(), p, store.Scan{ItemsMax: 1000, Barrier: true})
		if err != nil {
			m.t.Fatal(err)
		}
		items = append(items, page.Items...)
	}
	sinktest.Equal(m.t, m.p, items)
	m.noDeadLetters()
}
