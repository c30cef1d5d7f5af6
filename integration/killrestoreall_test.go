package integration_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/integration/steps"
)

var stepsAll = flag.Bool("steps.all", false, "kill a restore at each call that changes a file, one after the other")

// countdown kills a process at its nth call that changes a file of a directory; 0 is none.
type countdown struct {
	dir   string
	after bool // the call is made all the same

	mu   sync.Mutex
	nth  int
	seen int
	at   string // where it was killed
}

func (c *countdown) see(call steps.Call) steps.Verdict {
	if call.Path != c.dir && !strings.HasPrefix(call.Path, c.dir+"/") {
		return steps.Go
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen++; c.seen != c.nth {
		return steps.Go
	}
	c.at = call.Name + " " + roleOf(strings.TrimPrefix(call.Path, c.dir))
	if c.after {
		return steps.KillAfter
	}
	return steps.Kill
}

// calls is how many calls were seen.
func (c *countdown) calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

// killedAt is the call at which the process was killed; "" if it was not.
func (c *countdown) killedAt() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// restoreKilledAt restores, kills that at its nth call, and tells of the calls and of the last.
func restoreKilledAt(t *testing.T, place, to string, nth int, after bool) *countdown {
	t.Helper()
	c := &countdown{dir: to, nth: nth, after: after}
	w := steps.New(t, c.see)
	w.Writes = true
	cmd := w.Command(millrace(t), "restore", place, "--dir", to)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := w.Start(cmd); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its state tells
	if code := cmd.ProcessState.ExitCode(); code > 0 && !strings.Contains(out.String(), "not empty") {
		t.Errorf("restore: exit %d\n%s", code, &out)
	}
	return c
}

// TestKill_AtEveryStepOfARestoreInTurn kills a restore at its nth call that changes a file:
// creates, writes, syncs, renames or removes it. With -steps.all each n has its turn, otherwise
// some do. Every third one that goes on is killed as well. The same command goes on or
// says that the store is whole already, and then has the items and copies of the backup.
func TestKill_AtEveryStepOfARestoreInTurn(t *testing.T) {
	t.Parallel()
	seed := newStepSeed(t)
	dice := rand.New(rand.NewPCG(seed, 1))
	place, want := smallBackup(t)
	to := filepath.Join(t.TempDir(), "to")
	k := &commandKills{t: t}
	all := restoreKilledAt(t, place, to, 0, false).calls()
	compare := func() {
		k.open(to, want)
		if err := os.RemoveAll(to); err != nil || t.Failed() {
			t.Fatal(err)
		}
	}
	compare()
	stride := 1
	if !*stepsAll {
		stride = max(all / *stepRounds, 1)
	}
	kills := 0
	for n := 1 + dice.IntN(stride); n <= all; n += stride {
		c := restoreKilledAt(t, place, to, n, dice.IntN(2) == 0)
		if c.killedAt() != "" {
			kills++
		}
		t.Logf("%d of %d: %s", n, all, c.killedAt())
		if kills%3 == 2 {
			again := restoreKilledAt(t, place, to, 1+dice.IntN(all), false)
			t.Logf("again: %s", again.killedAt())
		}
		k.resume(to, "restore", place, "--dir", to)
		compare()
	}
	t.Logf("%d kills at %d calls", kills, all)
}

// smallBackup makes a store with a pipeline, and a backup of it. It returns where that is, and
// what the store exports.
func smallBackup(t *testing.T) (place string, want []string) {
	t.Helper()
	dir, files := t.TempDir(), t.TempDir()
	place = t.TempDir()
	port := strconv.Itoa(freePort(t))
	server := "nats://127.0.0.1:" + port
	node := spawn(t, "up", "--dir", dir, "--port", port, "--listen", "off")
	writeText(t, filepath.Join(files, "all.yaml"), strings.Replace(backupShop, "partitions: 6", "partitions: 2", 1))
	mustRun(t, server, "apply", "-f", filepath.Join(files, "all.yaml"))
	var kinds, things []string
	for i := range 9 {
		kinds = append(kinds, fmt.Sprintf(`{"id":"n%d","name":"kind %d"}`, i, i))
	}
	for i := range 200 {
		things = append(things, fmt.Sprintf(`{"id":"i%d","k":"k%d","kind":"n%d","text":%q}`, i, i%50, i%9, strings.Repeat(strconv.Itoa(i), 40)))
	}
	for name, lines := range map[string][]string{"kinds": kinds, "things": things} {
		writeText(t, filepath.Join(files, name), strings.Join(lines, "\n"))
		mustRun(t, server, "import", name, filepath.Join(files, name))
	}
	mustRun(t, server, "verify")
	mustRun(t, server, "backup", "create", place, "--creds", filepath.Join(dir, "credentials", "read-only.json"))
	want = sortedLines(mustRun(t, server, "export", "things"))
	node.stop()
	return place, want
}
