//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/millrace/millrace/integration/bench/chart"
	"github.com/millrace/millrace/integration/bench/crowd"
	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
)

// cases are run in this order; neighbours share the data that is loaded.
var cases = []struct {
	name, about string
	run         func(b *bench, ctx context.Context) error
}{
	{"writes", "writes of 1 KiB by 64 writers, 1 and 4 physical partitions, beside the bare loop and PostgreSQL", (*bench).writes},
	{"growth", "cost of a write as the store grows from 1,000 items to all", (*bench).growth},
	{"rename", "renames of categories of every size, of a tag in a tenth of the products, and the one-by-one consumer", (*bench).rename},
	{"traffic", "other writers beside a fan-out over a tenth of the products, and the renaming writer itself", (*bench).traffic},
	{"freshness", "from an acknowledged rename to its one visible copy", (*bench).freshness},
	{"verify", "comparison of all copies at rest with their sources", (*bench).verify},
	{"all", "rename of a category that has all products", (*bench).renameAll},
	{"memory", "memory of up idle, of a worker in a fan-out, of a store with all products", (*bench).memory},
	{"restart", "restart with all products, after a clean stop and after kill -9", (*bench).restart},
	{"takeover", "how long no write is acknowledged when the owner is killed, hangs or is stopped in order", (*bench).takeover},
	{"standby", "writes, and what processors spend on them, with a standby and without", (*bench).standby},
	{"cut", "how long no write is acknowledged when a host is stopped or cut off silently, with and without a NATS server, and whether reads are stale", (*bench).cut},
	{"rolling", "how long no write is acknowledged while every process is restarted, one after the other", (*bench).rolling},
	{"move", "how long no write is acknowledged while a partition with all products goes to a store without a copy", (*bench).move},
	{"worker", "how long a fan-out stands still when the worker at work is killed", (*bench).worker},
	{"split", "how long writes wait while a partition with all products is split under them", (*bench).split},
	{"console", "what the console's first screen and those who look cost, and when a copy is on their screens", (*bench).console},
	{"orders", "orders counted in their own commit, by 64 clients, on one hot customer, by one client", (*bench).orders},
	{"flatten", "orders counted, and their lines kept flat in Parquet files or in PostgreSQL", (*bench).flatten},
	{"lag", "orders counted behind the commit, at four fifths of the rate that they can be placed at", (*bench).lag},
	{"import", "a shop's real items, imported under all of its pipelines", (*bench).importShop},
	{"backfill", "flat rows of orders that are there already, into Parquet files and into PostgreSQL", (*bench).backfill},
	{"age", "new pipelines of each kind over items that were written once, and 50 times", (*bench).age},
	{"years", "a store that is old: its directory, its opening without an engine, up at rest", (*bench).years},
	{"years-backup", "backup of a store that is old, beside a plain copy, and again when 1 % was written", (*bench).yearsBackup},
	{"years-writes", "writes beside snapshots and trims, and without", (*bench).yearsWrites},
}

// bench is one run.
type bench struct {
	cfg      *config
	progress io.Writer
	report   *measure.Report
	dir      string
	ownDir   bool
	pg       *postgres // nil if there is none
	mixed    *world    // categories of all sizes; nil until a case needs it
	old      string    // the directory of a store that is old; "" until a case needs it
	profiles int       // written so far
}

// newBench prepares a run: its directory, a look at the machine, PostgreSQL.
func newBench(ctx context.Context, cfg *config, progress io.Writer) (*bench, error) {
	b := &bench{cfg: cfg, progress: progress, dir: cfg.dir, report: &measure.Report{Began: time.Now().UTC()}}
	var err error
	if b.dir == "" {
		b.ownDir = true
		if b.dir, err = os.MkdirTemp("", "millrace-bench-"); err != nil {
			return nil, fmt.Errorf("make a directory: %w", err)
		}
		// The user postgres must be able to enter it.
		if err := os.Chmod(b.dir, 0o755); err != nil {
			return nil, fmt.Errorf("make a directory: %w", err)
		}
	} else if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	if b.report.Machine, err = measure.Inspect(b.dir); err != nil {
		return nil, errors.Join(err, b.close(ctx))
	}
	if err := b.openPostgres(ctx); err != nil {
		return nil, errors.Join(err, b.close(ctx))
	}
	b.mode("Millrace: durability disk, every append synced before it is acknowledged; the bare loop likewise")
	return b, nil
}

func (b *bench) openPostgres(ctx context.Context) (err error) {
	switch b.cfg.postgres {
	case "off", "":
		return nil
	case "auto":
		b.say("starting PostgreSQL")
		b.pg, err = startPostgres(ctx, filepath.Join(b.dir, "postgres"))
	default:
		b.pg = &postgres{dsn: b.cfg.postgres}
	}
	if err != nil {
		return err
	}
	mode, err := b.pg.mode(ctx)
	if err != nil {
		return err
	}
	b.mode(mode)
	return nil
}

func (b *bench) mode(text string) { b.report.Machine.Modes = append(b.report.Machine.Modes, text) }

// run runs the cases that were asked for. One that fails does not keep the
// others from running.
func (b *bench) run(ctx context.Context) error {
	var errs []error
	ran := 0
	for _, c := range cases {
		if !b.cfg.run.MatchString(c.name) {
			continue
		}
		ran++
		b.say("%s: %s", c.name, c.about)
		if err := c.run(b, ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.name, err))
			b.say("%s failed: %v", c.name, err)
		}
		if ctx.Err() != nil {
			return errors.Join(errs...)
		}
	}
	if ran == 0 {
		return fmt.Errorf("-run %q matches no case; -list names them", b.cfg.run)
	}
	return errors.Join(errs...)
}

// close stops what runs and removes the data.
func (b *bench) close(ctx context.Context) error {
	var errs []error
	if b.mixed != nil {
		errs = append(errs, b.mixed.close(ctx))
	}
	errs = append(errs, b.pg.stop(ctx))
	if b.old != "" {
		b.remove(b.old)
	}
	if b.ownDir && !b.cfg.keep {
		errs = append(errs, os.RemoveAll(b.dir))
	}
	return errors.Join(errs...)
}

// say prints a line of progress for whoever waits.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// table begins the report of a case.
func (b *bench) table(id, title, note string) *measure.Table {
	t := &measure.Table{ID: id, Title: title, Note: note}
	b.report.Tables = append(b.report.Tables, t)
	return t
}

// watch begins to watch what else the machine does.
func (b *bench) watch() *measure.Watch { return measure.StartWatch(b.roots()...) }

// roots are the processes, but this one and its children, whose time is that of who is measured.
func (b *bench) roots() []int {
	if b.pg != nil && b.pg.pid > 0 {
		return []int{b.pg.pid}
	}
	return nil
}

// start sets a crowd to work.
func (b *bench) start(ctx context.Context, c crowd.Crowd) *crowd.Running {
	return crowd.Start(ctx, c, b.roots()...)
}

// drive runs a crowd and measures it for window, after warmup.
func (b *bench) drive(ctx context.Context, c crowd.Crowd, warmup, window time.Duration) (*crowd.Measured, error) {
	return crowd.Drive(ctx, c, warmup, window, b.roots()...)
}

// dataset returns the data of this run.
func (b *bench) dataset(oneCategory bool) (*dataset.Set, error) {
	return dataset.New(dataset.Config{Seed: b.cfg.seed, Products: b.cfg.products, OneCategory: oneCategory})
}

// scratch returns a directory that does not exist yet, for one use.
func (b *bench) scratch(name string) (string, error) {
	dir, err := os.MkdirTemp(b.dir, name+"-")
	if err != nil {
		return "", fmt.Errorf("make a directory: %w", err)
	}
	return dir, nil
}

// remove removes what scratch made, unless it is to be kept. What cannot be
// removed stays, which does no harm to the figures.
func (b *bench) remove(dir string) {
	if b.cfg.keep {
		return
	}
	if err := os.RemoveAll(dir); err != nil {
		b.say("  %v", err)
	}
}

// draw writes a picture beside the page that the tables go into, if they go into one.
func (b *bench) draw(name string, c *chart.Chart) error {
	if b.cfg.docs == "" {
		return nil
	}
	path := filepath.Join(filepath.Dir(b.cfg.docs), "images", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	if err := os.WriteFile(path, c.SVG(), 0o644); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}

// quiet waits until the system that was measured last has come to rest: flushes and
// compactions of Millrace's engine go on for a while, and must not be charged to the
// next system. It gives up after a while, because other programs may be at work.
func (b *bench) quiet(ctx context.Context) error {
	runtime.GC() // of what loading and verifying left behind
	const step, still = 500 * time.Millisecond, 50 * time.Millisecond
	if b.cfg.rest == 0 {
		return nil
	}
	for deadline := time.Now().Add(b.cfg.rest); time.Now().Before(deadline); {
		w := b.watch()
		if err := wait(ctx, step); err != nil {
			return err
		}
		if w.Ours() < still {
			return nil
		}
	}
	b.say("the engine is still at work after %s; going on", b.cfg.rest)
	return nil
}

// wait waits for d or until ctx ends.
func wait(ctx context.Context, d time.Duration) error { return crowd.Wait(ctx, d) }

// profiled runs f, which measures Millrace alone, and keeps its CPU profile if
// that was asked for. A bar that is missed stands beside its profile.
func (b *bench) profiled(name string, f func() error) (err error) {
	if b.cfg.profiles == "" {
		return f()
	}
	if err := os.MkdirAll(b.cfg.profiles, 0o755); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	b.profiles++
	name = strings.NewReplacer(" ", "-", ",", "", "/", "-").Replace(name)
	file, err := os.Create(filepath.Join(b.cfg.profiles, fmt.Sprintf("%s-%03d.pprof", name, b.profiles)))
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := pprof.StartCPUProfile(file); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer pprof.StopCPUProfile()
	return f()
}
