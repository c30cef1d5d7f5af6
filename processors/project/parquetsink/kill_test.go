package parquetsink_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/processors/project/sinktest"
)

// killEnv makes the test binary the process that is killed.
const killEnv = "MILLRACE_PARQUETSINK_KILLED"

// killConfig commits small files, so that some are merged in each commit.
func killConfig() parquetsink.Config {
	cfg := quick()
	cfg.FileRowsMax, cfg.Grace = 2000, time.Millisecond
	return cfg
}

// killedRows are the rows of a batch: new ones, and one that every batch changes.
func killedRows(n int) []project.Row {
	rows := []project.Row{orderRow("customer/[\"a\"]/all", "all", int64(n))}
	for i := range 20 {
		id := fmt.Sprintf("o%06d-%d", n, i)
		rows = append(rows, orderRow("customer/[\"a\"]/"+id, id, int64(n)))
	}
	if n > 3 { // one that is there for three batches
		id := fmt.Sprintf("o%06d-7", n-3)
		rows = append(rows, orderRow("customer/[\"a\"]/"+id, id, 0))
	}
	return rows
}

// TestMain writes until it is killed, when the test asks for it.
func TestMain(m *testing.M) {
	if dir := os.Getenv(killEnv); dir != "" {
		if err := writeUntilKilled(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func writeUntilKilled(dir string) error {
	epoch, err := strconv.ParseUint(os.Getenv(killEnv+"_EPOCH"), 10, 64)
	if err != nil {
		return err
	}
	s, err := parquetsink.New(parquetsink.NewDir(dir), killConfig())
	if err != nil {
		return err
	}
	ctx := context.Background()
	w, position, err := s.Open(ctx, sinktest.Schema(1), termOf(1, 0, epoch))
	if err != nil {
		return err
	}
	for n := int(position.LSN) + 1; ; n++ {
		b := &project.Batch{After: at(n - 1), UpTo: at(n), Put: killedRows(n)}
		if _, err := w.Write(ctx, b); err != nil {
			return err
		}
		if position, err = w.Flush(ctx); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(os.Stdout, position.LSN); err != nil {
			return err
		}
	}
}

// TestKill9 kills a process that commits all the time with SIGKILL, again and
// again: what it has called durable is there, up to one position, once.
func TestKill9(t *testing.T) {
	t.Parallel()
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	dir := t.TempDir()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for round := range rounds {
		durable := runAndKill(t, dir, round+1, time.Duration(rnd.IntN(1200))*time.Millisecond)
		s := open(t, parquetsink.NewDir(dir), killConfig())
		positions, err := s.Positions(t.Context(), sinktest.Schema(1))
		must(t, err)
		position := positions[termOf(1, 0, 1).Producer.Source]
		if position.LSN < durable {
			t.Fatalf("round %d: recorded is %s, %s was durable", round, position, durable)
		}
		want := map[string]string{}
		for n := 1; n <= int(position.LSN); n++ {
			for _, r := range killedRows(n) {
				want[r.Values[0].Text()] = r.Values[2].String()
			}
		}
		var rows []string
		for id, cents := range want {
			rows = append(rows, id+"="+cents)
		}
		slices.Sort(rows)
		if got := ids(t, s); !slices.Equal(got, rows) {
			t.Fatalf("round %d: %d rows at %s, want %d", round, len(got), position, len(rows))
		}
		t.Logf("round %d: %d rows at %s", round, len(rows), position)
	}
}

// runAndKill starts a process, kills it some time after its first commit, and
// returns what it has said to be durable.
func runAndKill(t *testing.T, dir string, epoch int, after time.Duration) (durable feed.LSN) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killEnv+"="+dir, fmt.Sprintf("%s_EPOCH=%d", killEnv, epoch))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	var timer *time.Timer
	for lines.Scan() {
		n, err := feed.ParseLSN(lines.Text())
		must(t, err)
		durable = n
		if timer == nil {
			timer = time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		}
	}
	if timer == nil {
		t.Fatal("the process has ended by itself")
	}
	timer.Stop()
	_ = cmd.Wait() // it was killed
	return durable
}
