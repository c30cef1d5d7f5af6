package integration_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
)

const backupShop = `apiVersion: millrace/v1
kind: Container
metadata: {name: things}
spec: {partitionKey: [/k], partitions: 6, indexes: [/kind]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: kinds}
spec: {partitionKey: [/id]}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: kind-names}
spec:
  source: {container: kinds}
  cascade:
    into: things
    match: {kind: id}
    set: {kindName: name}
`

// killWhen runs a command and kills it as soon as seen counts n things in a directory. It
// returns false if the command came to its end before, and then what it said.
func killWhen(t *testing.T, dir string, seen func(path string, d fs.DirEntry) bool, n int, args ...string) (killed bool, output string, exit int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), millrace(t), args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // its exit code tells how
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended: //nolint:errcheck // the exit code tells the same
			return false, out.String(), cmd.ProcessState.ExitCode()
		case <-tick.C:
		}
		count := 0
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // what goes meanwhile is not counted
			if err == nil && seen(path, d) {
				count++
			}
			return nil
		})
		if count >= n {
			_ = cmd.Process.Kill() // it may have ended
			err := <-ended
			_, failed := errors.AsType[*exec.ExitError](err)
			return failed, out.String(), cmd.ProcessState.ExitCode()
		}
	}
}

// TestBackup_KilledAtAnyMomentGoesOn kills a backup, and then a restore of it, as soon as
// there is one object or stream more than the last time. Nothing half counts, the same
// command goes on, and the store that comes of it has the items of the first.
func TestBackup_KilledAtAnyMomentGoesOn(t *testing.T) {
	t.Parallel()
	dir, place, to := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "restored")
	port := strconv.Itoa(freePort(t))
	server := "nats://127.0.0.1:" + port
	node := spawn(t, "up", "--dir", dir, "--port", port, "--listen", "off")
	var lines, kinds []string
	for i := range 2000 {
		lines = append(lines, fmt.Sprintf(`{"id":"i%d","k":"k%d","kind":"n%d","text":%q}`, i, i%50, i%9, strings.Repeat(strconv.Itoa(i), 20)))
	}
	for i := range 9 {
		kinds = append(kinds, fmt.Sprintf(`{"id":"n%d","name":"kind %d"}`, i, i))
	}
	files := t.TempDir()
	for name, text := range map[string]string{"all.yaml": backupShop, "items": strings.Join(lines, "\n"), "kinds": strings.Join(kinds, "\n")} {
		writeText(t, filepath.Join(files, name), text)
	}
	mustRun(t, server, "apply", "-f", filepath.Join(files, "all.yaml"))
	mustRun(t, server, "import", "things", filepath.Join(files, "items"))
	mustRun(t, server, "import", "kinds", filepath.Join(files, "kinds"))
	mustRun(t, server, "verify") // the copies are there

	object := func(path string, d fs.DirEntry) bool {
		return !d.IsDir() && strings.Contains(path, "/log/") && !strings.HasSuffix(path, ".tmp")
	}
	login := []string{"--server", server, "--creds", filepath.Join(dir, "credentials", "read-only.json")}
	kills := 0
	for n := 1; ; n++ {
		killed, out, exit := killWhen(t, place, object, n, append([]string{"backup", "create", place}, login...)...)
		if !killed && exit == 0 {
			break
		}
		if !killed {
			t.Fatalf("the backup ended with %d:\n%s", exit, out)
		}
		kills++
		if manifests, _ := filepath.Glob(filepath.Join(place, "backups", "*.json")); len(manifests) == 0 {
			continue
		}
		break // it was whole as the kill came
	}
	mustRun(t, server, "backup", "create", place)
	if out, err := exec.CommandContext(t.Context(), millrace(t), "backup", "verify", place).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	verifiesNothing(t, place)
	want := mustRun(t, server, "export", "things")
	node.kill()

	stream := func(path string, d fs.DirEntry) bool { return d.IsDir() && strings.HasPrefix(d.Name(), "MILLRACE_") }
	for n := 1; ; n++ {
		killed, out, exit := killWhen(t, to, stream, n, "restore", place, "--dir", to)
		if !killed && exit == 0 {
			if !strings.Contains(out, "pipeline default/kind-names begins generation 2") {
				t.Errorf("the restore says:\n%s", out)
			}
			break
		}
		if !killed {
			t.Fatalf("the restore ended with %d:\n%s", exit, out)
		}
		kills++
		if n == 3 { // nobody opens what is half restored
			cmd := exec.CommandContext(t.Context(), millrace(t), "up", "--dir", to, "--port", "-1", "--listen", "off", "--gateway", "off")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "has not ended") {
				t.Errorf("up opens what is half restored: %v\n%s", err, out)
			}
		}
	}
	t.Logf("%d kills", kills)
	if kills < 6 {
		t.Errorf("%d kills are too few to say much", kills)
	}
	second := strconv.Itoa(freePort(t))
	spawn(t, "up", "--dir", to, "--port", second, "--listen", "off")
	got := mustRun(t, "nats://127.0.0.1:"+second, "export", "things")
	if a, b := sortedLines(want), sortedLines(got); !slices.Equal(a, b) {
		t.Errorf("%d lines were exported, of %d", len(b), len(a))
	}
	// The pipeline begins anew when its owners are there.
	poll.Until(t, func() error {
		out, _ := run(t, "nats://127.0.0.1:"+second, "describe", "pipeline", "kind-names")
		return poll.Unless(strings.Contains(out, "generation 2"), out)
	})
	mustRun(t, "nats://127.0.0.1:"+second, "verify")
	if out, exit := run(t, "nats://127.0.0.1:"+second, "backup", "create", place); exit != 2 || !strings.Contains(out, "another store") {
		t.Errorf("a backup beside those of another store: exit %d\n%s", exit, out)
	}
	if _, err := os.Stat(filepath.Join(place, "backups")); err != nil {
		t.Error(err)
	}
}

func sortedLines(text string) []string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(all)
	return all
}

// verifiesNothing asks that a place whose backups are gone is no good news: the objects of
// its logs are whole, and there is nothing to restore.
func verifiesNothing(t *testing.T, place string) {
	t.Helper()
	backups := filepath.Join(place, "backups")
	if err := os.Rename(backups, backups+".away"); err != nil {
		t.Fatal(err)
	}
	out, errs, exit := command(t, "", nil, "backup", "verify", place)
	if exit != 1 || !strings.Contains(out, "there is nothing to restore") {
		t.Errorf("exit %d of a place without backups\n%s%s", exit, out, errs)
	}
	if err := os.Rename(backups+".away", backups); err != nil {
		t.Fatal(err)
	}
}
