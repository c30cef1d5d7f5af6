package integration_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/millrace/millrace/integration/steps"
)

// mergePipeline keeps orders in files. New orders change no row that is there, so each
// commit adds a small file, until there are so many that the next one merges them.
const mergePipeline = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: analytics}
spec:
  source: {container: customer}
  project:
    sink: {parquet: {path: FILES, commitInterval: 100ms}}
    tables:
      orders:
        where: type = "salesOrder"
        key: [id]
        columns: {id: id, customerId: customerId}
`

// mergeMoment is a step of a commit that merges files.
type mergeMoment struct {
	name    string
	call    string
	folder  string // in which its file lies, from the root of the tables
	verdict steps.Verdict
	live    bool // the merged file takes the place of the others: the manifest is made
}

var mergeMoments = []mergeMoment{
	{"the merged file is about to get its name", "renameat", "orders/data/", steps.Kill, false},
	{"the merged file has got its name", "renameat", "orders/data/", steps.KillAfter, false},
	{"the manifest is about to be made", "linkat", "_manifest/", steps.Kill, false},
	{"readers are about to be told", "linkat", "orders/_delta_log/", steps.Kill, true},
}

// mergeWatch sees the steps of a sink, knows when it merges files, and kills it at the
// moment that was chosen.
type mergeWatch struct {
	files string

	mu     sync.Mutex
	at     *mergeMoment // nil: go on
	merged []string     // the live files whose rows the file has that was written last
	err    error        // of the looks at files
}

func (m *mergeWatch) see(c steps.Call) steps.Verdict {
	name, ok := strings.CutPrefix(c.Path, m.files+"/")
	if !ok {
		return steps.Go
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.Name == "renameat" && strings.HasPrefix(name, "orders/data/") {
		// The thread that renames the file waits for the answer, and no other one
		// commits: what is newest among the temporary files is that file.
		if m.merged, m.err = m.mergedNow(); m.err != nil {
			return steps.Kill
		}
	}
	if m.at == nil || len(m.merged) < 2 || c.Name != m.at.call || !strings.HasPrefix(name, m.at.folder) {
		return steps.Go
	}
	verdict := m.at.verdict
	m.at = nil
	return verdict
}

// choose has the process be killed at a moment.
func (m *mergeWatch) choose(at *mergeMoment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at, m.merged = at, nil
}

// under returns the files that were being merged when the process was killed.
func (m *mergeWatch) under() (merged []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.merged, m.err
}

// mergedNow returns the live files of which each row is in the newest temporary file too.
func (m *mergeWatch) mergedNow() (merged []string, err error) {
	temps, err := os.ReadDir(filepath.Join(m.files, "_tmp"))
	if err != nil {
		return nil, err
	}
	var newest os.FileInfo // kills have left others
	for _, entry := range temps {
		info, err := entry.Info()
		if err != nil {
			return nil, err
		}
		if newest == nil || info.ModTime().After(newest.ModTime()) {
			newest = info
		}
	}
	if newest == nil {
		return nil, errors.New("no temporary file is there")
	}
	rows, err := orderIDs(filepath.Join(m.files, "_tmp", newest.Name()))
	if err != nil {
		return nil, err
	}
	live, err := m.live()
	if err != nil {
		return nil, err
	}
	for _, path := range live {
		ids, err := orderIDs(filepath.Join(m.files, path))
		if err != nil {
			return nil, err
		}
		if len(ids) > 0 && !slices.ContainsFunc(ids, func(id string) bool { return !inOrder(rows, id) }) {
			merged = append(merged, path)
		}
	}
	return merged, nil
}

func inOrder(ids []string, id string) bool {
	_, ok := slices.BinarySearch(ids, id)
	return ok
}

// live returns the files that the newest manifest names.
func (m *mergeWatch) live() (paths []string, err error) {
	names, err := filepath.Glob(filepath.Join(m.files, "_manifest", "*.json"))
	if err != nil || len(names) == 0 {
		return nil, err
	}
	data, err := os.ReadFile(slices.Max(names))
	if err != nil {
		return nil, err
	}
	var of struct {
		Manifest struct {
			Areas []struct {
				Tables []struct {
					Files []struct {
						Path string `json:"path"`
					} `json:"files"`
				} `json:"tables"`
			} `json:"areas"`
		} `json:"manifest"`
	}
	if err := json.Unmarshal(data, &of); err != nil {
		return nil, err
	}
	for _, area := range of.Manifest.Areas {
		for _, table := range area.Tables {
			for _, f := range table.Files {
				paths = append(paths, f.Path)
			}
		}
	}
	return paths, nil
}

// orderIDs reads the ids of the orders in a file, in their order.
func orderIDs(path string) (ids []string, err error) {
	rows, err := parquet.ReadFile[struct {
		ID string `parquet:"id"`
	}](path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	slices.Sort(ids)
	return ids, nil
}

// TestKill_MidCompaction kills at each moment of commits that merge files. Before the
// manifest is made all files that were being merged are live, afterwards none is, and
// at the end each order is in the files once.
func TestKill_MidCompaction(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	m := &mergeWatch{files: t.TempDir()}
	s := newWatchedSlaughter(t, m.files, steps.New(t, m.see))
	s.apply(strings.Replace(mergePipeline, "FILES", m.files, 1))
	done := make(chan struct{})
	var wrote []string
	var writing sync.WaitGroup
	writing.Go(func() { wrote = s.newOrders(done) })
	stop := sync.OnceFunc(func() {
		close(done)
		writing.Wait()
	})
	defer stop()
	for round := range *killRounds {
		for i := range mergeMoments {
			at := &mergeMoments[i]
			m.choose(at)
			s.killInMerge(m, at)
			if t.Failed() {
				t.Fatalf("round %d: %s", round, at.name)
			}
			s.node.start()
		}
	}
	stop()
	s.equal()
	tables, err := deltaFiles(filepath.Join(m.files, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range tables {
		ids, err := orderIDs(path)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, ids...)
	}
	slices.Sort(found)
	slices.Sort(wrote)
	if !slices.Equal(found, wrote) {
		t.Errorf("the files have %d orders, %d were written", len(found), len(wrote))
	}
}

// newOrders writes one new order after the other until done is closed, and returns the ids.
func (s *slaughter) newOrders(done <-chan struct{}) (wrote []string) {
	for {
		select {
		case <-done:
			return wrote
		default:
		}
		o := everyOrder{ID: fmt.Sprintf("o%06d", len(wrote)), CustomerID: fmt.Sprint("u", len(wrote)%everyCustomers), Type: "salesOrder"}
		if err := insist(s.t, func(ctx context.Context) error { return put(ctx, s.customer, o) }); err != nil {
			s.t.Error(err)
			return wrote
		}
		wrote = append(wrote, o.ID)
	}
}

// killInMerge waits until the process was killed at a moment of a merge, and checks what it
// has left.
func (s *slaughter) killInMerge(m *mergeWatch, at *mergeMoment) {
	s.t.Helper()
	select {
	case <-s.node.Ended:
	case <-time.After(mergePatience): // no event tells that none comes
		s.t.Error("no files were merged")
		return
	}
	s.node.kill() // it has ended; what it has left is whole
	merged, err := m.under()
	live, listed := m.live()
	if err := cmp.Or(err, listed); err != nil {
		s.t.Error(err)
		return
	}
	still := 0
	for _, path := range merged {
		if slices.Contains(live, path) {
			still++
		}
	}
	want := len(merged)
	if at.live {
		want = 0
	}
	if len(merged) < 2 || still != want {
		s.t.Errorf("%d files were being merged, %d of them are live, want %d", len(merged), still, want)
	}
	s.t.Logf("%s: %d files were being merged, %d are live", at.name, len(merged), len(live))
}

// mergePatience is for how long files to merge are waited for.
const mergePatience = 10 * time.Minute
