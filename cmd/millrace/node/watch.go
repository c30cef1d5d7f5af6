package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

const (
	// watchInterval is the time between two looks at how the node does.
	watchInterval = 2 * time.Second
	// pipelinesInterval is the time between two looks at pipelines that were well, on a node that
	// has committed nothing since. To look at them is to ask for the end of each log.
	pipelinesInterval = 10 * time.Second
	// judgeInterval is the time between two judgements of what is known: no more than
	// this comes to the times below until a node is unready.
	judgeInterval = 250 * time.Millisecond
	// progressMax is how long neither a look ends nor a commit is applied before the
	// node is unready. It is counted from the beginning of the last look that ended.
	progressMax = 4 * time.Second
	// appendMax is for how long one append may be seen before the node is unready. A
	// log that works takes thousands meanwhile.
	appendMax = 3 * time.Second
	// reopenFree is the free space below which the embedded server is not opened
	// anew, whatever the reserve: some of its largest messages.
	reopenFree = 32 << 20
	// reopenPauseMax bounds the pause between two openings for streams that could not be read.
	reopenPauseMax = 5 * time.Minute
	// reopenTimeout bounds the opening, which may have to read every stream.
	reopenTimeout = 5 * time.Minute
)

// Readiness tells whether a node does its work, by progress and not by mere life.
type Readiness struct {
	Ready bool `json:"ready"`
	// Problems say what is wrong and what to do; none if the node is ready.
	Problems []string  `json:"problems,omitempty"`
	Checked  time.Time `json:"checked"`
}

// watch looks at the node now and then: at its connection, the partitions that it
// owns, its embedded server's disk and the pipelines' progress.
type watch struct {
	n        *Node
	monitor  *status.Monitor // nil unless a worker
	last     atomic.Pointer[Readiness]
	stopping atomic.Bool

	// Guarded by mu, which is held during a look: looks ask others, and may take long.
	mu      sync.Mutex
	closed  bool
	stuck   map[string]bool         // pipelines that were told to be
	unowned map[feed.Partition]bool // without an owner at the last look; nil before the first
	well    wellPipelines
	// When the embedded server was opened anew for streams that it could not read, and how
	// long it is not again.
	reopened    time.Time
	reopenPause time.Duration

	// Guarded by judging, under which nothing is asked of others, so that judge goes on
	// while a look hangs.
	judging sync.Mutex
	looked  Readiness // what the last look found that came to an end
	began   time.Time // when that look began
	moved   time.Time // when commits were seen to be applied
	applied uint64    // owner.Server.Applied at the last judgement
	pending map[feed.Partition]pendingAppend
}

func newWatch(n *Node) *watch {
	w := &watch{n: n, stuck: map[string]bool{}, began: time.Now(), looked: Readiness{Problems: []string{"starting"}}}
	w.last.Store(&w.looked)
	if n.roles.Worker {
		w.monitor = status.NewMonitor(n.js, n.registry, status.MonitorConfig{
			Bucket: n.cfg.Leases.Bucket, Log: n.cfg.Feed.Log, SampleMax: 1, // nobody looks at the changes here
		})
	}
	return w
}

func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.monitor != nil && !w.closed {
		w.monitor.Close()
	}
	w.closed = true
}

// run looks, and judges what is known meanwhile: a look that hangs is what it is to find.
func (w *watch) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { every(ctx, judgeInterval, func() { w.judge(time.Now()) }) })
	every(ctx, watchInterval, func() { w.look(ctx) })
}

// every does f now and then until ctx ends.
func every(ctx context.Context, interval time.Duration, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		f()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Ready tells whether the node does its work, as of at most a few seconds ago.
func (n *Node) Ready() Readiness {
	if n.watch.stopping.Load() {
		return Readiness{Problems: []string{"stopping"}, Checked: time.Now().UTC()}
	}
	return *n.watch.last.Load()
}

// Look looks at the node now.
func (n *Node) Look(ctx context.Context) Readiness {
	n.watch.look(ctx)
	return n.Ready()
}

func (w *watch) look(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, watchInterval)
	defer cancel()
	began := time.Now()
	var problems []string
	check := func(err error) {
		if err != nil && ctx.Err() == nil {
			problems = append(problems, err.Error())
		}
	}
	check(w.checkServer(ctx))
	if !w.n.nc.IsConnected() {
		check(errors.New("NATS cannot be reached; connecting again"))
	} else {
		check(w.n.catalog.Sound(ctx))
		w.checkWork(ctx, check)
	}
	// A look that ran out of time and found nothing says nothing. Judge sees how long ago
	// the last one was that did.
	if ctx.Err() == nil || len(problems) > 0 {
		w.noteLook(began, problems...)
	}
	w.judge(time.Now())
}

// noteLook notes what a look found that has come to an end.
func (w *watch) noteLook(began time.Time, problems ...string) {
	w.judging.Lock()
	defer w.judging.Unlock()
	w.began, w.looked = began, Readiness{Problems: problems, Checked: began.UTC()}
}

// judge makes a verdict of what the last look found and what is known by itself.
func (w *watch) judge(now time.Time) {
	// Ask the owners before taking judging: what they answer with may be locked for long.
	var applied uint64
	var appending map[feed.Partition]feed.LSN
	var held error
	if w.n.owners != nil {
		applied, appending, held = w.n.owners.Applied(), w.n.owners.Appending(), w.checkHeld()
	}
	w.judging.Lock()
	defer w.judging.Unlock()
	r := w.verdict(now, applied, appending)
	if held != nil {
		r.Ready, r.Problems = false, append(r.Problems, held.Error())
	}
	w.last.Store(&r)
}

// verdict judges by progress. A busy machine makes looks slow and is no reason to be
// unready: as long as commits are applied, what the last look found stands that came to
// an end. Without that it stands for progressMax. judging is held.
func (w *watch) verdict(now time.Time, applied uint64, appending map[feed.Partition]feed.LSN) Readiness {
	if applied > w.applied { // it is less when a partition has gone
		w.moved = now
	}
	w.applied = applied
	r := Readiness{Problems: slices.Clone(w.looked.Problems), Checked: w.looked.Checked}
	if err := w.checkAppends(appending, now); err != nil {
		r.Problems = append(r.Problems, err.Error())
	}
	if now.Sub(w.began) >= progressMax && now.Sub(w.moved) >= progressMax {
		r.Problems = append(r.Problems, "no progress: the checks have not come to an end for "+progressMax.String()+", and nothing was committed")
	}
	r.Ready = len(r.Problems) == 0
	return r
}

// checkAppends tells which partitions wait for their log: for an append that was seen for
// appendMax. judging is held.
func (w *watch) checkAppends(now map[feed.Partition]feed.LSN, at time.Time) error {
	var errs []error
	seen := map[feed.Partition]pendingAppend{}
	for p, lsn := range now {
		since := at
		if before, ok := w.pending[p]; ok && before.lsn == lsn {
			since = before.since
		}
		seen[p] = pendingAppend{lsn, since}
		if lasts := at.Sub(since); lasts >= appendMax {
			errs = append(errs, fmt.Errorf("no progress: the log of partition %s has not answered an append for %s", p, lasts.Round(time.Second)))
		}
	}
	w.pending = seen
	return errors.Join(errs...)
}

// pendingAppend is an append that a log has not answered, and when it was seen first.
type pendingAppend struct {
	lsn   feed.LSN
	since time.Time
}

// checkServer looks at the embedded server. Its store refuses everything after a write
// error until the server is opened anew, which is done once there is room: a
// server that starts on a full disk makes things worse.
func (w *watch) checkServer(ctx context.Context) error {
	if w.n.server == nil {
		return nil
	}
	full := ""
	defer func() { w.n.diskFull.Store(&full) }()
	err := w.n.server.Health()
	if errors.Is(err, natsd.ErrUnread) {
		// Each try interrupts what the other streams do.
		if time.Since(w.reopened) < w.reopenPause {
			return err
		}
		w.reopened, w.reopenPause = time.Now(), min(max(2*w.reopenPause, watchInterval), reopenPauseMax)
	} else if w.reopenPause = 0; !errors.Is(err, natsd.ErrStore) && !errors.Is(err, natsd.ErrClosed) {
		return err
	}
	dir := w.n.cfg.NATS.Dir
	need := max(cmp.Or(w.n.cfg.Store.DiskReserve, owner.DiskReserveDefault), reopenFree)
	if free := freeBytes(dir); free >= 0 && free < need {
		full = fmt.Sprintf("the disk of %s is full: %d MiB are free, %d MiB are needed to go on; free some space", dir, free>>20, need>>20)
		return fmt.Errorf("%s (%w)", full, err)
	}
	w.n.log.Warn("the embedded NATS server could not write, or read, and is opened anew", slog.Any("error", err))
	w.noteLook(time.Now(), "the embedded NATS server is opened anew")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reopenTimeout)
	defer cancel()
	if err := w.n.server.Reopen(ctx); err != nil {
		return fmt.Errorf("open the embedded NATS server anew: %w", err)
	}
	w.n.log.Info("the embedded NATS server is open again")
	return nil
}

// checkWork looks at the partitions that this node owns and at the pipelines. What both need
// to know is read once: reading it is most of what a look costs, and an idle node does little
// else than look.
func (w *watch) checkWork(ctx context.Context, check func(error)) {
	containers, err := w.n.catalog.List(ctx)
	if err != nil {
		check(err)
		return
	}
	world := registry.World{Containers: containers}
	rests := w.pipelinesRest()
	var unlisted error
	if w.monitor != nil && !rests { // right behind the containers, so that a pipeline's are among them
		world.Pipelines, unlisted = w.n.registry.List(ctx)
	}
	held, unread := leases.List(ctx, w.n.js, w.n.cfg.Leases.Bucket)
	if w.n.roles.Store {
		check(w.checkPartitions(ctx, containers, held, unread))
	}
	switch {
	case w.monitor == nil, rests:
	case unlisted != nil:
		check(fmt.Errorf("read the pipelines' progress: %w", unlisted))
	default:
		err := w.checkPipelines(ctx, &world, held, unread)
		check(err)
		if w.well = (wellPipelines{}); err == nil && w.n.owners != nil {
			w.well = wellPipelines{time.Now(), w.n.owners.Applied()}
		}
	}
}

// wellPipelines is when the pipelines were seen to be well, and what the node had committed.
type wellPipelines struct {
	at      time.Time
	applied uint64
}

// pipelinesRest reports whether the pipelines need no look: they were well, and there is nothing new
// for them here. A node without a store does not know whether there is.
func (w *watch) pipelinesRest() bool {
	return time.Since(w.well.at) < pipelinesInterval && w.n.owners.Applied() == w.well.applied
}

// checkPartitions looks at the partitions that this node owns; unread is the error of leases.List.
func (w *watch) checkPartitions(ctx context.Context, infos []store.ContainerInfo, held []leases.Lease, unread error) error {
	if unread != nil {
		return fmt.Errorf("read the leases: %w", unread)
	}
	owned := map[string]bool{}
	for i := range held {
		if held[i].Group == GroupStore && held[i].Owner != "" {
			owned[held[i].Resource] = held[i].Owner == w.n.storeHeld.Holder()
		}
	}
	var errs []error
	unowned := map[feed.Partition]bool{}
	for i := range infos {
		if infos[i].State == store.ContainerReady {
			errs = append(errs, w.checkContainer(ctx, &infos[i], owned, unowned))
		}
	}
	w.unowned = unowned
	return errors.Join(errs...)
}

// checkHeld says which partitions of this node decide no writes because one thing takes long.
func (w *watch) checkHeld() error {
	var errs []error
	for _, h := range w.n.owners.Held() {
		errs = append(errs, fmt.Errorf("partition %s has decided no write for %s: it is held by %s", h.Partition, h.For.Round(100*time.Millisecond), h.By))
	}
	return errors.Join(errs...)
}

// checkContainer looks at the partitions of one container: each must have an owner,
// and those of this node must take writes. Those without one are put into unowned.
func (w *watch) checkContainer(ctx context.Context, info *store.ContainerInfo, owned map[string]bool, unowned map[feed.Partition]bool) error {
	ct, err := w.n.client.Open(*info)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range ct.Partitions() {
		mine, has := owned["store/"+p.String()]
		switch {
		case !has && !w.lacksOwner(p, unowned):
		case !has:
			errs = append(errs, fmt.Errorf("partition %s of %s has no owner yet", p, info.Name))
		case mine:
			status, err := ct.Status(ctx, p)
			if err != nil {
				errs = append(errs, fmt.Errorf("partition %s of %s does not answer: %w", p, info.Name, err))
			} else if status.Refusing != "" {
				errs = append(errs, fmt.Errorf("partition %s of %s refuses writes: %s", p, info.Name, status.Refusing))
			}
		}
	}
	return errors.Join(errs...)
}

// lacksOwner puts a partition into unowned and says whether the look before found it so too,
// or is the first. One that was made a moment ago, or is being handed over, has an owner
// at the next look.
func (w *watch) lacksOwner(p feed.Partition, unowned map[feed.Partition]bool) bool {
	unowned[p] = true
	return w.unowned == nil || w.unowned[p]
}

// checkPipelines looks at the progress of all pipelines, and says once when one is
// stuck and when it goes on; unread is the error of leases.List.
func (w *watch) checkPipelines(ctx context.Context, world *registry.World, held []leases.Lease, unread error) error {
	status, err := w.monitor.ReadOf(ctx, world, held, unread)
	if err != nil {
		return fmt.Errorf("read the pipelines' progress: %w", err)
	}
	recordStatus(ctx, status)
	var errs []error
	for i := range status.Pipelines {
		p := &status.Pipelines[i]
		if stuck := p.State.Unwell(); stuck != w.stuck[p.ID] {
			w.stuck[p.ID] = stuck
			attrs := []any{slog.String("pipeline", p.Database+"/"+p.Name), slog.Uint64("lag", p.Lag.Commits), slog.String("reason", p.Reason)}
			if stuck {
				w.n.log.Error("a pipeline makes no progress", append(attrs, slog.String("state", string(p.State)))...)
			} else {
				w.n.log.Info("a pipeline goes on", attrs...)
			}
		}
		if p.State.Unwell() {
			errs = append(errs, fmt.Errorf("pipeline %s/%s is %s: %s", p.Database, p.Name, p.State, p.Reason))
		}
	}
	return errors.Join(errs...)
}
