package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A stop ends though the directory has gone from under the process: the engine, which
// tries for ever to write what it has in memory, is named and cut off.
func TestStop_EndsThoughTheDirectoryHasGone(t *testing.T) {
	t.Parallel()
	dir, port := filepath.Join(t.TempDir(), "data"), strconv.Itoa(freePort(t))
	node := spawn(t, "up", "--dir", dir, "--port", port, "--listen", "off", "--set", "drainTimeout=20s") // the layers above the engine have half of it
	tellOnFailure(t, node)
	server := "nats://127.0.0.1:" + port
	file := filepath.Join(t.TempDir(), "items.yaml")
	writeText(t, file, "apiVersion: millrace/v1\nkind: Container\nmetadata: {name: items}\nspec: {partitionKey: [/pk], partitions: 2}\n")
	mustRun(t, server, "apply", "-f", file)
	items := open(t, dial(t, server), "items")
	for n := range 100 {
		if _, err := items.Create(t.Context(), fmt.Appendf(nil, `{"id":"%d","pk":"%d"}`, n, n)); err != nil {
			t.Fatal(err)
		}
	}
	for { // the process may make a file meanwhile
		if err := os.RemoveAll(dir); err == nil {
			break
		}
	}
	node.stop() // fails after a minute; it was for ever
	if code := node.Cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if out := node.output(); !strings.Contains(out, "(drainTimeout) and was cut off; left were: engine") {
		t.Error("what was left is not named")
	}
}
