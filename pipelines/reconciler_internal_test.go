package pipelines

import (
	"testing"
	"time"
)

// TestReconciler_LooksSoonBehindAChange: the rounds follow each other quickly while a pipeline is to come into force and
// something has just changed, never more than a fifth of the time goes into them, and an idle registry
// costs one round an interval.
func TestReconciler_LooksSoonBehindAChange(t *testing.T) {
	t.Parallel()
	s := newReconciler(&Supervisor{})
	for name, c := range map[string]struct {
		busy              bool
		since, took, want time.Duration
	}{
		"just changed":                      {true, 0, 0, 50 * time.Millisecond},
		"a second ago":                      {true, time.Second, 0, 250 * time.Millisecond},
		"long ago":                          {true, time.Hour, 0, time.Second},
		"rounds that take long":             {true, 0, 100 * time.Millisecond, 400 * time.Millisecond},
		"rounds that take longer than that": {true, 0, time.Minute, time.Second},
		"nothing is to come into force":     {false, 0, 0, time.Second},
	} {
		if is := s.untilNext(c.busy, c.since, c.took); is != c.want {
			t.Errorf("%s: the next round is after %s, want %s", name, is, c.want)
		}
	}
}
