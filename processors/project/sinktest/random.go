package sinktest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
)

var seed = flag.Uint64("sinktest.seed", 0, "seed of the random model; 0 takes one of the clock")

// producer is one source partition of the random model: what it has to say, in
// order, and how far its sink is.
type producer struct {
	partition int
	epoch     uint64
	history   []project.Batch // each with the interval behind the one before
	writer    *writer         // nil: there is no term
	written   int             // batches written in the term
	durable   int             // batches that must be durable: Flush or Write said so
}

// randomModel lets producers write random batches, lose their processes and their
// terms.
type randomModel struct {
	*bench
	rnd       *rand.Rand
	producers []*producer
}

const (
	randomProducers = 3
	randomSources   = 6 // of each producer
	randomKeys      = 8 // of all
)

// random runs the model.
func random(b *bench) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	b.Logf("-sinktest.seed=%d", s)
	m := &randomModel{bench: b, rnd: rand.New(rand.NewPCG(s, 0))}
	for i := range randomProducers {
		m.producers = append(m.producers, &producer{partition: i})
	}
	steps := 400
	if b.o.Quick {
		steps = 80
	}
	for range steps {
		m.step()
	}
	m.checkAtRest()
}

func (m *randomModel) step() {
	p := m.producers[m.rnd.IntN(len(m.producers))]
	switch n := m.rnd.IntN(100); {
	case p.writer == nil:
		m.openTerm(p)
	case n < 70:
		m.writeNext(p)
	case n < 84:
		m.flush(p)
	case n < 90:
		m.succeed(p)
	case n < 94:
		m.killAll()
	case n < 97:
		if err := p.writer.Close(); err != nil {
			m.Fatalf("close: %v", err)
		}
		p.writer = nil
	default:
		m.checkAtRest()
	}
}

// openTerm opens a term, which goes on from what the sink has recorded.
func (m *randomModel) openTerm(p *producer) {
	p.epoch++
	p.writer = m.start(p.partition, p.epoch)
	p.written = slices.IndexFunc(p.history, func(b project.Batch) bool { return p.writer.at.Before(b.UpTo) })
	if p.written < 0 {
		p.written = len(p.history)
	}
	if p.written < p.durable {
		m.Fatalf("partition %d: the sink has recorded %s; %d batches are durable, the last up to %s",
			p.partition, p.writer.at, p.durable, p.history[p.durable-1].UpTo)
	}
	p.durable = p.written
	if m.rnd.IntN(2) == 0 { // a checkpoint that is behind the sink
		p.written = m.rnd.IntN(p.written + 1)
	}
}

// writeNext writes the next batch, a new one if all have been written, and now and then
// one that was written before.
func (m *randomModel) writeNext(p *producer) {
	if p.written == len(p.history) {
		p.history = append(p.history, m.batch(p))
	}
	next := p.written
	if next > 0 && m.rnd.IntN(8) == 0 {
		next = m.rnd.IntN(next)
	}
	fill := p.history[next]
	written, _, err := p.writer.attempt(&fill)
	if err != nil {
		m.Fatalf("partition %d: write (%s, %s]: %v", p.partition, fill.After, fill.UpTo, err)
	}
	if next == p.written {
		p.written++
	}
	m.noteDurable(p, written.Durable)
}

// noteDurable notes what the sink says is durable.
func (m *randomModel) noteDurable(p *producer, durable feed.Position) {
	for p.durable < len(p.history) && !durable.Before(p.history[p.durable].UpTo) {
		p.durable++
	}
}

func (m *randomModel) flush(p *producer) {
	durable, err := p.writer.Flush(m.Context())
	if err != nil {
		m.Fatalf("partition %d: flush: %v", p.partition, err)
	}
	m.noteDurable(p, durable)
	if p.durable < p.written {
		m.Fatalf("partition %d: flushed up to %s; %d batches were written", p.partition, durable, p.written)
	}
}

// succeed begins the next term while the former one goes on writing.
func (m *randomModel) succeed(p *producer) {
	late := p.writer
	next := p.written
	m.openTerm(p)
	if next == len(p.history) {
		p.history = append(p.history, m.batch(p))
	}
	fill := p.history[next]
	written, err := late.Write(m.Context(), &fill)
	if err == nil && written.Skipped {
		return // it has been told nothing, and has done nothing
	}
	if err == nil {
		_, err = late.Flush(m.Context())
	}
	if err == nil || processors.FailureOf(m.Context(), err) != processors.Fenced {
		m.Fatalf("partition %d: a late worker is told %v, want an error that matches ErrFenced", p.partition, err)
	}
}

// killAll forgets the sink and all terms.
func (m *randomModel) killAll() {
	for _, p := range m.producers {
		p.writer = nil
	}
	m.reopen()
}

// batch returns what comes next of a producer: it says how rows of some of its
// sources are now.
func (m *randomModel) batch(p *producer) project.Batch {
	var b project.Batch
	if n := len(p.history); n > 0 {
		b.After = p.history[n-1].UpTo
	}
	b.UpTo = feed.Position{LSN: b.After.LSN + feed.LSN(m.rnd.IntN(3)), Index: uint32(m.rnd.IntN(4))}
	if !b.After.Before(b.UpTo) {
		b.UpTo = feed.Position{LSN: b.After.LSN, Index: b.After.Index + 1}
	}
	touched := map[string]bool{}
	for range 1 + m.rnd.IntN(6) {
		s := source(m, fmt.Sprint("c", p.partition*randomSources+m.rnd.IntN(randomSources)), "o")
		id := fmt.Sprint("o", m.rnd.IntN(randomKeys))
		r := order(s, id, fmt.Sprint("v", m.rnd.IntN(1000)), m.rnd.Int64N(10000)-100)
		if m.rnd.IntN(3) == 0 {
			r = line(s, id, int64(m.rnd.IntN(3)), strings.Repeat("x", m.rnd.IntN(9)))
		}
		if key := rowKey(r.Table, r.Key) + s; !touched[key] {
			touched[key] = true
			if m.rnd.IntN(3) == 0 {
				b.Drop = append(b.Drop, gone(r))
			} else {
				b.Put = append(b.Put, r)
			}
		}
		if m.rnd.IntN(4) == 0 {
			j := reject(Lines, s, strconv.Itoa(m.rnd.IntN(3)), "line")
			j.Reason = fmt.Sprint("reason ", m.rnd.IntN(1000))
			if key := rejectKey(&j); !touched[key] {
				touched[key] = true
				if m.rnd.IntN(3) == 0 {
					b.Accept = append(b.Accept, accepted(j))
				} else {
					b.Reject = append(b.Reject, j)
				}
			}
		}
	}
	return b
}

// checkAtRest brings every producer to its end and compares the sink with what they
// said, in whatever order they were heard.
func (m *randomModel) checkAtRest() {
	m.Helper()
	for _, p := range m.producers {
		if p.writer == nil {
			m.openTerm(p)
		}
		for p.written < len(p.history) {
			fill := p.history[p.written]
			if _, _, err := p.writer.attempt(&fill); err != nil {
				m.Fatalf("partition %d: write (%s, %s]: %v", p.partition, fill.After, fill.UpTo, err)
			}
			p.written++
		}
		m.flush(p)
	}
	want := newItemRows()
	for _, p := range m.producers {
		for i := range p.history {
			want.apply(&p.history[i])
		}
	}
	m.compare(want.resolvedAs(m.contents()))
}
