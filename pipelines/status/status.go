package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/internal/live"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// MonitorConfig tunes a Monitor. Zero fields take their defaults.
type MonitorConfig struct {
	// Bucket holds the leases. Default leases.DefaultBucket.
	Bucket string
	// StuckAfter is how long a processor that has something to do may be silent.
	// Default 30s.
	StuckAfter time.Duration
	// SampleMax bounds the commits of one processor that are read to count the
	// changes that it lags behind; of more, the rest is estimated. Default 8.
	SampleMax int
	// AnswerTimeout bounds the wait for one log. The pipelines that read one which does not answer are told as stuck, for
	// that reason, and later readings do not wait for it until it has answered beside them. What is not known when the
	// context of a reading runs out of time is told as that too. Default: as long as that context, and then the reading
	// fails as a whole.
	AnswerTimeout time.Duration
	// Log is the configuration with which logs are opened.
	Log feed.LogConfig
}

// Monitor reads where pipelines stand, from their leases and the ends of the
// logs, so it needs neither workers nor owners to be alive. What was done since the
// last checkpoints it asks the workers, those that answer. It remembers the last
// reading, from which rates are told. Not safe for concurrent use.
type Monitor struct {
	js       jetstream.JetStream
	registry *registry.Registry
	cfg      MonitorConfig
	open     openFunc

	// now is what this reading has seen, last what the one before has.
	now, last reading
	// beside are the logs that are asked beside the readings, each in a goroutine. All of them are
	// in silent of the reading before, too.
	beside map[feed.Partition]*question
	// Those beside have turns of their own: what waits for a silent log is not to hold up a reading.
	turns, turnsBeside turns
}

type openFunc func(ctx context.Context, p feed.Partition) (logReader, error)

// NewMonitor returns a Monitor of the pipelines in registry.
func NewMonitor(js jetstream.JetStream, registry *registry.Registry, cfg MonitorConfig) *Monitor {
	if cfg.StuckAfter == 0 {
		cfg.StuckAfter = 30 * time.Second
	}
	if cfg.SampleMax <= 0 {
		cfg.SampleMax = 8
	}
	open := func(ctx context.Context, p feed.Partition) (logReader, error) {
		log, err := feed.OpenLog(ctx, js, p, cfg.Log)
		if err != nil {
			return nil, err // and not a nil *feed.Log, which is no nil
		}
		return log, nil
	}
	return &Monitor{js: js, registry: registry, cfg: cfg, open: open, beside: map[feed.Partition]*question{}, turns: newTurns(), turnsBeside: newTurns()}
}

// Close frees what the Monitor holds, and ends what it asks beside the readings.
func (m *Monitor) Close() {
	m.dropBesideBut(nil)
	m.last.closeLogs(&m.now)
	m.now.closeLogs(&reading{})
}

// Read returns where all pipelines stand. The rate of the first reading is what the
// processors have noted in their checkpoints, of later ones that since the reading
// before. What cannot be read is told as a Problem, or as the state of the pipelines
// concerned; the rest is told all the same.
func (m *Monitor) Read(ctx context.Context) (*Status, error) {
	world, err := m.registry.World(ctx)
	if err != nil {
		return nil, err
	}
	held, err := leases.List(ctx, m.js, m.cfg.Bucket)
	return m.ReadOf(ctx, &world, held, err)
}

// ReadOf is Read for a caller that has read what is registered and then the leases; unread is
// the error of leases.List.
func (m *Monitor) ReadOf(ctx context.Context, world *registry.World, held []leases.Lease, unread error) (*Status, error) {
	// The leases that could be read are shown, with the error: where one record is damaged the
	// other pipelines are still looked at.
	if unread != nil && (len(held) == 0 || ctx.Err() != nil) {
		return nil, fmt.Errorf("read the leases: %w", unread)
	}
	byResource := make(map[string]*leases.Lease, len(held))
	for i := range held {
		byResource[held[i].Resource] = &held[i]
	}
	findings := continuousFindings(byResource)
	s := &Status{Time: time.Now()}
	if unread != nil {
		s.Problems = append(s.Problems, fmt.Sprintf("read the leases: %v", unread))
	}
	m.beginReading(s.Time)
	defer func() { m.last.closeLogs(&m.now) }()
	readers, begun := make([][]*watched, len(world.Pipelines)), registry.BegunOf(held)
	for i := range world.Pipelines {
		readers[i] = m.readers(&world.Pipelines[i], world.Containers, byResource, begun)
	}
	asked, err := m.askLogs(ctx, readers)
	if err != nil {
		return nil, err
	}
	s.Waited = waited(s.Time, asked)
	m.askCounts(ctx, readers)
	for i := range world.Pipelines {
		p := m.pipeline(&world.Pipelines[i], world.Containers, readers[i], findings)
		noted := 0.0
		for _, w := range readers[i] {
			noted += w.checkpoint.RateAt(s.Time)
			if late := w.lateWarning(world.Containers); late != "" {
				s.Warnings = append(s.Warnings, late)
			}
		}
		p.Rate = m.rate(p, noted)
		s.Pipelines = append(s.Pipelines, *p)
	}
	m.locate(ctx, s, world.Pipelines)
	return s, nil
}

// askCounts replaces the counts of checkpoints by those that the workers tell, which are newer.
// A worker that does not answer leaves those of its checkpoints.
func (m *Monitor) askCounts(ctx context.Context, readers [][]*watched) {
	held := map[string][]string{}
	for _, w := range slices.Concat(readers...) {
		if w.lease != nil && w.lease.Owner != "" && w.unread == nil {
			held[w.lease.Owner] = append(held[w.lease.Owner], w.resource.String())
		}
	}
	if len(held) == 0 {
		return
	}
	counted := live.Ask(ctx, m.js.Conn(), held)
	for _, w := range slices.Concat(readers...) {
		if counts, ok := counted[w.resource.String()]; ok {
			w.checkpoint.Counts = counts
		}
	}
}

// readers returns what there is to know of each processor of a pipeline: none
// while a container is gone.
func (m *Monitor) readers(rec *registry.Record, containers []store.ContainerInfo, held map[string]*leases.Lease, begun registry.Checkpoints) []*watched {
	if _, gone := rec.Bound(containers); gone != "" {
		return nil
	}
	var all []*watched
	for _, g := range rec.Generations() {
		b, gone := g.Bound(containers)
		if gone != "" {
			continue // the rows of an earlier generation stay as they are
		}
		byHand := g.ByHand(b.Source)
		if g.Generation != rec.Generation {
			byHand = "Its rows stay as they are until those of the next generation take their place"
		}
		for _, resource := range g.Readers(&b, begun) {
			all = append(all, &watched{
				resource: resource, record: g, byHand: byHand, lease: held[resource.String()], reconciler: held[registry.ReconcilerResource], now: m.now.time, stuckAfter: m.cfg.StuckAfter,
				checkpoint: &processors.Checkpoint{}, closed: closedAmong(partitionsOf(resource, &b), held, m.now.time),
			})
		}
	}
	return all
}

// rate returns the copies changed per second since the last reading; noted, which the
// processors say themselves, if there was none.
func (m *Monitor) rate(p *Pipeline, noted float64) float64 {
	key := fmt.Sprintf("%s/%d", p.ID, p.Generation)
	copies := p.Counts.Copies + p.Counts.Rows
	m.now.copies[key] = copies
	before, ok := m.last.copies[key]
	if passed := m.now.time.Sub(m.last.time).Seconds(); ok && passed > 0 {
		return float64(max(copies-before, 0)) / passed
	}
	return noted
}

// pipeline tells where one pipeline stands.
func (m *Monitor) pipeline(rec *registry.Record, containers []store.ContainerInfo, readers []*watched, findings map[string]*verify.Finding) *Pipeline {
	p := newPipelineStatus(rec)
	p.Verified = verify.VerificationOf(findings, rec)
	if _, gone := rec.Bound(containers); gone != "" && rec.IsRestored(containers) {
		p.addRestored(rec, containers)
		return p
	} else if gone != "" {
		p.State = Stuck
		p.Reason = fmt.Sprintf("container %s/%s was deleted, or made again; apply the pipeline again or delete it", rec.Database, gone)
		return p
	}
	backfill := newBackfill(rec)
	for _, w := range readers {
		w.still = m.still(w)
		one := w.status()
		p.add(&one, w)
		backfill.add(w)
	}
	slices.SortFunc(p.FanOuts, func(a, b FanOut) int {
		return cmp.Or(a.Began.Compare(b.Began), strings.Compare(a.Source, b.Source))
	})
	p.Backfill = backfill.status(m.now.time)
	p.addRecord(rec)
	return p
}

// addRestored tells what a pipeline of a backup waits for, which has not begun yet.
func (p *Pipeline) addRestored(rec *registry.Record, containers []store.ContainerInfo) {
	next, byItself := rec.RestoredNext(containers)
	p.State, p.Reason = Stuck, next
	if byItself {
		p.State = Uninitialised
	}
	if rec.Paused {
		p.State, p.Reason = Paused, "millrace resume "+rec.Name+"; "+next
	}
}

// newPipelineStatus says what a pipeline is.
func newPipelineStatus(rec *registry.Record) *Pipeline {
	return &Pipeline{
		Database: rec.Database, Name: rec.Name, ID: rec.ID, Kind: rec.Spec.Kind(), Generation: rec.Generation,
		Source: rec.Spec.Source.Container, Target: rec.Spec.Destination(), State: Idle, Sink: newSinkStatus(&rec.Spec),
		FanOuts: []FanOut{}, Processors: []Processor{},
	}
}

// addRecord takes in what the record says beside the processors.
func (p *Pipeline) addRecord(rec *registry.Record) {
	switch {
	case rec.Paused:
		cutOff := p.Reason // of its processors, which say nothing else while they are paused
		if p.State, p.Reason = Paused, "millrace resume "+rec.Name; cutOff != "" {
			p.Reason += "; " + cutOff
		}
	case rec.SwapRefused != "":
		p.State, p.Reason = Stuck, "its rows will never take the place of the former ones, which are read on: "+rec.SwapRefused+
			"; another Millrace writes to its sink, or the registry is older than the sink: apply it with another place, or millrace rewind "+rec.Name+" until its generation is a later one"
	case rec.Spec.Kind() == spec.CascadeKind || p.Backfill != nil || severity[p.State] >= severity[Switching]:
	case rec.InForce && rec.Unverified:
		p.State, p.Reason = Switching, notVerified(p.Verified, rec.Name)
	case rec.InForce:
	case rec.Spec.Kind() == spec.AggregateKind && !rec.Published:
		p.State, p.Reason = Switching, "what was there is computed; its fields follow when each partition has its rule in force"
	case rec.Spec.Kind() == spec.AggregateKind:
		p.State, p.Reason = Switching, "its fields are being set, or partitions and readers pass on who computes them"
	case rec.Between != nil:
		p.State, p.Reason = Switching, "its rows are built; whether those of the generation before had taken the place of the former ones is being found out"
	case rec.Shadow:
		p.State, p.Reason = Switching, "its rows are built and are about to take the place of the former ones"
	}
}

// add takes one processor into the pipeline's sums.
func (p *Pipeline) add(one *Processor, w *watched) {
	p.Processors = append(p.Processors, *one)
	p.State = worse(p.State, one.State)
	if one.State == p.State && p.Reason == "" && one.Reason != "" {
		p.Reason = fmt.Sprintf("%s %s: %s", one.Role, one.Partition, one.Reason)
	}
	p.Lag.add(&one.Lag)
	// Its readers, of two generations for example, may read one log.
	if w.unread != nil && !slices.Contains(p.Unread, one.Partition) {
		p.Unread = append(p.Unread, one.Partition)
	}
	p.Parked += one.Parked
	p.Counts.Copies += one.Counts.Copies
	p.Counts.Checked += one.Counts.Checked
	p.Counts.Dangling += one.Counts.Dangling
	p.Counts.DeadLetters += one.Counts.DeadLetters
	p.Counts.Rows += one.Counts.Rows
	p.Counts.Rejects += one.Counts.Rejects
	for i := range w.checkpoint.Jobs {
		if j := &w.checkpoint.Jobs[i]; !j.Parked {
			p.FanOuts = append(p.FanOuts, w.fanOut(j))
		}
	}
	if p.Sink != nil {
		p.Sink.addReader(w)
	}
}

// add adds up lags; the oldest counts.
func (l *Lag) add(other *Lag) {
	l.Commits += other.Commits
	l.Changes += other.Changes
	l.Estimated = l.Estimated || other.Estimated
	l.Unknown = l.Unknown || other.Unknown
	l.Jobs += other.Jobs
	l.Seconds = max(l.Seconds, other.Seconds)
}
