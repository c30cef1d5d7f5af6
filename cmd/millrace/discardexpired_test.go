package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/poll"
)

// TestDiscardExpired_IsAskedFor by apply and by rewind, where the log was trimmed that knew the
// items that have expired: without the flag nothing begins, and with it what begins is told.
func TestDiscardExpired_IsAskedFor(t *testing.T) {
	server := up(t, "--set", "store.trimBytes=1", "--set", "store.checkInterval=50ms", "--set", "store.syncInterval=50ms",
		"--set", "store.snapshots.logBytes=1", "--set", "store.snapshots.rest=50ms", "--set", "store.snapshots.sharePercent=100")
	dir := t.TempDir()
	declare := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	mustRun(t, "", "apply", server, "-f", declare("container.yaml", `{apiVersion: millrace/v1, kind: Container, metadata: {name: orders},
  spec: {partitionKey: [/k], partitions: 1, ttl: 1h, changeFeed: {retention: 0s}}}`))
	var items strings.Builder
	for i := range 20 {
		fmt.Fprintf(&items, `{"id":"o%d","k":"k","total":%d}`+"\n", i, i)
	}
	mustRun(t, items.String(), "import", server, "orders", "-")
	poll.Until(t, func() error {
		mustRun(t, `{"id":"o0","k":"k"}`, "import", server, "orders", "-") // so that there is something to trim behind a snapshot
		out := mustRun(t, "", "describe", server, "container", "orders")
		return poll.Unless(strings.Contains(out, "trimmed up to LSN") && !strings.Contains(out, "trimmed up to LSN 0;"), out)
	})
	file := declare("rows.yaml", `{apiVersion: millrace/v1, kind: Pipeline, metadata: {name: order-rows}, spec: {source: {container: orders},
  project: {sink: {parquet: {path: rows}}, tables: {orders: {key: [id], columns: {id: id, total: total}}}}}}`)
	apply := []string{"apply", server, "-f", file}
	rewind := []string{"rewind", server, "order-rows", "--to", "beginning"}
	for _, args := range [][]string{apply, rewind} {
		if _, errs, code := command(t, "", args...); code == codeOK || !strings.Contains(errs, "--discard-expired") {
			t.Errorf("%s: exit %d, %s", args[0], code, errs)
		}
		if out := mustRun(t, "", append(args, "--discard-expired")...); !strings.Contains(out, "order-rows") {
			t.Errorf("%s: %s", args[0], out)
		}
	}
	if _, errs, code := command(t, "", "rewind", server, "order-rows", "--to", "now", "--discard-expired"); code != codeNotAsked || !strings.Contains(errs, "--to beginning") {
		t.Errorf("rewind to now: exit %d, %s", code, errs)
	}
}
