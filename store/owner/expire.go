package owner

import (
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
)

// expiryMax bounds the expiries of one round.
const expiryMax = 1000

// expiryPause is when an expired item that no commit takes is tried again: what rules make of
// its delete shrinks only when somebody writes its targets.
const expiryPause = 10 * time.Minute

// expire decides the deletes of items whose time has passed.
func (d *decider) expire() {
	if d.schema.engine.DefaultTTL == nil || d.p.refusing() != nil {
		return
	}
	v := d.view()
	refs, err := d.expired(v)
	if err != nil {
		d.p.log.Error("look for expired items", "partition", d.p.id.String(), "error", err)
		return
	}
	// What rules add to the deletes of all of them may be too much for one commit. Then half
	// of them are tried; the rest follows in the next round.
	for n := len(refs); n > 0; n /= 2 {
		t, refusal := d.expireSome(v, refs[:n])
		switch {
		case refusal == nil && len(t.changes) == 0:
			return
		case refusal == nil && d.draft.fits(t):
			d.draft.add(t, nil)
			return
		case refusal == nil && !d.draft.empty():
			return // it leaves first
		case n == 1:
			d.stay(refs[0], t, refusal)
		}
	}
}

// expired returns the items whose time has passed, earliest first, without those of which it
// is known that no commit takes their deletes.
func (d *decider) expired(v *view) ([]engine.ItemRef, error) {
	// The earliest come first, so these few would be before all others in every round:
	//
	//	o1 (its four customers are 8 MB)  o2  o3    halved: o1 o2, then o1 alone, which does not fit
	//	the next round, without o1                  o2 o3
	refs, err := v.snap.Expired(v.now, expiryMax+len(d.stays))
	if err != nil || len(d.stays) == 0 {
		return refs, err
	}
	now, still := d.p.now(), map[string]int64{}
	refs = slices.DeleteFunc(refs, func(ref engine.ItemRef) bool {
		key := string(engine.ItemKey(ref.Key, ref.ID))
		again, stays := d.stays[key]
		if stays {
			still[key] = again
		}
		return stays && now < again
	})
	d.stays = still // without those that are gone
	return refs[:min(len(refs), expiryMax)], nil
}

// stay lets an expired item be whose delete cannot be part of any commit now.
func (d *decider) stay(ref engine.ItemRef, t *txn, refusal *store.Error) {
	key := string(engine.ItemKey(ref.Key, ref.ID))
	if _, told := d.stays[key]; !told {
		reason := "with what rules make of its delete it does not fit into a commit"
		if refusal != nil {
			reason = refusal.Message
		}
		d.p.log.Error("an expired item stays for now; others go", "item", store.ItemRef{Key: ref.Key, ID: ref.ID}.String(),
			"reason", reason, "bytes", t.bytes)
	}
	if d.stays == nil {
		d.stays = map[string]int64{}
	}
	d.stays[key] = d.p.now() + expiryPause.Milliseconds()
}

// expireSome decides the deletes of some items.
func (d *decider) expireSome(v *view, refs []engine.ItemRef) (*txn, *store.Error) {
	t := newTxn(v, d.draft)
	for _, ref := range refs {
		itemKey := engine.ItemKey(ref.Key, ref.ID)
		item, err := t.get(ref.Key, ref.ID, itemKey)
		if err == nil && item != nil && expired(item, v.now) {
			t.remove(itemKey, item, feed.OpExpire)
		}
		if t.bytes > pageBytesMax {
			break
		}
	}
	return t, d.applyRules(t)
}
