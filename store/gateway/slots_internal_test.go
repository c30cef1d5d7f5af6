package gateway

import (
	"testing"
	"time"
)

// An answer that has room only if others are cut off cuts off those that have stalled, and none of them if it has none
// even then.
func TestHold_CutsNobodyOffForNothing(t *testing.T) {
	const most, bytes = 10 * answerPiece, 4 * answerPiece
	for name, tc := range map[string]struct {
		moving, stalled int  // pieces that others hold
		must            bool // of what has happened already
		holds, cut      bool
	}{
		"there is room":                  {moving: 2, stalled: 4, holds: true},
		"a stalled one makes room":       {moving: 4, stalled: 4, holds: true, cut: true},
		"a stalled one makes too little": {moving: 8, stalled: 1},
		"it must be sent":                {moving: 8, stalled: 1, must: true, holds: true, cut: true},
		"all others have stalled":        {stalled: 9, holds: true, cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSlots(8, most)
			cut := false
			take := func(pieces int) *slot {
				sl := s.take(t.Context(), func() { cut = true })
				if !sl.hold(t.Context(), pieces*answerPiece, false) {
					t.Fatalf("%d pieces have no room", pieces)
				}
				return sl
			}
			if tc.stalled > 0 {
				sl := take(tc.stalled)
				sl.await()
				sl.since = time.Now().Add(-time.Hour)
			}
			if tc.moving > 0 {
				sl := take(tc.moving)
				sl.await()
				sl.since = time.Now().Add(time.Hour)
			}
			sl := s.take(t.Context(), func() {})
			if got := sl.hold(t.Context(), bytes, tc.must); got != tc.holds || cut != tc.cut {
				t.Errorf("it has room: %t, want %t; another was cut off: %t, want %t", got, tc.holds, cut, tc.cut)
			}
		})
	}
}
