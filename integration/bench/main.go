//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// config is what the command line says. Nobody changes it afterwards, except that build puts in the
// binary that it has built; cases run one after another, so nothing guards it.
type config struct {
	run        *regexp.Regexp
	list       bool
	products   int
	customers  int
	orders     int
	items      int
	times      int
	kills      int
	rounds     int
	seed       uint64
	partitions int
	writers    int
	foreground int
	renames    int
	writeTime  time.Duration
	warmup     time.Duration
	rest       time.Duration
	still      time.Duration
	dir        string
	keep       bool
	postgres   string
	anchors    string
	binary     string
	json       bool
	save       string
	docs       string
	profiles   string
}

// full is the number of products that the bars are about.
const full = 1_000_000

func main() {
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

// command runs the program and returns its exit status.
func command(args []string, out, progress io.Writer) int {
	cfg, err := parse(args, progress)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(progress, "bench:", err)
		return 2
	}
	if cfg.list {
		for _, c := range cases {
			fmt.Fprintf(out, "%-12s %s\n", c.name, c.about)
		}
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, err := newBench(ctx, cfg, progress)
	if err == nil {
		err = errors.Join(b.run(ctx), b.close(ctx))
	}
	if b != nil && len(b.report.Tables) > 0 {
		err = errors.Join(err, b.publish(out))
	}
	switch {
	case err != nil:
		fmt.Fprintln(progress, "bench:", err)
		return 2
	case len(b.report.Missed()) > 0:
		fmt.Fprintf(progress, "bench: %d bars were missed\n", len(b.report.Missed()))
		return 1
	}
	return 0
}

// parse reads the command line.
func parse(args []string, usage io.Writer) (*config, error) {
	cfg := &config{}
	var pattern string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(usage)
	f.StringVar(&pattern, "run", "", "run only the cases whose name `matches`; see -list")
	f.BoolVar(&cfg.list, "list", false, "list the cases")
	f.IntVar(&cfg.products, "products", full, "number of products, at least 1,000; bars are judged at 1,000,000")
	f.IntVar(&cfg.customers, "customers", fullShop, "number of customers in orders, flatten and lag; bars are judged at 20,000")
	f.IntVar(&cfg.orders, "orders", fullBackfill, "number of orders in backfill; bars are judged at 250,000")
	f.IntVar(&cfg.items, "items", fullAge, "number of items in age; bars are judged at 100,000")
	f.IntVar(&cfg.times, "times", 0, "how often the items of the old container in age are written, default 50, how often each event of takeover, cut and worker happens, default 5, a split, default 3, and a move and a rolling restart, default 1; bars are judged at 50, at 10 (of worker at 5), at 3, and at 1")
	f.IntVar(&cfg.kills, "kills", 0, "how often takeover kills a store, default as often as -times; the bars are judged at 50")
	f.IntVar(&cfg.rounds, "rounds", 5, "times that each measurement is taken")
	f.Uint64Var(&cfg.seed, "seed", 1, "decides the data")
	f.IntVar(&cfg.partitions, "partitions", 1, "physical partitions of the product container, except in writes, which does 1 and 4, and in years, which does 4")
	f.IntVar(&cfg.writers, "writers", 64, "concurrent writers in writes and growth")
	f.IntVar(&cfg.foreground, "foreground", 8, "concurrent writers beside a fan-out in traffic")
	f.IntVar(&cfg.renames, "renames", 500, "renames of a category of one product, each round of freshness; console does a tenth")
	f.DurationVar(&cfg.writeTime, "write-time", 5*time.Second, "how long writers are measured each round")
	f.DurationVar(&cfg.warmup, "warmup", time.Second, "how long writers run before that")
	f.DurationVar(&cfg.rest, "rest", time.Minute, "how long at most is waited before a measurement until the last one has come to rest")
	f.DurationVar(&cfg.still, "still", fullStill, "how long years leaves a store alone before it measures, and measures one at rest; bars are judged at 1m")
	f.StringVar(&cfg.dir, "dir", "", "`directory` for all data, on the disk to be measured; default a new one in $TMPDIR")
	f.BoolVar(&cfg.keep, "keep", false, "leave the data where it is")
	f.StringVar(&cfg.postgres, "postgres", "auto", "auto starts the one that is installed, off does without, else a `URL`")
	f.StringVar(&cfg.anchors, "anchors", "", "also measure SQLite, Redis and Tarantool in orders, and Kafka Streams in rename, by the module in this `directory`: integration/bench/anchors. The ones need a C compiler and Debian's redis-server and tarantool, the other Maven, a JDK and Maven's registry; which is not to be had is skipped")
	f.StringVar(&cfg.binary, "binary", "", "millrace `binary` for memory, restart, console, years, takeover, standby, cut, rolling, move, worker and split; default is built from this module")
	f.BoolVar(&cfg.json, "json", false, "print the report as JSON")
	f.StringVar(&cfg.save, "save", "", "also write the report as JSON to this `file`")
	f.StringVar(&cfg.docs, "docs", "", "write the tables into this `page`, between their markers, and leave the rest of it")
	f.StringVar(&cfg.profiles, "profiles", "", "keep CPU profiles of Millrace's measurements in this `directory`")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q; -h lists the flags", f.Arg(0))
	}
	var err error
	if cfg.run, err = regexp.Compile(pattern); err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	return cfg, cfg.check()
}

func (c *config) check() error {
	var wrong []string
	for _, f := range []struct {
		name       string
		value, low int
	}{
		{"products", c.products, 1000},
		{"customers", c.customers, 1},
		{"orders", c.orders, 1},
		{"times", c.times, 0},
		{"kills", c.kills, 0},
		{"rounds", c.rounds, 1},
		{"partitions", c.partitions, 1},
		{"writers", c.writers, 1},
		{"foreground", c.foreground, 1},
		{"renames", c.renames, 1},
		{"write-time", int(c.writeTime.Milliseconds()), 100},
		{"still", int(c.still.Milliseconds()), 100},
	} {
		if f.value < f.low {
			wrong = append(wrong, fmt.Sprintf("-%s must be at least %d", f.name, f.low))
		}
	}
	if wrong != nil {
		return errors.New(strings.Join(wrong, "; "))
	}
	return checkAnchors(c.anchors)
}

// judged says whether the run is of the size that the bars are about.
func (c *config) judged() bool { return c.products >= full }

// publish prints the report and writes it where it was asked for.
func (b *bench) publish(out io.Writer) error {
	if b.cfg.docs != "" {
		if err := b.report.WritePage(b.cfg.docs); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(b.report, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	data = append(data, '\n')
	if b.cfg.save != "" {
		if err := os.WriteFile(b.cfg.save, data, 0o644); err != nil {
			return fmt.Errorf("save the report: %w", err)
		}
	}
	if b.cfg.json {
		_, err = out.Write(data)
		return err
	}
	return b.report.Markdown(out)
}
