//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/processors"
)

const (
	workerItems  = 100_000
	workerLeast  = 8_000 // a page of copies, which the rate lets through at once, is 1,000
	workerLength = 10    // seconds of an undisturbed fan-out
	workerTimes  = 5     // by default
	workerTries  = 5     // of a kill, which may come when all is written
	workerMax    = 5 * time.Minute
	workerBar    = 2.0 // s

	workerPipeline = "category-names" // begins its name where leases and pages tell it
	workerKill     = "kill -9"
)

// worker is the case of a worker that dies in the middle of a fan-out.
func (b *bench) worker(ctx context.Context) (err error) {
	times := cmp.Or(b.cfg.times, workerTimes)
	set, err := dataset.New(dataset.Config{Seed: b.cfg.seed, Products: min(max(b.cfg.products, workerLeast), workerItems), OneCategory: true})
	if err != nil {
		return err
	}
	rate := set.Products() / workerLength
	t := b.table("worker", "A worker killed in a fan-out", fmt.Sprintf(
		"Two stores and two workers, each a process, over a NATS server that is another process, on one machine. The one category of %s products is renamed, and cascade.fanOutRateMax lets the fan-out take %d s. When a quarter "+
			"of the copies is written, the worker at work is killed, by kill -9. It goes on with the first page of copies that is committed under a later lease; the longest pause is that between two pages of an undisturbed part, before the "+
			"kill. The copies are counted when the fan-out is over, and the worker starts again.",
		measure.Number(float64(set.Products())), workerLength))
	t.Columns = []string{"kills", "goes on p50 s", "goes on max s", "longest pause s", "all done p50 s"}
	dir, err := b.scratch("worker")
	if err != nil {
		return err
	}
	defer b.remove(dir)
	f, err := b.openFleet(ctx, dir, fleetConfig{stores: 2, workers: 2, worker: []string{"--set", fmt.Sprint("cascade.fanOutRateMax=", rate)}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	b.say("  loading %s products", measure.Number(float64(set.Products())))
	cat, err := loadCatalogue(ctx, f.session, set, fmt.Sprintf(containers, 1))
	if err != nil {
		return err
	}
	k := &workerKills{b: b, fleet: f, cat: cat}
	for n := range times {
		for try := 1; ; try++ {
			err := k.once(ctx)
			if err == nil {
				break
			}
			if !errors.Is(err, errKilledLate) || try == workerTries {
				return fmt.Errorf("kill %d: %w", n+1, err)
			}
			b.say("  kill %d, try %d: %v", n+1, try, err)
		}
	}
	r := t.Row(workerKill)
	r.Add("kills", float64(times))
	r.Add("goes on p50 s", k.resumed.Quantile(0.5).Seconds())
	r.Add("goes on max s", k.resumed.Quantile(1).Seconds())
	r.Add("longest pause s", k.pauses.Quantile(1).Seconds())
	r.Add("all done p50 s", k.done.Quantile(0.5).Seconds())
	t.AtMost("goes on, the longest", t.Series(workerKill, "goes on max s"), workerBar, "s", set.Products() >= workerItems && times >= workerTimes)
	return nil
}

// errKilledLate says that the worker had written all copies when it was killed, so that nothing was left to go on with.
var errKilledLate = errors.New("all copies were written when the worker was killed")

// workerKills is one run of the case.
type workerKills struct {
	b       *bench
	fleet   *fleet
	cat     *catalogue
	renames int // so far

	resumed, pauses, done measure.Latencies
}

// once renames the category and kills the worker at work. The error is errKilledLate if that came too late; the worker runs
// again then too.
func (k *workerKills) once(ctx context.Context) (err error) {
	w := &world{b: k.b, set: k.cat.set, cat: k.cat, revision: k.renames}
	k.renames++
	s, err := w.category(k.cat.set.Sized(0))
	if err != nil {
		return err
	}
	pages, stop, err := k.follow(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	source, began := w.rename(s), time.Now()
	if err := k.cat.rename(ctx, source); err != nil {
		return err
	}
	if _, err := pages.await(ctx, func(p page) bool { return p.items >= len(s.products)/4 }); err != nil {
		return fmt.Errorf("a quarter of the copies: %w", err)
	}
	victim, err := k.atWork(ctx)
	if err != nil {
		return err
	}
	last := pages.last()
	killed := time.Now()
	if err := victim.kill(); err != nil {
		return err
	}
	next, err := pages.await(ctx, func(p page) bool { return p.epoch > last.epoch || p.items == len(s.products) })
	if err != nil {
		return fmt.Errorf("after the kill: %w", err)
	}
	late := next.epoch == last.epoch
	if err := k.cat.await(ctx, s.lasts, source.Name, false); err != nil {
		return err
	}
	done := time.Since(began)
	copies, err := k.cat.copies(ctx, source, s.products)
	if err == nil && copies != len(s.products) {
		err = fmt.Errorf("%d of %d copies have the new name", copies, len(s.products))
	}
	if err != nil {
		return err
	}
	if err := k.fleet.start(ctx, victim); err != nil {
		return err
	}
	if err := k.cat.awaitIdle(ctx); err != nil || late {
		return cmp.Or(err, errKilledLate)
	}
	pause := pages.longest(killed)
	k.resumed, k.pauses, k.done = append(k.resumed, next.at.Sub(killed)), append(k.pauses, pause), append(k.done, done)
	const clock = "15:04:05.000"
	k.b.say("  %s killed at %s with %d of %d copies written, it goes on at %s, after %.3f s; before, pages were %.3f s apart at most; all done after %.1f s", victim.name, killed.UTC().Format(clock), last.items, len(s.products),
		next.at.UTC().Format(clock), next.at.Sub(killed).Seconds(), pause.Seconds(), done.Seconds())
	return nil
}

// atWork waits until a worker has the lease of the fan-out, which nobody has while it moves, and returns the worker.
func (k *workerKills) atWork(ctx context.Context) (*fleetMember, error) {
	for began := time.Now(); time.Since(began) < workerMax; {
		all, err := leases.List(ctx, k.cat.js, "")
		if err != nil {
			return nil, err
		}
		if w := k.holder(all); w != nil {
			return w, nil
		}
		if err := wait(ctx, readyPoll); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("no worker has the lease of %s's source", workerPipeline)
}

// holder is the worker that has the lease of the fan-out; nil if none has.
func (k *workerKills) holder(all []leases.Lease) *fleetMember {
	for i := range all {
		r, err := processors.ParseResource(all[i].Resource)
		if err != nil || !strings.HasPrefix(r.Pipeline, workerPipeline) || r.Role != processors.RoleSource {
			continue // of a store, or of another role
		}
		for _, w := range k.fleet.workers {
			if leases.NodeOf(all[i].Owner) == w.node {
				return w
			}
		}
	}
	return nil
}

// page is a page of the fan-out, as the feed of the products shows it.
type page struct {
	at    time.Time
	epoch uint64
	items int // written by it and those before
}

// pagesSeen are the pages so far.
type pagesSeen struct {
	mu  sync.Mutex
	all []page
}

// follow reads the feed of the products from its end on, until stop is called.
func (k *workerKills) follow(ctx context.Context) (_ *pagesSeen, stop func() error, err error) {
	log, err := feed.OpenLog(ctx, k.cat.js, k.cat.items.Partitions()[0], feed.LogConfig{})
	if err != nil {
		return nil, nil, err
	}
	_, end, err := log.Bounds(ctx)
	if err != nil {
		return nil, nil, err
	}
	tail, err := log.Tail(ctx, end+1, feed.TailOptions{})
	if err != nil {
		return nil, nil, err
	}
	seen, ended := &pagesSeen{}, make(chan error, 1)
	following, cancel := context.WithCancel(ctx)
	go func() {
		for {
			commit, err := tail.Next(following)
			if err != nil {
				ended <- err
				return
			}
			seen.add(commit)
		}
	}()
	return seen, func() error {
		cancel()
		err := <-ended
		tail.Close()
		log.Close()
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}, nil
}

func (p *pagesSeen) add(commit *feed.Commit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range commit.Transactions {
		txn := &commit.Transactions[i]
		if txn.Page == nil || len(txn.Changes) == 0 || txn.Effect == nil || !strings.HasPrefix(txn.Effect.Producer.Pipeline, workerPipeline) {
			continue
		}
		next := page{at: time.Now(), epoch: txn.Effect.Epoch, items: len(txn.Changes)}
		if n := len(p.all); n > 0 {
			next.items += p.all[n-1].items
		}
		p.all = append(p.all, next)
	}
}

// await waits for a page and returns the first.
func (p *pagesSeen) await(ctx context.Context, what func(page) bool) (page, error) {
	for began := time.Now(); time.Since(began) < workerMax; {
		if found, ok := p.find(what); ok {
			return found, nil
		}
		if err := wait(ctx, readyPoll); err != nil {
			return page{}, err
		}
	}
	return page{}, fmt.Errorf("it has not come in %s", workerMax)
}

func (p *pagesSeen) find(what func(page) bool) (page, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.all {
		if what(at) {
			return at, true
		}
	}
	return page{}, false
}

// last is the page that was seen last, of which there must be one.
func (p *pagesSeen) last() page {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[len(p.all)-1]
}

// longest is the longest time between two pages before a moment.
func (p *pagesSeen) longest(before time.Time) (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 1; i < len(p.all) && p.all[i].at.Before(before); i++ {
		longest = max(longest, p.all[i].at.Sub(p.all[i-1].at))
	}
	return longest
}
