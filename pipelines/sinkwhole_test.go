package pipelines_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/store"
)

// TestI5_ADirectoryThatLacksAnotherWorkersFilesIsRefused: a worker with a disk of its
// own has the files of its own source partition there, whole in themselves, and none of
// another worker's.
func TestI5_ADirectoryThatLacksAnotherWorkersFilesIsRefused(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	limits := compile.SinkLimits{Roots: []string{root}}
	dir, half := filepath.Join(root, "sales"), filepath.Join(root, "half")
	n := newIdleNode(t)
	stop := n.work(t, n.client, limits)
	n.announced(t, 1)
	n.apply(t, decode(t, saleContainer))
	keys := keysOf(t, n.container(t, "sale"))
	sale := func(id string, partition int) {
		n.put(t, "sale", fmt.Sprintf(`{"id":%q,"customerId":%q}`, id, keys[partition]))
	}
	sale("a1", 0)
	n.apply(t, decode(t, saleRows(dir)))
	n.idle(t)
	if err := os.CopyFS(half, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	sale("b1", 1)
	n.idle(t)
	stop()

	// The other disk: what partition 0 has written, and nothing of partition 1.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(half, dir); err != nil {
		t.Fatal(err)
	}
	before := manifests(t, dir)
	n.work(t, n.client, limits)
	sale("a2", 0)
	n.refused(t, "not all workers see the same files there")
	if got := manifests(t, dir); got != before {
		t.Errorf("%d commits were added to the half that is there", got-before)
	}
	// Filled again, it is whole.
	if _, err := n.registry.Rewind(t.Context(), "default", "sales", registry.RewindTo{}, ""); err != nil {
		t.Fatal(err)
	}
	n.idle(t)
	if r, _ := n.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual {
		t.Errorf("after the rewind:\n%s", text(r))
	}
}

// keysOf returns a partition key value in each physical partition.
func keysOf(t testing.TB, c *store.Container) map[int]string {
	t.Helper()
	keys := map[int]string{}
	for i := 0; len(keys) < len(c.Partitions()); i++ {
		text := fmt.Sprintf("k%d", i)
		key, err := feed.NewPartitionKey(text)
		if err != nil {
			t.Fatal(err)
		}
		keys[int(c.PartitionFor(key).Number)] = text
	}
	return keys
}

// manifests counts the commits in a directory.
func manifests(t testing.TB, dir string) int {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "_manifest", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
