package processors_test

import (
	"testing"

	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// What was begun is gone on with if it is what is asked for, and not otherwise.
func TestBackfillGoesOnWithWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	open := &processors.Backfill{Number: 2, Cursor: []byte("c"), Began: 1, Total: 9, Scanned: 4}
	done := &processors.Backfill{Number: 2, Done: true, Began: 1, Scanned: 9}
	for name, c := range map[string]struct {
		number  uint32
		was     *processors.Backfill
		left    bool
		scanned int64
	}{
		"nothing is asked for":                   {0, nil, false, 0},
		"nothing is, and a checkpoint has some":  {0, open, false, 0},
		"it goes on":                             {2, open, true, 4},
		"it is done":                             {2, done, false, 9},
		"another takes its place":                {3, open, true, 0},
		"another comes after it":                 {3, done, true, 0},
		"the first, of a checkpoint without one": {1, nil, true, 0},
	} {
		f := processors.NewBackfiller(processors.BackfillRequest{Number: c.number}, (*store.Container)(nil), nil)
		f.Open(&processors.Term{}, c.was)
		var s processors.State
		f.State(&s)
		if f.Left() != c.left || c.left != (len(s.Jobs) == 1) || s.Backfill != nil && s.Backfill.Scanned != c.scanned || c.left && s.Backfill.Number != c.number {
			t.Errorf("%s: left %t, %+v, jobs %+v", name, f.Left(), s.Backfill, s.Jobs)
		}
	}
}
