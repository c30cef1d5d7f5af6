package leases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/leases/bucket"
)

const (
	// drainMax is how many leases a node that drains has on the way to others at a time: what is on the way is served by
	// nobody for a moment.
	drainMax = 4
	// drainWait is how long a lease counts as on the way whose next holder has not used it yet, as while it loads what
	// it needs. One that can do nothing with it must not end the drain.
	drainWait = 10 * time.Minute
)

// drainRecord is the value of a drain's key. That the key is there is what counts; the rest is for people.
type drainRecord struct {
	Version int    `json:"v"`
	By      string `json:"by,omitempty"`
	At      int64  `json:"at"` // unix ms
}

// Drain asks the processes of a node, in all groups of the bucket, to give up what others would take, and to take only
// what nobody else does. They go on running. The wish lasts until [Undrain], also for later processes of the node. by
// says who wishes it, for people. It reports whether the node was not to drain before.
func Drain(ctx context.Context, js jetstream.JetStream, name, node, by string) (changed bool, err error) {
	b, err := bucket.Lookup(ctx, js, cmp.Or(name, DefaultBucket))
	if err != nil {
		return false, err
	}
	return drain(ctx, b, node, by)
}

func drain(ctx context.Context, s bucket.Store, node, by string) (changed bool, err error) {
	_, err = s.Put(ctx, drainKey(node), encode(&drainRecord{Version: recordVersion, By: by, At: time.Now().UnixMilli()}), 0)
	if errors.Is(err, bucket.ErrMismatch) {
		return false, nil // it is there
	}
	return err == nil, err
}

// Undrain takes back what [Drain] asks. It reports whether the node was to drain.
func Undrain(ctx context.Context, js jetstream.JetStream, name, node string) (changed bool, err error) {
	b, err := bucket.Lookup(ctx, js, cmp.Or(name, DefaultBucket))
	if err != nil {
		return false, err
	}
	return undrain(ctx, b, node)
}

func undrain(ctx context.Context, s store, node string) (changed bool, err error) {
	e, err := s.Get(ctx, drainKey(node))
	if errors.Is(err, bucket.ErrNotFound) || err == nil && e.Deleted {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// Conditional, so that a wish which is newer than what was read stays. Where another has removed it, it is done.
	err = s.Delete(ctx, drainKey(node), e.Revision)
	if errors.Is(err, bucket.ErrMismatch) {
		return false, fmt.Errorf("the wish that node %s drains was changed meanwhile: %w", node, err)
	}
	return err == nil, err
}

// drainNodes returns the nodes that are to drain.
func drainNodes(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue) (map[string]bool, error) {
	entries, err := bucket.Entries(ctx, js, kv, drainPrefix+">")
	if err != nil {
		return nil, fmt.Errorf("list the nodes that drain in %s: %w", kv.Bucket(), err)
	}
	nodes := make(map[string]bool, len(entries))
	for _, e := range entries {
		nodes[unescape(strings.TrimPrefix(e.Key(), drainPrefix))] = true
	}
	return nodes, nil
}

// applyDrain notes whether a node is to drain, and reports whether that is new.
func (v *view) applyDrain(node string, drains bool) bool {
	if v.drains[node] == drains {
		return false
	}
	if drains {
		v.drains[node] = true
	} else {
		delete(v.drains, node)
	}
	return true
}

// drains reports whether this node is to drain.
func (l *loop) drains() bool { return l.view.drains[l.cfg.Node] }

// noteDrain tells in the log when the node begins to drain, and when that is over.
func (l *loop) noteDrain() {
	if drains := l.drains(); drains != l.drained {
		l.drained = drains
		if drains {
			l.log.Info("this node drains: it gives up what others take, and takes only what nobody else does", "leases", len(l.local))
			return
		}
		l.log.Info("this node drains no more, and takes leases again")
	}
}

// giveUp ends the work under leases that other members are to have. leases are all, as the plan saw them.
func (l *loop) giveUp(resources []string, leases []Lease) {
	why, room := "lease given up to balance", len(resources)
	drains := l.drains()
	if drains {
		why, room = "lease given up because the node drains", drainMax-l.onTheWay(leases)
	}
	for _, resource := range resources {
		// Bound perhaps since its last renewal, of which the plan does not know. Ending already since the last round.
		task := l.local[resource]
		if room <= 0 || task == nil || task.held == nil || task.held.isBound() || task.held.ctx.Err() != nil {
			continue
		}
		room--
		l.log.Info(why, "resource", resource, "epoch", task.held.epoch)
		if drains && task.held.isUsed() {
			l.given[resource] = l.clock()
		}
		task.held.endWork(ErrMoved)
	}
}

// onTheWay counts the leases that this node is giving up, or has given up and nobody serves yet:
//
//	this node gives it up    nobody has it    b has it, and loads    b uses it
//	├──────────────────── on the way ─────────────────────────────┤
//
// Whether b uses a lease is known where this node's work said that it did (Use). So a node that has forty partitions of
// which there are no copies does not let the others load all forty at once.
func (l *loop) onTheWay(leases []Lease) int {
	n, now := 0, l.clock()
	for i := range leases {
		lease := &leases[i]
		task := l.local[lease.Resource]
		works := task != nil && task.held != nil && task.held.ctx.Err() == nil
		switch {
		case works:
			delete(l.given, lease.Resource) // it came back
		// The watch shows a release a moment after the work has ended.
		case lease.Owner == l.Holder(), lease.Owner == "" && NodeOf(lease.Last) == l.cfg.Node, l.waitsForUse(lease, now):
			n++
		}
	}
	return n
}

// waitsForUse reports whether this node gave a lease up, and whoever has it now has not used it yet.
func (l *loop) waitsForUse(lease *Lease, now time.Duration) bool {
	since, given := l.given[lease.Resource]
	if !given {
		return false
	}
	// A work that has failed there waits for its next try, and a bound lease comes back: others need not wait for either.
	seen := l.view.leases[lease.Resource]
	waits := now-since < drainWait && lease.User == l.cfg.Node && !lease.Bound && seen != nil && seen.rec != nil && seen.rec.Attempts == 0
	if !waits {
		delete(l.given, lease.Resource)
	}
	return waits
}

// forgetDrain removes the wish that this node drains, if it ends with the process.
func (l *loop) forgetDrain(ctx context.Context) {
	if l.cfg.NodeLocked || !l.drains() {
		return
	}
	if _, err := undrain(ctx, l.store, l.cfg.Node); err != nil {
		l.log.Debug("the wish that this node drains was not removed", "error", err)
	}
}
