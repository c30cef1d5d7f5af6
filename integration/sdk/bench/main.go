package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// config is what the command line says.
type config struct {
	time        time.Duration
	connections int
	rounds      int
	customers   int
	millrace    string
	cosmium     string
}

// result is what one case gave on one system.
type result struct {
	perSecond float64
	p50, p99  time.Duration
	cpu       time.Duration // of the server for each
}

func (r result) String() string {
	return fmt.Sprintf("%.0f/s | %s | %s | %s", r.perSecond, r.p50, r.p99, r.cpu.Round(time.Microsecond))
}

// better keeps the best of several rounds.
func (r result) better(o result) result {
	if o.perSecond > r.perSecond {
		return o
	}
	return r
}

func main() {
	if port := os.Getenv(barePort); port != "" {
		fmt.Fprintln(os.Stderr, "bench:", serveBare(port))
		os.Exit(1)
	}
	var c config
	flag.DurationVar(&c.time, "time", 5*time.Second, "time of each case and round")
	flag.IntVar(&c.connections, "connections", 64, "clients at once")
	flag.IntVar(&c.rounds, "rounds", 3, "rounds, of which the best counts")
	flag.IntVar(&c.customers, "customers", 2000, "customers for the queries")
	only := flag.String("run", "", "cases whose name matches")
	flag.StringVar(&c.millrace, "millrace", "", "binary of millrace (default: build it)")
	flag.StringVar(&c.cosmium, "cosmium", "", "binary of cosmium (default: build it)")
	flag.Parse()
	matches, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: -run:", err)
		os.Exit(2)
	}
	all := names(cases)
	cases = slices.DeleteFunc(cases, func(w workload) bool { return !matches.MatchString(w.name) })
	if len(cases) == 0 {
		fmt.Fprintf(os.Stderr, "bench: -run %s matches no case; there are:\n%s\n", *only, strings.Join(all, "\n"))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &c, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

// names are those of the cases.
func names(of []workload) []string {
	all := make([]string, len(of))
	for i, w := range of {
		all[i] = w.name
	}
	return all
}

func run(ctx context.Context, c *config, out io.Writer) error {
	dir, err := os.MkdirTemp("", "millrace-sdk-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	systems := []*system{{name: "millrace", path: c.millrace}, {name: "cosmium", path: c.cosmium}, {name: bareName, path: self}}
	for _, s := range systems {
		s.dir = filepath.Join(dir, strings.ReplaceAll(s.name, "/", "-"))
		if err := os.MkdirAll(s.dir, 0o755); err != nil {
			return err
		}
		if s.path == "" {
			s.path = s.dir + ".bin"
			if err := build(ctx, s.name, s.path); err != nil {
				return err
			}
		}
		if err := s.start(ctx); err != nil {
			return err
		}
		defer s.stop()
		if err := s.prepare(ctx, c); err != nil {
			return fmt.Errorf("prepare %s: %w", s.name, err)
		}
	}
	best := map[string]map[string]result{}
	for round := range c.rounds {
		for _, k := range cases {
			for _, s := range systems {
				if s.name == bareName && !k.plain {
					continue
				}
				r, err := s.measure(ctx, c, k, round)
				if err != nil {
					return fmt.Errorf("%s on %s: %w", k.name, s.name, err)
				}
				if best[k.name] == nil {
					best[k.name] = map[string]result{}
				}
				best[k.name][s.name] = best[k.name][s.name].better(r)
				fmt.Fprintf(os.Stderr, "round %d  %-9s %-34s %8.0f/s  p50 %-9s p99 %-9s cpu %s\n", round+1, s.name, k.name, r.perSecond, r.p50, r.p99, r.cpu)
			}
		}
	}
	fmt.Fprintf(out, "| %d clients | millrace | p50 | p99 | CPU | cosmium | p50 | p99 | CPU | times | net/http alone | p50 | p99 | CPU |\n"+
		"|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n", c.connections)
	for _, k := range cases {
		a, b, alone := best[k.name]["millrace"], best[k.name]["cosmium"], "| | |"
		if r, measured := best[k.name][bareName]; measured {
			alone = r.String()
		}
		fmt.Fprintf(out, "| %s | %s | %s | %.2f | %s |\n", k.name, a, b, a.perSecond/b.perSecond, alone)
	}
	return nil
}

// build builds a system, each from the module that names it.
func build(ctx context.Context, name, path string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/pikami/cosmium/cmd/server")
	if name == "millrace" {
		cmd = exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/millrace")
		cmd.Dir = filepath.Join("..", "..")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return nil
}
