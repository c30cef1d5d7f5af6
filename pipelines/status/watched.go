package status

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/registry"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// watched is what is known of one processor, from which its state is told.
//
// It is of one reading of a Monitor. readers makes it, and fills in what the lease says; ask, in a
// goroutine for each log, what the log says: head, trimmed, oldest, changes and estimated, or why it
// could not be read. When all of these have ended, only the goroutine of the reading has it. What is
// asked beside readings has copies.
type watched struct {
	resource   processors.Resource
	record     *registry.Record
	lease      *leases.Lease // nil if there has never been one
	reconciler *leases.Lease // held by one of the workers; nil if never
	byHand     string        // what an operator is to do if the log was trimmed beyond it; "" for nothing
	checkpoint *processors.Checkpoint
	unread     error  // why log and checkpoint could not be read; nil if they were
	closed     string // why a partition that it reads or writes does not open; "" if all do
	head       feed.LSN
	trimmed    feed.LSN  // where the log begins, if that is behind what follows the checkpoint; else 0
	oldest     time.Time // of the first commit that is not processed; zero if all are
	changes    uint64    // in commits that are not processed
	estimated  bool      // changes are
	now        time.Time
	stuckAfter time.Duration
	still      time.Duration // for how long nothing has moved, as far as the Monitor has seen
}

// mark returns a text that changes whenever the processor gets on. The position alone would not
// do: a fan-out of a million items goes on for minutes at one position.
func (w *watched) mark() string {
	cp := w.checkpoint
	var scanned, changed int64
	var newest feed.Position // of the jobs, of which one may have taken another's place
	for i := range cp.Jobs {
		scanned, changed = scanned+cp.Jobs[i].Scanned, changed+cp.Jobs[i].Changed
		if newest.Before(cp.Jobs[i].Position) {
			newest = cp.Jobs[i].Position
		}
	}
	return fmt.Sprint(cp.Position, cp.Taken, len(cp.Parked), len(cp.Jobs), newest, scanned, changed, cp.Counts)
}

// status tells where the processor stands.
func (w *watched) status() Processor {
	cp := w.checkpoint
	s := Processor{
		Generation: w.resource.Generation, Role: w.resource.Role, Partition: w.resource.Partition.String(), Position: cp.Position.String(), Head: uint64(w.head),
		Lag: w.lag(), Counts: cp.Counts, Parked: len(w.parked()),
	}
	if w.lease != nil {
		s.Owner, s.Host, s.Epoch = w.lease.Owner, w.lease.Host, w.lease.Epoch
	}
	s.State, s.Reason = w.state(s.Lag)
	return s
}

func (w *watched) lag() Lag {
	l := Lag{Jobs: w.checkpoint.Open(), Unknown: w.unread != nil}
	if l.Jobs == 0 && w.backfilling() {
		l.Jobs = 1 // which has yet to begin
	}
	if behind := w.logBehind(); w.head > behind {
		l.Commits = uint64(w.head - behind)
		l.Changes, l.Estimated = w.changes, w.estimated
	}
	l.Changes += w.record.ItemsLeft(w.resource, w.checkpoint.Position)
	age := func(t time.Time) {
		// A job without a time has 0, which is 1970 and not IsZero: it would be a lag of decades.
		if !t.IsZero() && t.UnixMilli() > 0 {
			l.Seconds = max(l.Seconds, w.now.Sub(t).Seconds())
		}
	}
	age(w.oldest)
	for _, jobs := range [][]processors.Job{w.checkpoint.Jobs, w.checkpoint.Parked} {
		for i := range jobs {
			age(time.UnixMilli(jobs[i].Began))
		}
	}
	return l
}

// backfilling says whether the processor has something to backfill.
func (w *watched) backfilling() bool { return w.record.BackfillPending(w.resource, w.checkpoint) }

// parked returns the items that were given up and wait for their next change.
func (w *watched) parked() []*processors.Job {
	var all []*processors.Job
	for i := range w.checkpoint.Parked {
		all = append(all, &w.checkpoint.Parked[i])
	}
	for i := range w.checkpoint.Jobs {
		if j := &w.checkpoint.Jobs[i]; j.Parked {
			all = append(all, j)
		}
	}
	return all
}

// state tells the state and, if it is not well, why and what to do.
func (w *watched) state(lag Lag) (State, string) {
	cp := w.checkpoint
	switch {
	case w.record.Paused:
		return Paused, w.cutOff()
	// From here on in the order in which one reason hides the next: without log and checkpoint
	// nothing else is known; what was trimmed, nobody takes or does not open is not healed by
	// waiting, whether or not something is left to do. Lag came first once, and a pipeline that
	// could not begin was idle until its first change.
	case w.unread != nil:
		return Stuck, w.unread.Error()
	case w.trimmed > 0:
		return Stuck, w.cutOff()
	case w.lease == nil:
		if w.now.Sub(w.record.Changed) > w.stuckAfter {
			return Stuck, "no worker has taken it; " + w.workers()
		}
		return Uninitialised, ""
	case w.closed != "":
		return Stuck, w.closed
	case cp.Halted && !lag.None():
		// Before what its worker says of the stop: that is only that it has halted.
		return Halted, cp.LastError + "; it is tried again by itself: correct the item, or apply the pipeline with onError: park"
	case w.opens() != "":
		return Stuck, w.opens()
	case lag.None():
		return Idle, ""
	}
	// Only where something is left to do: a holder with nothing to do does not move either.
	if reason := w.stuck(); reason != "" {
		return Stuck, reason
	}
	return w.moving()
}

// opens says why its work does not begin, "" if it does. A worker that takes the lease gives it
// up again with an error, whether or not there is something to do. If a holder has kept the
// lease for a while, its work has begun; the lease counts the failures before until the
// holder's next checkpoint.
func (w *watched) opens() string {
	l := w.lease
	if l.Attempts == 0 || l.LastError == "" || l.Owner != "" && w.now.Sub(l.Acquired) > openMax {
		return ""
	}
	return fmt.Sprintf("stopped %s: %s", times(l.Attempts), l.LastError)
}

// openMax is how long work may take to say that it cannot begin.
const openMax = 5 * time.Second

// closedAmong says which of some partitions the store cannot open, and why; "" if none.
func closedAmong(partitions []feed.Partition, held map[string]*leases.Lease, now time.Time) string {
	for _, p := range partitions {
		l := held["store/"+p.String()]
		if l != nil && l.Attempts > 0 && l.LastError != "" && (l.Owner == "" || now.Sub(l.Acquired) <= openMax) {
			return fmt.Sprintf("partition %s does not open, tried %s: %s", p, times(l.Attempts), l.LastError)
		}
	}
	return ""
}

// partitionsOf returns the partitions that a processor reads and may write to.
func partitionsOf(r processors.Resource, b *registry.Bound) []feed.Partition {
	all := []feed.Partition{r.Partition}
	for _, c := range append([]*store.ContainerInfo{b.Target}, b.Tables...) {
		if c == nil {
			continue
		}
		for _, p := range c.Partitions {
			all = append(all, feed.Partition{Container: c.ID, Number: p.Number})
		}
	}
	return all
}

// moving tells of a processor that has something to do and does it.
func (w *watched) moving() (State, string) {
	state := Behind
	if done, total := w.record.Backfilled(w.resource, w.checkpoint.Position); done < total || w.backfilling() {
		state = Backfilling
	}
	if failing := w.failing(); failing != nil {
		return state, fmt.Sprintf("the fan-out of %s is tried again: %s", failing.Source, failing.LastError)
	}
	if cp := w.checkpoint; cp.Attempts > 0 {
		return state, w.retried()
	}
	if parked := w.parked(); len(parked) > 0 {
		first := parked[0]
		return state, fmt.Sprintf("%d given up, such as %s: %s; see millrace dead-letters list %s",
			len(parked), first.Source, first.LastError, w.record.Name)
	}
	return state, ""
}

// stuck says why a processor that has something to do makes no progress, "" if it
// does.
func (w *watched) stuck() string {
	cp := w.checkpoint
	switch {
	// opens has passed over it, because the holder has begun. The failures count on until its
	// next checkpoint, and there is none as long as it makes no progress.
	case w.lease.Attempts > 0 && w.lease.LastError != "":
		return fmt.Sprintf("stopped %s: %s", times(w.lease.Attempts), w.lease.LastError)
	case cp.Attempts >= processors.StuckAttempts:
		return w.retried()
	}
	if failing := w.failing(); failing != nil && failing.Attempts >= processors.StuckAttempts {
		return fmt.Sprintf("the fan-out of %s was tried %s: %s", failing.Source, times(failing.Attempts), failing.LastError)
	}
	if silent := w.now.Sub(w.lease.Progress); silent > w.stuckAfter {
		if w.lease.Owner == "" {
			return fmt.Sprintf("no worker has held it for %s; %s", silent.Round(time.Second), w.workers())
		}
		return fmt.Sprintf("its holder has not moved for %s", silent.Round(time.Second))
	}
	if w.still > w.stuckAfter {
		return fmt.Sprintf("nothing has moved for %s", w.still.Round(time.Second))
	}
	return ""
}

// retried tells of what is tried again: how often it has failed, since when, and
// when the next try is.
func (w *watched) retried() string {
	cp := w.checkpoint
	since := ""
	if cp.Since > 0 {
		since = " in " + format.Age(max(w.now.Sub(time.UnixMilli(cp.Since)), time.Millisecond).Seconds())
	}
	return fmt.Sprintf("what follows %s failed %s%s, and is tried again by itself within %s: %s", cp.Position, times(cp.Attempts), since, processors.RetryMax, cp.LastError)
}

// workers says what to do about a lease that nobody takes, by whether a worker takes
// others: one of the group holds the reconciler's whenever there is one.
func (w *watched) workers() string {
	s := w.reconciler
	if s == nil || s.Owner == "" || w.now.Sub(s.Progress) > w.stuckAfter {
		return "is a worker process running?"
	}
	who := s.Owner
	if s.Host != "" {
		who += " on " + s.Host
	}
	return fmt.Sprintf("worker %s runs and has not come to it: it is short of processor or disk, or its log says why", who)
}

// failing returns the open fan-out that has failed most often in a row, nil if
// none has failed.
func (w *watched) failing() *processors.Job {
	var worst *processors.Job
	for i := range w.checkpoint.Jobs {
		j := &w.checkpoint.Jobs[i]
		if !j.Parked && j.Attempts > 0 && (worst == nil || j.Attempts > worst.Attempts) {
			worst = j
		}
	}
	return worst
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// fanOut tells how far one job is.
func (w *watched) fanOut(j *processors.Job) FanOut {
	f := FanOut{
		Partition: w.resource.Partition.String(), Source: j.Source, Began: time.UnixMilli(j.Began).UTC(),
		Scanned: j.Scanned, Changed: j.Changed, Total: j.Total, Attempts: j.Attempts, LastError: j.LastError,
	}
	if j.Source == processors.BackfillJob {
		f.Source = "backfill of " + w.record.BackfillScope.String()
	} else {
		f.Position = j.Position.String()
	}
	if done, eta, ok := j.Progress(w.now); ok {
		f.Percent, f.ETA, f.Seconds = 100*done, eta, eta.Seconds()
	}
	if passed := w.now.Sub(time.UnixMilli(j.Began)).Seconds(); passed > 0 && j.Began > 0 {
		f.Rate = float64(j.Changed) / passed
	}
	return f
}
