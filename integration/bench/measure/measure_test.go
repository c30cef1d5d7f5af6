//go:build linux

package measure_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/integration/bench/measure"
)

func TestSeriesPrintsMedianAndNoise(t *testing.T) {
	for want, s := range map[string]measure.Series{
		"":                         nil,
		"0":                        {0},
		"12.3":                     {12.34},
		"2.00 [1.00..3.00]":        {3, 1, 2},
		"2.50 [1.00..4.00]":        {4, 1, 2, 3},
		"-1,234,567":               {-1_234_567},
		"61,204 [59,000..70,000]":  {59_000, 61_204, 70_000},
		"0.001 [0.001..1,000,000]": {0.001, 0.001, 1e6},
	} {
		if got := s.String(); got != want {
			t.Errorf("%v prints %q, want %q", []float64(s), got, want)
		}
	}
}

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	// The machine was twice as slow in the second round, for both.
	got := measure.Series{100, 50, 100}.Over(measure.Series{50, 25, 0})
	if diff := cmp.Diff(measure.Series{2, 2}, got); diff != "" {
		t.Error(diff)
	}
}

func TestQuantiles(t *testing.T) {
	var l measure.Latencies
	for i := 100; i > 0; i-- {
		l = append(l, time.Duration(i))
	}
	if p50, p99, all := l.Quantile(0.5), l.Quantile(0.99), l.Quantile(1); p50 != 51 || p99 != 100 || all != 100 {
		t.Errorf("p50 %d, p99 %d, all %d", p50, p99, all)
	}
	if measure.Latencies(nil).Quantile(0.5) != 0 {
		t.Error("no latencies have a quantile")
	}
}

func report() *measure.Report {
	t := &measure.Table{ID: "writes", Title: "Writes", Note: "What was done."}
	for _, v := range []float64{80, 90} {
		t.Row("Millrace").Add("writes/s", v)
		t.Row("bare loop").Add("writes/s", 100)
	}
	t.Beside("Millrace", "bare loop", "writes/s", "times bare loop")
	t.Beside("Millrace", "nobody", "writes/s", "times nobody")
	t.AtLeast("beside the bare loop", t.Ratio("Millrace", "bare loop", "writes/s"), 0.8, "times", true)
	t.AtMost("too much", measure.Series{2}, 1, "ms", true)
	t.AtMost("of another size", measure.Series{2}, 1, "ms", false)
	t.AtMost("not measured", nil, 1, "ms", true)
	return &measure.Report{Tables: []*measure.Table{t}}
}

const table = `What was done.

| | writes/s | times bare loop |
|---|---|---|
| Millrace | 85.0 [80.0..90.0] | 0.850 [0.800..0.900] |
| bare loop | 100 [100..100] |  |

| bar | asked | measured | |
|---|---|---|---|
| beside the bare loop | at least 0.800 times | 0.850 [0.800..0.900] | met |
| too much | at most 1.00 ms | 2.00 | **missed** |
| of another size | at most 1.00 ms | 2.00 | not judged at this size |
`

func TestTableShowsRowsAndBars(t *testing.T) {
	var b strings.Builder
	r := report()
	if err := r.Tables[0].Markdown(&b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(table, b.String()); diff != "" {
		t.Error(diff)
	}
	if missed := r.Missed(); len(missed) != 1 || missed[0].Text != "too much" {
		t.Errorf("missed %v", missed)
	}
}

func TestPageKeepsWhatPeopleWrote(t *testing.T) {
	path := filepath.Join(t.TempDir(), "benchmarks.md")
	page := "# Benchmarks\n\nBy hand.\n\n<!-- bench:writes -->\nold\n<!-- /bench:writes -->\n\nAlso by hand.\n"
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	// Twice, because the second finds its own markers.
	for range 2 {
		if err := report().WritePage(path); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := string(data)
	want := "# Benchmarks\n\nBy hand.\n\n<!-- bench:writes -->\n" + table + "<!-- /bench:writes -->\n\nAlso by hand.\n"
	if !strings.HasPrefix(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if n := strings.Count(got, "<!-- bench:machine -->"); n != 1 {
		t.Errorf("the machine is described %d times", n)
	}
}

func TestPageWithHalfAMarkerIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := os.WriteFile(path, []byte("<!-- bench:writes -->\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := report().WritePage(path); err == nil || !strings.Contains(err.Error(), "/bench:writes") {
		t.Errorf("error is %v", err)
	}
}

func TestMemoryOfThisProcess(t *testing.T) {
	m, err := measure.MemoryOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if m.RSS <= 0 || m.Anonymous <= 0 || m.Anonymous > m.RSS {
		t.Errorf("%+v", m)
	}
}

func TestPeakOfThisProcess(t *testing.T) {
	m, err := measure.MemoryOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if peak, err := measure.PeakOf(os.Getpid()); err != nil || peak < m.Anonymous {
		t.Errorf("at most %.1f MiB: %v; %.1f are anonymous", peak, err, m.Anonymous)
	}
}

func TestDiskCountsBlocksOnce(t *testing.T) {
	dir := t.TempDir()
	const size = 1 << 20
	path := filepath.Join(dir, "full")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := measure.DiskOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path, filepath.Join(dir, "again")); err != nil {
		t.Fatal(err)
	}
	holes, err := os.Create(filepath.Join(dir, "holes"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(holes.Truncate(100*size), holes.Close()); err != nil {
		t.Fatal(err)
	}
	after, err := measure.DiskOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	if after < size || after > before+size/2 {
		t.Errorf("%d bytes, and %d with another name and a file of holes", before, after)
	}
	if _, err := measure.DiskOf(filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that is not there has a size")
	}
}
