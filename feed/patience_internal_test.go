package feed

import (
	"testing"
	"time"
)

func TestPatience_FollowsWhatAnswersTake(t *testing.T) {
	t.Parallel()
	const most = 2 * time.Second
	took := func(each ...time.Duration) (p patience) {
		for range 100 {
			for _, d := range each {
				p.note(d)
			}
		}
		return p
	}
	for _, tt := range []struct {
		name     string
		p        patience
		bytes    int
		min, max time.Duration
	}{
		{name: "nothing is known", min: patienceMin, max: patienceMin},
		{name: "a large commit", bytes: 8 << 20, min: patienceMin + time.Second, max: patienceMin + time.Second},
		{name: "a quick disk", p: took(time.Millisecond), min: patienceMin, max: patienceMin},
		{name: "a slow disk", p: took(500 * time.Millisecond), min: 500 * time.Millisecond, max: 600 * time.Millisecond},
		{name: "a disk that is slow now and then", p: took(10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond, 200*time.Millisecond), min: 250 * time.Millisecond, max: 500 * time.Millisecond},
		{name: "one slower than a try may be", p: took(time.Minute), min: most, max: most},
	} {
		if got := tt.p.first(tt.bytes, most); got < tt.min || got > tt.max {
			t.Errorf("%s: a first try waits %s, want %s to %s", tt.name, got, tt.min, tt.max)
		}
	}
	p := took(500 * time.Millisecond)
	for range 100 {
		p.note(time.Millisecond)
	}
	if got := p.first(0, most); got != patienceMin {
		t.Errorf("a disk that is quick again: a first try waits %s, want %s", got, patienceMin)
	}
}
