//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/integration/bench/measure"
)

const (
	// webstoreEnv names the directory of the WebStore data set.
	webstoreEnv = "MILLRACE_WEBSTORE"
	// webstoreShop is its largest file: customers, and behind them their orders.
	webstoreShop = "customer-full.ndjson.gz"

	importRow     = "customers and their orders, under all pipelines"
	importAckBar  = 10_000.0 // items/s
	importIdleBar = 5_000.0  // items/s
	importPeakBar = 400.0    // MB
)

// importShop is the case of a shop's real items that are imported where all of its pipelines are at work.
func (b *bench) importShop(ctx context.Context) error {
	dir := os.Getenv(webstoreEnv)
	if !fileExists(filepath.Join(dir, webstoreShop)) {
		b.say("  skipped: %s names no directory with %s", webstoreEnv, webstoreShop)
		return nil
	}
	t := b.table("import", "Import of a shop", fmt.Sprintf(
		"millrace up with the containers and the pipelines of configs/webstore, products, categories and tags; then millrace import of %s of the WebStore data set, 19,119 customers and behind them 31,455 "+
			"orders, by the 64 writers that it has by default. Acknowledged is until the import ends, idle until every pipeline has come to the end of the logs; then all copies are verified. CPU is that of "+
			"both processes, until then. Peak memory is VmHWM of millrace up, mapped files included.", webstoreShop))
	t.Columns = []string{"items/s acknowledged", "items/s idle", "CPU µs/item", "peak MB"}
	for round := range b.cfg.rounds {
		b.say("  round %d of %d", round+1, b.cfg.rounds)
		if err := b.importOnce(ctx, t, dir); err != nil {
			return err
		}
	}
	t.AtLeast("items acknowledged", t.Series(importRow, "items/s acknowledged"), importAckBar, "items/s", true)
	t.AtLeast("items until every pipeline is idle", t.Series(importRow, "items/s idle"), importIdleBar, "items/s", true)
	t.AtMost("peak memory", t.Series(importRow, "peak MB"), importPeakBar, "MB", true)
	return nil
}

// importOnce imports into a new store.
func (b *bench) importOnce(ctx context.Context, t *measure.Table, data string) (err error) {
	dir, err := b.scratch("import")
	if err != nil {
		return err
	}
	defer b.remove(dir)
	m, err := b.serve(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.end()) }()
	if _, err := b.verb(ctx, "apply", "--server", m.url, "-f", filepath.Join("configs", "webstore")); err != nil {
		return err
	}
	for _, container := range []string{"productMeta", "product"} {
		if _, err := b.verb(ctx, "import", "--server", m.url, container, filepath.Join(data, container+".json")); err != nil {
			return err
		}
	}
	if err := errors.Join(m.awaitIdle(ctx), b.quiet(ctx)); err != nil {
		return err
	}
	watch, before, began := b.watch(), measure.CPUOf(m.pid()), time.Now()
	o, err := b.verb(ctx, "import", "--server", m.url, "-o", "json", "--state", filepath.Join(dir, "state"), "customer", filepath.Join(data, webstoreShop))
	if err != nil {
		return err
	}
	if err := m.awaitIdle(ctx); err != nil {
		return err
	}
	idle, used := time.Since(began), measure.CPUOf(m.pid())-before+o.cpu
	t.Others = append(t.Others, watch.Others())
	var report struct {
		Imports []struct {
			Written int     `json:"written"`
			Seconds float64 `json:"seconds"`
		} `json:"imports"`
	}
	if err := json.Unmarshal(o.printed, &report); err != nil || len(report.Imports) != 1 {
		return fmt.Errorf("read what import printed: %w: %s", err, o.printed)
	}
	if _, err := m.verify(ctx); err != nil {
		return err
	}
	peak, err := measure.PeakOf(m.pid())
	if err != nil {
		return err
	}
	n := float64(report.Imports[0].Written)
	acknowledged := n / report.Imports[0].Seconds
	r := t.Row(importRow)
	r.Add("items/s acknowledged", acknowledged)
	r.Add("items/s idle", n/idle.Seconds())
	r.Add("CPU µs/item", float64(used)/float64(time.Microsecond)/n)
	r.Add("peak MB", peak*(1<<20)/1e6)
	b.say("  %s items/s, %s until idle, CPU %.0f µs an item, %.0f MB",
		measure.Number(acknowledged), measure.Number(n/idle.Seconds()), float64(used)/float64(time.Microsecond)/n, peak*(1<<20)/1e6)
	return nil
}

func fileExists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
