package leases

import (
	"cmp"
	"context"
)

// use says who has used a lease: in the epochs from Since on nobody but Node has. Without a Node it says nothing.
type use struct {
	Node  string `json:"node,omitempty"`
	Since uint64 `json:"since"`
}

// usedBefore returns who has used a lease before epoch, in which it is taken.
func (r *leaseRecord) usedBefore(epoch uint64) use {
	if epoch != r.Epoch+1 {
		return use{} // the records of the holdings between the two were lost
	}
	return r.lastUse()
}

// lastUse returns who has used a lease up to its record's epoch.
func (r *leaseRecord) lastUse() use {
	if r.Used != nil {
		return *r.Used
	}
	// An earlier release wrote it. Its last holder counts as a user, and of those before nothing is known.
	return use{NodeOf(cmp.Or(r.Owner, r.Last)), r.Epoch}
}

// by returns who has used a lease when node has too, in epoch.
func (u use) by(node string, epoch uint64) *use {
	if u.Node == node {
		return &u
	}
	return &use{node, epoch}
}

// Use says that the work is about to do what only a holder of the lease may do, such as to append to a log. It must
// have returned without an error before that is done; see User. It writes the record, unless this node used the lease
// last anyway, and ends Bind. It can be called again. After an error it has said nothing, though the record may have it
// until the next renewal.
func (h *Held) Use(ctx context.Context) error {
	h.mu.Lock()
	h.uses++ // before the write: from now on every write says it
	h.bound = false
	named := h.named
	h.mu.Unlock()
	if named {
		return nil
	}
	err := h.write(ctx, func(*leaseRecord) {}) // see refresh
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.uses--
		return err
	}
	h.named = true
	return nil
}

// LeaveUnused takes back what one call of Use has said: what it announced was certainly not done, and will not be. Where
// that is not known it must not be called. Uses that are not taken back count, and without any it does nothing. After an
// error the next renewal writes it.
func (h *Held) LeaveUnused(ctx context.Context) error {
	h.mu.Lock()
	last := h.uses == 1
	h.uses = max(h.uses-1, 0)
	if last {
		h.named = h.before.Node == h.node
	}
	written := !last || h.named
	h.mu.Unlock()
	if written {
		return nil
	}
	return h.write(ctx, func(*leaseRecord) {}) // see refresh
}

// User returns the node whose work used the lease last, and since which epoch no other node's work has used it, by what
// [Held.Use] and [Held.LeaveUnused] said in each holding. node is empty where that is not known.
func (h *Held) User() (node string, since uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	u := h.userLocked()
	return u.Node, u.Since
}

// isUsed reports whether the work has said that it uses the lease.
func (h *Held) isUsed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.uses > 0
}

func (h *Held) userLocked() *use {
	if h.uses > 0 {
		return h.before.by(h.node, h.epoch)
	}
	before := h.before // records keep what they point to
	return &before
}

// Bind says whether the lease is bound: only the node that used it last can do something with it, see User. While it is
// bound this process does not give it up to balance. When it is free, that node gets it in place of all others, however
// much it has. The record says so with the next renewal, or release, and until somebody says otherwise, here or in
// another holding; [Held.Use] does too.
func (h *Held) Bind(bound bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bound = bound
}

func (h *Held) isBound() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bound
}

// noteUse sets what a record tells of the lease's use.
func (h *Held) noteUse(r *leaseRecord) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.Used, r.Bound = h.userLocked(), h.bound
}
