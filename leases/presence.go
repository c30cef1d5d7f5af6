package leases

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// presence is what a question to a process has found.
type presence uint8

const (
	unknown presence = iota // no answer, and no proof that nobody could give one
	present                 // it answered
	absent                  // nobody has a connection under its name
)

// prober asks whether processes of a group are there, and lets this one be asked.
type prober interface {
	// answer answers for a holder until end is called.
	answer(holder string) (end func(), err error)
	// ask asks for a holder, until ctx ends at the latest.
	ask(ctx context.Context, holder string) presence
	// reconnected reports whether this process's connection was made anew since the last call.
	reconnected() bool
}

const (
	// neighborsMax is how many members each one asks: those that follow it in the order of their
	// nodes. So a group of any size is watched, by two members each, for a few messages a second.
	neighborsMax = 2
	// absentMax is how often in a row a member has to be absent before its record says that it is gone, and absentPause
	// the time between two of these questions, where that is less than a tick.
	absentMax   = 3
	absentPause = 100 * time.Millisecond
	// goneGrace is for how long the record must have said so before the member counts as gone. One that merely
	// has another way to NATS, such as by a route that is cut, takes it back meanwhile.
	goneGrace = 750 * time.Millisecond
)

// probed is an event of the loop: what the questions of one round have found, by holder.
type probed struct{ found map[string]presence }

// probeDue asks the neighbors whether they are there, every second tick, after absentPause where one
// was absent, and every tick where members depose each other, whose keys tell more. Only such groups do, and those whose work is fenced.
func (l *loop) probeDue(runCtx context.Context, now time.Duration) {
	if l.cfg.prober == nil {
		return
	}
	// Others may have found it gone meanwhile, and the watch shows only later what it has missed.
	if l.cfg.prober.reconnected() {
		l.beat.wake()
	}
	if l.probing || now < l.nextProbe || !l.view.ready {
		return
	}
	asked := l.neighbors(now)
	if len(asked) == 0 {
		return
	}
	l.probing, l.nextProbe = true, now+2*l.tick()
	if l.cfg.Deposes {
		l.nextProbe = now + l.tick() // whoever waits for it waits for this too
	}
	l.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(runCtx, 2*l.tick())
		defer cancel()
		found := make([]presence, len(asked))
		var wg sync.WaitGroup
		for i, holder := range asked {
			wg.Go(func() { found[i] = l.cfg.prober.ask(ctx, holder) })
		}
		wg.Wait()
		e := probed{found: make(map[string]presence, len(asked))}
		for i, holder := range asked {
			e.found[holder] = found[i]
		}
		l.send(e)
	})
}

// neighbors returns the holders that this member asks.
func (l *loop) neighbors(now time.Duration) []string {
	live := l.view.live(now)
	nodes := slices.Sorted(maps.Keys(live))
	at, _ := slices.BinarySearch(nodes, l.cfg.Node)
	var asked []string
	for i := range nodes {
		node := nodes[(at+i)%len(nodes)]
		if node == l.cfg.Node || !live[node].Answers {
			continue
		}
		if asked = append(asked, live[node].holder()); len(asked) == neighborsMax {
			break
		}
	}
	return asked
}

// probed counts what a round of questions has found.
func (l *loop) probed(runCtx context.Context, e probed) {
	l.probing = false
	missed, answered := make(map[string]int, len(e.found)), make(map[string]bool, len(e.found))
	again := false
	for holder, found := range e.found {
		// Absence of one that has never answered this process, or not since it was wronged (noteGone), tells
		// nothing: there is no way to it from here.
		answered[holder] = l.answered[holder] || found == present
		if found != absent || !answered[holder] {
			continue
		}
		missed[holder] = l.missed[holder] + 1
		again = true
		if l.cfg.Fenced && missed[holder] >= absentMax {
			delete(missed, holder) // one that could not be declared is counted anew
			l.declareGone(runCtx, holder)
		}
	}
	l.missed, l.answered = missed, answered
	now := l.clock()
	switch {
	case again && l.cfg.Deposes:
		l.nextProbe = 0
	case again:
		pause := min(absentPause, l.tick())
		l.nextProbe = now + pause
		l.dueIn(runCtx, pause)
	}
	l.deposeDue(runCtx, now)
}

// noteGone looks at what a member's record says of its presence. Of this process it may be said that it is gone, or
// superseded: its next beat finds out, or says that it is not, so it is sent at once. What another has is free when it has
// been said of that one for goneGrace.
func (l *loop) noteGone(runCtx context.Context, node string, m *seenMember) {
	switch {
	case m == nil || m.rec == nil:
	case node == l.cfg.Node:
		if m.saysGone() || m.rec.Incarnation != l.incarnation {
			l.beat.wake()
		}
	case m.saysGone():
		delete(l.answered, m.rec.holder())
		l.dueIn(runCtx, goneGrace)
	}
}

// declareGone writes into a member's record that it is gone. The write is conditional on the revision
// that is known, so a beat that came meanwhile refuses it. A member that reads it, and is not gone, beats at once.
func (l *loop) declareGone(runCtx context.Context, holder string) {
	now := l.clock()
	seen, own := l.view.members[NodeOf(holder)], l.view.members[l.cfg.Node]
	if own == nil || own.rec == nil || own.rec.Gone != "" {
		return // others say of this process what it is about to say
	}
	if l.draining || !l.canJudge(now) || l.quiet(now) || seen == nil || seen.rec == nil || seen.rec.holder() != holder || seen.rec.Gone != "" {
		return
	}
	rec := *seen.rec
	rec.Gone = l.Holder()
	l.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(runCtx, l.cfg.RenewInterval)
		defer cancel()
		_, err := l.store.Put(ctx, memberKey(l.cfg.Group, rec.Node), encode(&rec), seen.revision)
		if err != nil {
			l.log.Debug("a member that does not answer was not declared gone", "member", holder, "error", err)
			return
		}
		l.log.Warn("a member seems to be gone: nobody has a connection under its name; its leases are taken unless it beats now", "member", holder, "host", rec.Host)
	})
}

// settleTime is how long this process must have been connected before absence counts: others whose connections
// broke at the same moment may come back later than this one.
const settleTime = 5 * time.Second

// natsProber is a prober over a connection to NATS. Who has a subscription has a connection, which
// ends with the process: the server then says at once that nobody responds. A process that is slow, or stopped, still
// has one.
type natsProber struct {
	nc     *nats.Conn
	prefix string

	mu         sync.Mutex // guards what follows
	connection connection
	known      uint64 // reconnects that were told
}

// connection is since when a process has had its connection to NATS, as far as it has looked.
type connection struct {
	reconnects uint64
	since      time.Time // zero: it was never looked at
}

// note notes a look, and reports whether the connection has lasted for settleTime.
func (c *connection) note(reconnects uint64, connected bool, now time.Time) (settled bool) {
	if reconnects != c.reconnects || !connected || c.since.IsZero() {
		c.reconnects, c.since = reconnects, now
	}
	return now.Sub(c.since) >= settleTime
}

func newNATSProber(nc *nats.Conn, group string) *natsProber {
	return &natsProber{nc: nc, prefix: "millrace.lease." + group + "."}
}

func (p *natsProber) subject(holder string) string {
	return p.prefix + strings.Replace(holder, "/", ".", 1)
}

func (p *natsProber) answer(holder string) (end func(), err error) {
	sub, err := p.nc.Subscribe(p.subject(holder), func(m *nats.Msg) {
		// An empty message to another subject than an inbox could be a command.
		if strings.HasPrefix(m.Reply, nats.InboxPrefix) {
			_ = m.Respond(nil) // who does not hear it asks again
		}
	})
	if err != nil {
		return nil, fmt.Errorf("answer for %s: %w", holder, err)
	}
	return func() { _ = sub.Unsubscribe() }, nil // fails only where it has ended
}

func (p *natsProber) ask(ctx context.Context, holder string) presence {
	// Before each question and behind it: a connection that was made anew long ago has lasted, and one that broke
	// meanwhile has not.
	settled := p.settled()
	_, err := p.nc.RequestWithContext(ctx, p.subject(holder), nil)
	switch {
	case err == nil:
		return present
	case errors.Is(err, nats.ErrNoResponders) && p.settled() && settled:
		return absent
	}
	return unknown
}

// settled reports whether the connection has lasted for settleTime.
func (p *natsProber) settled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.connection.note(p.nc.Stats().Reconnects, p.nc.IsConnected(), time.Now())
}

func (p *natsProber) reconnected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nc.Stats().Reconnects
	was := p.known
	p.known = n
	return n != was
}
