package query_test

import (
	"errors"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/store/query"
)

// cpuTime returns the time that this thread has computed: what others do on the machine
// does not count.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	const thread = 1 // RUSAGE_THREAD
	var used syscall.Rusage
	if err := syscall.Getrusage(thread, &used); err != nil {
		t.Skip("the time of a thread is not known:", err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// FuzzTime evaluates conditions for items that it makes long. Whatever the condition,
// it ends within twice its limit.
func FuzzTime(f *testing.F) {
	for _, condition := range heavy {
		f.Add(condition, "a", uint16(20_000))
	}
	f.Add(`CONTAINS(c.s, "x", true) AND c.e[9].a ?? 1 = SUBSTRING(c.s, 1, 2) || "b"`, `\u00e9`, uint16(65_535))
	f.Add(`STRINGTOARRAY(STRINGJOIN(STRINGSPLIT(c.s, "a"), "[")) = OBJECTTOARRAY(c.m)`, `\ud83d\ude00`, uint16(65_535))
	f.Add(`(SELECT VALUE MAX(x) FROM x IN c.e GROUP BY x) != REVERSE(REPLACE(c.s, "a", "bcd"))`, `[`, uint16(65_535))
	f.Fuzz(func(t *testing.T, condition, unit string, n uint16) {
		if strings.ContainsAny(unit, "\"\x00\n") || len(unit) > 12 {
			t.Skip("no text of an item")
		}
		item := []byte(`{"id":"1","n":1,"s":"` + strings.Repeat(unit, int(n)) + `","u":"` + unit + `","e":[` +
			strings.Repeat(`1e400,"a",{"a":[]},`, int(n)/4) + `3],"o":[` + strings.Repeat(`{"a":1},`, int(n)/4) + `{}],"m":{` + properties(int(n)/8) + `"z":1}}`)
		if query.ValueOf(item).Type() != query.Object || len(item) > 2<<20 {
			t.Skip("no item")
		}
		e, err := query.ParseExprAs(condition, "c")
		if err != nil {
			t.Skip("no condition")
		}
		const limit = 500 * time.Millisecond
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		began := cpuTime(t)
		_, err = e.Holds(item, time.Now().Add(limit))
		if took := cpuTime(t) - began; took > 2*limit {
			t.Errorf("%.200q took %s of an item of %d bytes", condition, took, len(item))
		}
		if err != nil && !errors.Is(err, query.ErrTooMuch) {
			t.Error(err)
		}
	})
}
