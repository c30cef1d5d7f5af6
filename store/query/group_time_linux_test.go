package query_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/store/query"
)

// What is selected is compared with the keys of GROUP BY without walking through each part of it for each of
// them. These expressions differ from the keys at their innermost operand alone.
func TestLongSelectListsAreGroupedSoon(t *testing.T) {
	const most = 5 * time.Second // it takes milliseconds
	chains := func(name string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ",c.k+c.%s%d%s", name, i, strings.Repeat("+1", 250))
		}
		return b.String()[1:]
	}
	text := `SELECT VALUE [` + strings.ReplaceAll(chains("a", 40), "+c.", "+MAX(1)+c.k.") + `] FROM c GROUP BY c.k,` + chains("b", query.GroupMax-1)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := cpuTime(t)
	if _, err := query.ParseQuery(text); err != nil {
		t.Error(err)
	}
	if took := cpuTime(t) - began; took > most {
		t.Errorf("%d bytes took %s", len(text), took)
	}
}
