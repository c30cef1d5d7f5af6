package engine_test

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store/engine"
)

// residentTables returns how many KiB of tables below dir the process has in memory.
func residentTables(t *testing.T, dir string) int {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	must(t, err)
	defer func() { must(t, f.Close()) }()
	sum, ours := 0, false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if head, _, _ := strings.Cut(line, " "); !strings.HasSuffix(head, ":") {
			ours = strings.Contains(line, dir) && strings.HasSuffix(line, ".sst")
		}
		var kib int
		if _, err := fmt.Sscanf(line, "Rss: %d kB", &kib); err == nil && ours {
			sum += kib
		}
	}
	return sum
}

// TestTrim_TablesLeaveTheMemoryAndStayReadable reads all of some tables, which brings
// them into the memory of the process, takes them out of it, and reads them again.
func TestTrim_TablesLeaveTheMemoryAndStayReadable(t *testing.T) {
	dir := t.TempDir()
	db := openDB(t, dir)
	p := openPartition(t, db, partA)
	const items = 12_000
	putKiB(t, p, 0, items)
	poll.Until(t, func() error { // what is in memory becomes a table beside the commits
		return poll.Unless(engine.Levels(db)[0] > 0, "there is no table yet")
	})
	read := func() {
		t.Helper()
		s := p.Snapshot()
		defer s.Close()
		n := 0
		for v, err := range s.Items(nil, nil) {
			must(t, err)
			if len(v.Body) < 1000 {
				t.Fatalf("an item has %d bytes", len(v.Body))
			}
			n++
		}
		if n != items {
			t.Errorf("%d items are read, %d were put", n, items)
		}
	}
	read()
	before := residentTables(t, dir)
	must(t, db.Trim())
	after := residentTables(t, dir)
	if before < 8<<10 || after > before/8 {
		t.Errorf("%d KiB of tables are resident, %d after Trim", before, after)
	}
	read()
}

// TestTrim_BesideMergesAndReads trims all the time while tables come and go.
func TestTrim_BesideMergesAndReads(t *testing.T) {
	db := openDB(t, t.TempDir())
	p, q := openPartition(t, db, partA), openPartition(t, db, partB)
	stop := make(chan struct{})
	var beside sync.WaitGroup
	again := func(f func()) {
		beside.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	putKiB(t, q, 0, 1000)
	again(func() {
		if err := db.Trim(); err != nil {
			t.Error(err)
		}
	})
	again(func() {
		s := q.Snapshot()
		defer s.Close()
		n := 0
		for _, err := range s.Items(nil, nil) {
			if err != nil {
				t.Error(err)
			}
			n++
		}
		if n != 1000 {
			t.Errorf("%d items, want 1000", n)
		}
	})
	for round := range 4 {
		putKiB(t, p, round*3000, 3000)
		must(t, engine.Flatten(db))
	}
	close(stop)
	beside.Wait()
	if err := db.Verify(); err != nil {
		t.Error(err)
	}
}

// putKiB puts n items of 1 KiB.
func putKiB(t *testing.T, p *engine.Partition, first, n int) {
	t.Helper()
	batch := p.NewBatch(schemaOf(t))
	for i := first; i < first+n; i++ {
		must(t, batch.Put(item(key(t, i%100), fmt.Sprintf("item-%08d", i), fmt.Sprintf(`{"n":%d,"text":%q}`, i, strings.Repeat("x", 1000))), nil))
		if i%500 == 499 {
			must(t, batch.Commit())
		}
	}
	must(t, batch.Commit())
}
