package integration_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/steps"
)

// commandKills runs commands and kills them at their steps.
type commandKills struct {
	stepper
	t *testing.T
	w *steps.Watcher
}

// run runs a command that is killed at a step, and tells whether it was.
func (k *commandKills) run(phase string, args ...string) (killed bool) {
	k.t.Helper()
	cmd := k.w.Command(millrace(k.t), args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	k.begin(phase)
	if err := k.w.Start(cmd); err != nil {
		k.t.Fatal(err)
	}
	_ = cmd.Wait() // its state tells
	k.end()
	if code := cmd.ProcessState.ExitCode(); code > 0 {
		k.t.Errorf("%s: exit %d\n%s", args, code, &out)
	}
	return cmd.ProcessState.ExitCode() < 0
}

// finish runs the command that was killed to its end.
func (k *commandKills) finish(args ...string) {
	k.t.Helper()
	if out, err := exec.CommandContext(k.t.Context(), millrace(k.t), args...).CombinedOutput(); err != nil {
		k.t.Fatalf("%s: %v\n%s", args, err, out)
	}
}

// TestKill_AtEveryStepOfABackupAndRestore kills a backup, and a restore of it, at each step
// that changes files. The same command goes on; the backup is whole, what was restored has
// the items of the first store and its copies, and nothing lies beside it that a restore
// which was not killed does not leave.
func TestKill_AtEveryStepOfABackupAndRestore(t *testing.T) {
	t.Parallel()
	dir, place, restored := t.TempDir(), t.TempDir(), t.TempDir()
	k := &commandKills{t: t, stepper: stepper{
		dice: rand.New(rand.NewPCG(newStepSeed(t), 0)), known: map[string]map[string]*tally{}, folders: map[string]string{place: "", restored: ""},
	}}
	k.w = steps.New(t, k.see)
	port := strconv.Itoa(freePort(t))
	server := "nats://127.0.0.1:" + port
	node := spawn(t, "up", "--dir", dir, "--port", port, "--listen", "off",
		"--set", "store.snapshots.logBytes=16384", "--set", "store.snapshots.sharePercent=100")
	files := t.TempDir()
	load := func(container string, n int, line func(i int) string) {
		t.Helper()
		var lines []string
		for i := range n {
			lines = append(lines, line(i))
		}
		writeText(t, filepath.Join(files, container), strings.Join(lines, "\n"))
		mustRun(t, server, "import", container, filepath.Join(files, container))
	}
	writeText(t, filepath.Join(files, "all.yaml"), backupShop)
	mustRun(t, server, "apply", "-f", filepath.Join(files, "all.yaml"))
	load("kinds", 9, func(i int) string { return fmt.Sprintf(`{"id":"n%d","name":"kind %d"}`, i, i) })

	create := []string{"backup", "create", place, "--server", server, "--creds", filepath.Join(dir, "credentials", "read-only.json")}
	for n := range *stepRounds {
		load("things", 200, func(i int) string {
			return fmt.Sprintf(`{"id":"i%d","k":"k%d","kind":"n%d","n":%d,"text":%q}`, i, i%50, i%9, n, strings.Repeat(strconv.Itoa(i), 40))
		})
		k.run("backup", create...)
		k.finish(create...)
		k.finish("backup", "verify", place)
		if t.Failed() {
			return
		}
	}
	mustRun(t, server, "verify")
	k.finish(create...)
	want := sortedLines(mustRun(t, server, "export", "things"))
	node.stop()
	if odd := temporaries(t, place); len(odd) > 0 {
		t.Errorf("beside the backup lie %q", odd)
	}

	var usual []string // what a restore leaves
	for n := range *stepRounds {
		to := filepath.Join(restored, "to")
		args := []string{"restore", place, "--dir", to}
		if n == 0 {
			k.finish(args...)
			usual = rolesIn(t, to)
		} else if k.killed(n, to, args...) {
			whole := false
			if n%4 == 3 {
				whole = !k.run("restore", args...)
			}
			if !whole {
				k.resume(to, args...)
			}
		}
		for _, role := range rolesIn(t, to) {
			// The server writes the next update of a stream over what it left of the last one.
			ofServer := strings.HasSuffix(role, "/meta.inf.tmp") || strings.HasSuffix(role, "/meta.sum.tmp")
			if !ofServer && !slices.Contains(usual, role) {
				t.Errorf("the restore has left %s", role)
			}
		}
		k.open(to, want)
		if err := os.RemoveAll(to); err != nil || t.Failed() {
			t.Fatalf("round %d: %v", n, err)
		}
	}
	t.Log(k.table())
}

// killed runs a restore that is to be killed, and tells whether it was. One that has ended
// before the step came for the nth time is run again: which steps come how often differs from
// one to the next. In the first round none is known, so none is chosen.
func (k *commandKills) killed(round int, to string, args ...string) bool {
	k.t.Helper()
	for range 5 {
		if k.run("restore", args...) {
			return true
		}
		if round == 1 {
			break
		}
		k.t.Logf("round %d: the restore ended before the step at which it was to be killed", round)
		if err := os.RemoveAll(to); err != nil {
			k.t.Fatal(err)
		}
	}
	if round > 1 {
		k.finish(args...)
	}
	return false
}

// resume runs a restore that was killed to its end. Nobody opens what is half restored; what
// was whole already as the kill came says so, and is not written over.
func (k *commandKills) resume(to string, args ...string) {
	k.t.Helper()
	cmd := exec.CommandContext(k.t.Context(), millrace(k.t), args...)
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(out), "not empty") {
		k.t.Fatalf("%s: %v\n%s", args, err, out)
	}
}

// open opens what was restored and compares it.
func (k *commandKills) open(to string, want []string) {
	k.t.Helper()
	port := strconv.Itoa(freePort(k.t))
	server := "nats://127.0.0.1:" + port
	up := spawn(k.t, "up", "--dir", to, "--port", port, "--listen", "off")
	if got := sortedLines(mustRun(k.t, server, "export", "things")); !slices.Equal(got, want) {
		k.t.Errorf("%d lines were exported, of %d", len(got), len(want))
	}
	poll.Until(k.t, func() error { // the pipeline begins anew when its owners are there
		out, _ := run(k.t, server, "describe", "pipeline", "kind-names")
		return poll.Unless(strings.Contains(out, "generation 2"), out)
	})
	mustRun(k.t, server, "verify")
	up.kill()
}

// rolesIn lists the roles of the files in a directory, each once.
func rolesIn(t *testing.T, dir string) []string {
	t.Helper()
	var roles []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			roles = append(roles, roleOf(strings.TrimPrefix(path, dir+"/")))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}

// temporaries lists the files in a directory that were being written, but for manifests: of
// these each backup has a name of its own, and some KiB of one that was killed stay.
func temporaries(t *testing.T, dir string) []string {
	t.Helper()
	return slices.DeleteFunc(rolesIn(t, dir), func(role string) bool {
		return !strings.HasSuffix(role, ".tmp") || strings.HasPrefix(role, "backups/")
	})
}
