package pipelines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// State is how a pipeline, or one of its processors, is.
type State string

// The states, from the best to the worst. Of a pipeline it is the worst of its
// processors'.
const (
	Idle          State = "idle"          // nothing is left to do
	Behind        State = "behind"        // there is something to do and it is being done
	Uninitialised State = "uninitialised" // no worker has held it yet
	Stuck         State = "stuck"         // there is something to do and no progress
	Paused        State = "paused"        // an operator paused it
)

var severity = map[State]int{Idle: 0, Behind: 1, Uninitialised: 2, Stuck: 3, Paused: 4}

func worse(a, b State) State {
	if severity[b] > severity[a] {
		return b
	}
	return a
}

// Status tells where all pipelines stand.
type Status struct {
	Time      time.Time        `json:"time"`
	Pipelines []PipelineStatus `json:"pipelines"`
}

// Healthy says whether no pipeline is stuck.
func (s *Status) Healthy() bool {
	for i := range s.Pipelines {
		if s.Pipelines[i].State == Stuck {
			return false
		}
	}
	return true
}

// PipelineStatus tells where one pipeline stands.
type PipelineStatus struct {
	Database   string `json:"database"`
	Name       string `json:"name"`
	ID         string `json:"id"`
	Generation uint32 `json:"generation"`
	Source     string `json:"source"` // container
	Target     string `json:"target"` // container
	State      State  `json:"state"`
	// Reason tells what to do about a state that is not well; "" if it is.
	Reason string            `json:"reason,omitempty"`
	Lag    Lag               `json:"lag"`
	Counts processors.Counts `json:"counts"`
	Rate   float64           `json:"rate"` // copies changed per second
	// Parked are the items that were given up and wait for their next change.
	Parked int `json:"parked"`
	// FanOuts are those that are open, the oldest first.
	FanOuts    []FanOutStatus    `json:"fanOuts"`
	Processors []ProcessorStatus `json:"processors"`
}

// Lag is how far a reading is behind.
type Lag struct {
	// Commits of the log that are not processed.
	Commits uint64 `json:"commits"`
	// Jobs are open fan-outs and parked items, whose commits are counted as
	// processed.
	Jobs int `json:"jobs"`
	// Seconds is the age of the oldest of either; 0 if there is none.
	Seconds float64 `json:"seconds"`
}

// None says that nothing is left to do.
func (l Lag) None() bool { return l.Commits == 0 && l.Jobs == 0 }

// FanOutStatus tells how far one fan-out is.
type FanOutStatus struct {
	Partition string        `json:"partition"` // of the source
	Source    string        `json:"source"`    // the item whose change is fanned out
	Position  string        `json:"position"`  // the version that it brings
	Began     time.Time     `json:"began"`
	Scanned   int64         `json:"scanned"`
	Changed   int64         `json:"changed"`
	Total     int64         `json:"total,omitempty"`      // 0 while it is not known
	Percent   float64       `json:"percent"`              // 0 while it is not known
	ETA       time.Duration `json:"-"`                    // 0 while it is not known
	Seconds   float64       `json:"etaSeconds,omitempty"` // ETA in seconds
	Rate      float64       `json:"rate"`                 // copies changed per second, since it began
	Attempts  int           `json:"attempts,omitempty"`
	LastError string        `json:"lastError,omitempty"`
}

// ProcessorStatus tells where one processor stands.
type ProcessorStatus struct {
	Role      processors.Role   `json:"role"`
	Partition string            `json:"partition"`
	State     State             `json:"state"`
	Reason    string            `json:"reason,omitempty"`
	Owner     string            `json:"owner,omitempty"`
	Host      string            `json:"host,omitempty"`
	Epoch     uint64            `json:"epoch"`
	Position  string            `json:"position"` // of the last change that is done
	Head      uint64            `json:"head"`     // LSN of the last commit in the log
	Lag       Lag               `json:"lag"`
	Counts    processors.Counts `json:"counts"`
	Parked    int               `json:"parked"`
}

// MonitorConfig tunes a Monitor. Zero fields take their defaults.
type MonitorConfig struct {
	// Bucket holds the leases. Default leases.DefaultBucket.
	Bucket string
	// StuckAfter is how long a processor that has something to do may be silent.
	// Default 30s.
	StuckAfter time.Duration
	// Log is the configuration with which logs are opened.
	Log feed.LogConfig
}

// Monitor reads where pipelines stand, from their leases and the ends of the
// logs, so it needs neither workers nor owners to be alive. It remembers the last
// reading, from which rates are told. Not safe for concurrent use.
type Monitor struct {
	js       jetstream.JetStream
	registry *Registry
	cfg      MonitorConfig

	// now is what this reading has seen, last what the one before has.
	now, last reading
}

// reading is what a Monitor remembers of one reading.
type reading struct {
	time   time.Time
	logs   map[feed.Partition]*feed.Log
	copies map[string]int64 // changed, by pipeline id and generation
	marks  map[processors.Resource]mark
}

// begin makes what was seen last the past.
func (m *Monitor) begin(now time.Time) {
	m.last = m.now
	m.now = reading{now, map[feed.Partition]*feed.Log{}, map[string]int64{}, map[processors.Resource]mark{}}
}

// end frees the logs that are of no use any more.
func (r *reading) end(next *reading) {
	for p, log := range r.logs {
		if next.logs[p] != log {
			log.Close()
		}
	}
	r.logs = nil
}

// mark is where a processor stood, and since when it has not moved.
type mark struct {
	text  string
	since time.Time
}

// NewMonitor returns a Monitor of the pipelines in registry.
func NewMonitor(js jetstream.JetStream, registry *Registry, cfg MonitorConfig) *Monitor {
	if cfg.StuckAfter == 0 {
		cfg.StuckAfter = 30 * time.Second
	}
	return &Monitor{js: js, registry: registry, cfg: cfg}
}

// Close frees what the Monitor holds.
func (m *Monitor) Close() {
	m.last.end(&m.now)
	m.now.end(&reading{})
}

// Read returns where all pipelines stand. The rate of the first reading is that
// of open fan-outs, of later ones that since the reading before.
func (m *Monitor) Read(ctx context.Context) (*Status, error) {
	world, err := m.registry.World(ctx)
	if err != nil {
		return nil, err
	}
	held, err := leases.List(ctx, m.js, m.cfg.Bucket)
	if err != nil {
		return nil, fmt.Errorf("read the leases: %w", err)
	}
	byResource := make(map[string]*leases.Lease, len(held))
	for i := range held {
		byResource[held[i].Resource] = &held[i]
	}
	s := &Status{Time: time.Now()}
	m.begin(s.Time)
	defer func() { m.last.end(&m.now) }()
	for i := range world.Pipelines {
		rec := &world.Pipelines[i]
		p, err := m.pipeline(ctx, rec, world.Containers, byResource)
		if err != nil {
			return nil, err
		}
		p.Rate = m.rate(p)
		s.Pipelines = append(s.Pipelines, *p)
	}
	return s, nil
}

// rate returns the copies changed per second since the last reading.
func (m *Monitor) rate(p *PipelineStatus) float64 {
	key := fmt.Sprintf("%s/%d", p.ID, p.Generation)
	m.now.copies[key] = p.Counts.Copies
	before, ok := m.last.copies[key]
	if passed := m.now.time.Sub(m.last.time).Seconds(); ok && passed > 0 {
		return float64(max(p.Counts.Copies-before, 0)) / passed
	}
	rate := 0.0
	for _, f := range p.FanOuts {
		rate += f.Rate
	}
	return rate
}

// pipeline reads where one pipeline stands.
func (m *Monitor) pipeline(ctx context.Context, rec *Record, containers []store.ContainerInfo, held map[string]*leases.Lease) (*PipelineStatus, error) {
	p := &PipelineStatus{
		Database: rec.Database, Name: rec.Name, ID: rec.ID, Generation: rec.Generation,
		Source: rec.Spec.Source.Container, Target: rec.Spec.target(), State: Idle, FanOuts: []FanOutStatus{},
	}
	source, target := rec.find(containers, rec.Source), rec.find(containers, rec.Target)
	if source == nil || target == nil {
		gone := p.Source
		if source != nil {
			gone = p.Target
		}
		p.State = Stuck
		p.Reason = fmt.Sprintf("container %s/%s was deleted, or made again; apply the pipeline again or delete it", rec.Database, gone)
		return p, nil
	}
	for _, resource := range rec.readers(source, target) {
		w := &watched{resource: resource, record: rec, lease: held[resource.String()], now: m.now.time, stuckAfter: m.cfg.StuckAfter}
		if err := m.measure(ctx, w); err != nil {
			return nil, err
		}
		w.still = m.still(w)
		one := w.status()
		p.add(&one, w)
	}
	slices.SortFunc(p.FanOuts, func(a, b FanOutStatus) int {
		return cmp.Or(a.Began.Compare(b.Began), strings.Compare(a.Source, b.Source))
	})
	if rec.Paused {
		p.State, p.Reason = Paused, "millrace resume "+rec.Name
	}
	return p, nil
}

// add takes one processor into the pipeline's sums.
func (p *PipelineStatus) add(one *ProcessorStatus, w *watched) {
	p.Processors = append(p.Processors, *one)
	p.State = worse(p.State, one.State)
	if one.State == p.State && p.Reason == "" && one.Reason != "" {
		p.Reason = fmt.Sprintf("%s %s: %s", one.Role, one.Partition, one.Reason)
	}
	p.Lag.Commits += one.Lag.Commits
	p.Lag.Jobs += one.Lag.Jobs
	p.Lag.Seconds = max(p.Lag.Seconds, one.Lag.Seconds)
	p.Parked += one.Parked
	p.Counts.Copies += one.Counts.Copies
	p.Counts.Checked += one.Counts.Checked
	p.Counts.Dangling += one.Counts.Dangling
	p.Counts.Letters += one.Counts.Letters
	for i := range w.checkpoint.Jobs {
		if j := &w.checkpoint.Jobs[i]; !j.Parked {
			p.FanOuts = append(p.FanOuts, w.fanOut(j))
		}
	}
}

// still returns for how long w has had something to do and has not moved.
func (m *Monitor) still(w *watched) time.Duration {
	last, text := m.last.marks[w.resource], w.mark()
	if last.text != text || w.lag().None() || w.record.Paused {
		last = mark{text, w.now}
	}
	m.now.marks[w.resource] = last
	return w.now.Sub(last.since)
}

// measure fills in what w's log and lease say.
func (m *Monitor) measure(ctx context.Context, w *watched) error {
	var err error
	var data []byte
	if w.lease != nil {
		data = w.lease.Checkpoint
	}
	if w.checkpoint, err = processors.DecodeCheckpoint(data); err != nil {
		return fmt.Errorf("lease %s: %w", w.resource, err)
	}
	if len(data) == 0 && w.resource.Role == processors.RoleTarget {
		w.checkpoint.Position = w.record.start(w.resource.Partition.Number)
	}
	log, err := m.log(ctx, w.resource.Partition)
	if err != nil {
		return err
	}
	if _, w.head, err = log.Bounds(ctx); err != nil {
		return fmt.Errorf("find the end of the log of %s: %w", w.resource.Partition, err)
	}
	if w.head <= w.checkpoint.Position.LSN {
		return nil
	}
	next, err := log.Read(ctx, w.checkpoint.Position.LSN+1)
	switch {
	case err == nil:
		w.oldest = time.UnixMilli(next.Time)
	case !errors.Is(err, feed.ErrNotFound):
		return fmt.Errorf("read commit %d of %s: %w", w.checkpoint.Position.LSN+1, w.resource.Partition, err)
	}
	return nil
}

func (m *Monitor) log(ctx context.Context, p feed.Partition) (*feed.Log, error) {
	log := m.now.logs[p]
	if log == nil {
		log = m.last.logs[p]
	}
	if log == nil {
		var err error
		if log, err = feed.OpenLog(ctx, m.js, p, m.cfg.Log); err != nil {
			return nil, fmt.Errorf("open the log of %s: %w", p, err)
		}
	}
	m.now.logs[p] = log
	return log, nil
}
