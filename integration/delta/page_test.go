package delta_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/tables"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
)

// TestPage_Analytics runs the blocks of Python on docs/analytics.md beside tables of the
// names that they read.
func TestPage_Analytics(t *testing.T) {
	b := newBench(t, &project.Schema{Pipeline: "analytics", Generation: 1, Tables: []project.TableSchema{
		{Name: "orders", Key: []int{0}, PartitionBy: -1, Columns: []project.ColumnSchema{tables.Column("id", "string"), tables.Column("customerId", "string")}},
		{Name: "orderItems", Key: []int{0, 1}, PartitionBy: -1, Columns: []project.ColumnSchema{
			tables.Column("orderId", "string"), tables.Column("line", "int64"), tables.Column("sku", "string"), tables.Column("price", "decimal(12,4)"), tables.Column("quantity", "int64"),
		}},
	}}, parquetsink.Config{})
	head := []project.Value{project.TextOf("order-1"), project.TextOf("Ann")}
	line := []project.Value{project.TextOf("order-1"), project.IntOf(0), project.TextOf("BK-7"), project.SmallDecimalOf(25_000, 4), project.IntOf(3)}
	b.Commit(project.Batch{Put: []project.Row{
		{Key: head[:1:1], Values: head, Source: "s"}, {Table: 1, Key: line[:2:2], Values: line, Source: "s", Element: "0"},
	}})
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "analytics.md"))
	b.Must(err)
	// What each block must print, in the order of the page.
	want := []string{"order-1", "BK-7", "7.5000", ""}
	blocks := strings.Split(string(page), "```python\n")[1:]
	if len(blocks) != len(want) {
		t.Fatalf("the page has %d blocks of Python, want %d", len(blocks), len(want))
	}
	for i, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		t.Run(fmt.Sprint("block ", i+1), func(t *testing.T) {
			// Threads of delta-rs may still run when the block ends, and abort the
			// interpreter while it takes itself down.
			cmd := exec.CommandContext(t.Context(), python(t), "-c", block+"\nimport os, sys\nsys.stdout.flush()\nos._exit(0)")
			cmd.Dir = filepath.Dir(b.Dir)
			out, err := cmd.CombinedOutput()
			switch {
			case err != nil && strings.Contains(string(out), "ModuleNotFoundError"):
				t.Skipf("this interpreter lacks what it imports (pip install -r integration/delta/requirements.txt): %s", out)
			case err != nil || !strings.Contains(string(out), want[i]):
				t.Errorf("%s\n%v: %s", block, err, out)
			}
		})
	}
}
