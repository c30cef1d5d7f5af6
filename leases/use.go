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
	switch {
	case epoch != r.Epoch+1:
		return use{} // the records of the holdings between the two were lost
	case r.Used != nil:
		return *r.Used
	}
	// An earlier release wrote it. Its last holder counts as a user, and of those before nothing is known.
	return use{nodeOf(cmp.Or(r.Owner, r.Last)), r.Epoch}
}

// by returns who has used a lease when node has too, in epoch.
func (u use) by(node string, epoch uint64) *use {
	if u.Node == node {
		return &u
	}
	return &use{node, epoch}
}

// Use says that the work is about to do what only a holder of the lease may do, such as to append to a log. It must
// have returned without an error before that is done; see User.
func (h *Held) Use(ctx context.Context) error {
	h.mu.Lock()
	h.used = true
	left := h.left
	h.mu.Unlock()
	if !left {
		return nil // taking the lease has said so
	}
	err := h.write(ctx, func(r *leaseRecord) { r.Used = h.user() })
	if err == nil {
		h.mu.Lock()
		h.left = false
		h.mu.Unlock()
	}
	return err
}

// LeaveUnused says that this holding has not been used and will not be soon, so that the record names who used the lease
// before again, whatever becomes of this process. Where Use was called it does nothing.
func (h *Held) LeaveUnused(ctx context.Context) error {
	h.mu.Lock()
	used := h.used
	h.left = h.left || !used // before it is written, since whether it was may stay unknown
	h.mu.Unlock()
	if used {
		return nil
	}
	return h.write(ctx, func(r *leaseRecord) { r.Used = h.user() })
}

// User returns the node whose work used the lease last, and since which epoch no other node's work has used it, by what
// [Held.Use] and [Held.LeaveUnused] said in each holding; one that said nothing and did not come to its end in order
// counts as used. node is empty where that is not known.
func (h *Held) User() (node string, since uint64) {
	u := h.user()
	return u.Node, u.Since
}

func (h *Held) user() *use {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.used {
		return h.before.by(h.node, h.epoch)
	}
	return &h.before
}
