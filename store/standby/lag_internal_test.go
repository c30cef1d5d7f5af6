package standby

import (
	"testing"
	"time"

	"github.com/millrace/millrace/store/owner"
)

// TestACopyThatIsBehindForLongIsNotWarm goes through what a follower does that has reached its log's end, second by
// second.
func TestACopyThatIsBehindForLongIsNotWarm(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }
	tests := []struct {
		name string
		does func(l *lag)
		warm map[int]bool // by second
	}{
		{"it waits for a log that rests", func(*lag) {}, map[int]bool{0: true, 5: true, 3600: true}},
		{"it applies one commit for minutes", func(l *lag) { l.came(at(60)) }, map[int]bool{60: true, 70: true, 71: false, 600: false}},
		{"it has applied it, and waits", func(l *lag) {
			l.came(at(60))
			l.wait(41, at(300))
		}, map[int]bool{300: false, 301: true, 3600: true}},
		{"it has applied it, and more has come", func(l *lag) {
			l.came(at(60))
			l.wait(41, at(300))
			l.came(at(300))
			l.wait(42, at(300))
			l.came(at(300))
		}, map[int]bool{300: false, 301: false}},
		{"it comes to the end that the log had", func(l *lag) {
			l.came(at(60))
			l.wait(41, at(300))
			l.ask(at(300))
			l.ends(43)
			l.came(at(300))
			l.wait(42, at(302))
			l.came(at(302))
			l.wait(43, at(304))
			l.came(at(304))
		}, map[int]bool{304: true, 310: true, 311: false}},
		{"it does not come to it", func(l *lag) {
			l.came(at(60))
			l.wait(41, at(61))
			l.ask(at(61))
			l.ends(1000)
			for second := 62; second < 100; second += 2 { // each takes two seconds to come
				l.came(at(second))
				l.wait(42, at(second))
			}
		}, map[int]bool{70: true, 71: false, 100: false}},
		{"the log does not say where it ends", func(l *lag) {
			l.came(at(60))
			l.wait(41, at(60))
			l.ask(at(63))
			l.came(at(60))
		}, map[int]bool{70: true, 71: false}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := standbysOf("", nil)
			f := s.newFollower(nil, partition)
			s.followers[partition] = f
			f.lag.begin(40, at(0))
			if warm, loading := s.warmLocked(at(0)); len(warm) != 0 || len(loading) != 1 {
				t.Errorf("before it has reached the end, warm are %v", warm)
			}
			f.reached.Store(40)
			f.lag.wait(40, at(0))
			test.does(&f.lag)
			for second, want := range test.warm {
				warm, loading := s.warmLocked(at(second))
				if _, is := warm[owner.LeaseResource(partition)]; is != want || len(loading) != 1-len(warm) {
					t.Errorf("after %d seconds warm are %v, loading %d", second, warm, len(loading))
				}
			}
		})
	}
}

// TestALogIsAskedForItsEndWhereItNeverRests lets commits come at some rate for a minute.
func TestALogIsAskedForItsEndWhereItNeverRests(t *testing.T) {
	t.Parallel()
	for every, want := range map[time.Duration]int{10 * time.Millisecond: 19, 2 * time.Second: 0} {
		start := time.Now()
		var l lag
		l.begin(1, start)
		l.wait(1, start)
		asked := 0
		for passed := every; passed < time.Minute; passed += every {
			now := start.Add(passed)
			l.came(now)
			if l.due(now) {
				l.ask(now)
				l.ends(1)
				asked++
			}
			l.wait(1, now)
		}
		if asked != want {
			t.Errorf("a log with a commit every %v was asked %d times, want %d", every, asked, want)
		}
	}
}
