package processors

import (
	"fmt"

	"github.com/millrace/millrace/store"
)

// RepairAttemptsMax bounds how often items that change under a repair are read and
// tried again.
const RepairAttemptsMax = 16

// RepairItem repairs one item, named as store.ItemRef prints. attempt reads the item and
// sends what makes it right; it says false if the item has changed in between, and is
// called again.
func RepairItem(name string, attempt func(ref store.ItemRef) (done bool, err error)) error {
	ref, err := store.ParseItemRef(name)
	if err != nil {
		return Reject(err)
	}
	for range RepairAttemptsMax {
		if done, err := attempt(ref); done || err != nil {
			return err
		}
	}
	return ItemChanges(1, name)
}

// ItemChanges returns the error of a repair whose items changed in each of its
// attempts, such as the one that is named. It is tried again.
func ItemChanges(items int, such string) error {
	text := fmt.Sprintf("item %s changes faster than it can be repaired", such)
	if items > 1 {
		text = fmt.Sprintf("%d items change faster than they can be repaired, such as %s", items, such)
	}
	return &store.Error{Status: store.StatusUnavailable, RetryAfter: RetryFirst, Message: text}
}

// RepairOutcome reads the answer to the repair of one item: done is false if the item
// has changed since it was read, and the error is the owner's refusal.
func RepairOutcome(ref store.ItemRef, result *store.RepairResult) (done bool, err error) {
	switch status := result.Statuses[0]; status {
	case store.StatusOK, store.StatusNotModified, store.StatusNotFound:
		return true, nil
	case store.StatusPreconditionFailed:
		return false, nil
	default:
		return false, store.Refuse(status, "item %s: %s", ref, result.Reasons[0])
	}
}
