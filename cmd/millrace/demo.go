package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/demo"
	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/cmd/millrace/webstore"
	"github.com/millrace/millrace/pipelines/verify"
)

// demoFlags are the flags of demo.
type demoFlags struct {
	dir, data string
	products  int
	customers int
	renames   int
	seed      uint64
}

func newDemo(a *app) *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Load a shop, rename things while orders are written, verify every copy",
		Long: `Demo starts everything in this process, loads a shop, renames categories and tags
while orders and products are written, shows how the copies follow - names in
products, counts and sums in customers and categories, flat tables for analysts -
and verifies each of them. It takes less than a minute and leaves nothing behind, unless --dir
names a directory to keep.

With --data it does the same on WebStore files: productMeta.json, product.json and
customer.json.`,
		Example: "  millrace demo\n  millrace demo --dir shop && millrace up --dir shop",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.products < 1 || f.customers < 1 || f.renames < 1 {
				return &usageError{errors.New("--products, --customers and --renames are at least 1")}
			}
			return a.demo(cmd.Context(), &f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.dir, "dir", "", "directory to make and keep (default a temporary one)")
	flags.StringVar(&f.data, "data", "", "directory of WebStore files to use instead of a generated shop")
	flags.IntVar(&f.products, "products", 2000, "products of the generated shop; categories and tags go with them")
	flags.IntVar(&f.customers, "customers", 3000, "customers of the generated shop; each has about two orders")
	flags.IntVar(&f.renames, "renames", 250, "categories and tags to rename")
	flags.Uint64Var(&f.seed, "seed", 1, "seed of the generated shop")
	return cmd
}

func (a *app) demo(ctx context.Context, f *demoFlags) (err error) {
	dir, keep := f.dir, f.dir != ""
	if keep {
		if dir, err = filepath.Abs(dir); err != nil {
			return err
		}
		switch there, err := os.ReadDir(dir); {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		case len(there) > 0:
			return &usageError{fmt.Errorf("--dir: %s is not empty, and the demo makes a shop of its own; name a directory that is not there yet", dir)}
		}
	} else {
		if dir, err = os.MkdirTemp("", "millrace-demo-*"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	// Nothing listens, so that the demo can run beside another node on this machine.
	a.sets = append([]string{"dir=" + dir, "nats.dontListen=true", "http.listen=off", "gateway.listen=off"}, a.sets...)
	if a.logLevel == "" {
		a.sets = append(a.sets, "log.level=error") // warnings of what heals would hide the demo
	}
	cfg, err := a.config()
	if err != nil {
		return err
	}
	cfg.Isolate()
	screen := newScreen(a)
	began := time.Now()
	screen.Say("", "A shop that is full of copies: of names in products, of counts and sums in customers", "and categories, of everything in flat tables for analysts.", "")
	return withNode(ctx, cfg, node.Roles{NATS: true, Store: true, Worker: true}, a.logger(cfg), func(n *node.Node) error {
		screen.Step("Start", "NATS, store and workers in this process", time.Since(began))
		// A scale has as many categories and tags as its products need; then both counts are
		// what was asked for.
		scale := webstore.Scale(f.seed, float64(f.products)*float64(f.products)/(295*295))
		scale.Products, scale.Customers = f.products, f.customers
		report, err := demo.Run(ctx, demo.Config{
			Dir: dir, DataDir: f.data, Store: scale, Renames: f.renames, Screen: screen, Client: n.Client(), Registry: n.Registry(),
			JS: n.JetStream(), Bucket: cfg.Leases.Bucket, Log: cfg.Feed.Log,
		})
		if err != nil {
			screen.clear()
			return err
		}
		return a.printDemo(report, time.Since(began), dir, keep)
	})
}

func (a *app) printDemo(report *demo.Report, took time.Duration, dir string, keep bool) error {
	err := a.print(report, func(w io.Writer) error {
		for i := range report.Verify.Pipelines {
			if p := &report.Verify.Pipelines[i]; p.Verdict != verify.VerdictEqual {
				return report.Verify.Print(w)
			}
		}
		fmt.Fprintf(w, "\nAll of it in %s. ", took.Round(100*time.Millisecond))
		if keep {
			fmt.Fprintf(w, "The shop lies in %s. Try\n\n", dir)
			fmt.Fprintf(w, "  export MILLRACE_DIR=%s                   # in this terminal and in another\n", dir)
			fmt.Fprintln(w, "  millrace up                              # and in the other")
			fmt.Fprintln(w, "  millrace status --watch")
			fmt.Fprintln(w, "  millrace feed product --from now --follow")
			fmt.Fprintln(w, "  millrace query productMeta --key category --limit 3")
			fmt.Fprintf(w, "  duckdb -c \"SELECT * FROM delta_scan('%s/orderItems') LIMIT 5\"\n", filepath.Join(dir, "analytics"))
			fmt.Fprintln(w, "  millrace verify")
			return nil
		}
		fmt.Fprintln(w, "Nothing is left of it. Try")
		fmt.Fprintln(w)
		fmt.Fprintln(w, "  millrace demo --dir shop                 # keeps the shop in a directory")
		fmt.Fprintln(w, "  export MILLRACE_DIR=$PWD/shop            # in this terminal and in another")
		fmt.Fprintln(w, "  millrace up                              # and in the other")
		fmt.Fprintln(w, "  millrace status --watch")
		fmt.Fprintln(w, "  millrace get pipelines -o yaml           # what was declared")
		fmt.Fprintln(w, "  millrace verify")
		return nil
	})
	if err != nil {
		return err
	}
	if report.Verify.Verdict != verify.VerdictEqual {
		return &badNews{errTold}
	}
	return nil
}

// screen shows a demo: in place on a terminal, line by line elsewhere, and on
// standard error if standard output is for JSON or YAML.
type screen struct {
	w     io.Writer
	width int  // 0: no terminal
	color bool // may be used
	live  bool // a line is to be cleared
	told  time.Time
}

func newScreen(a *app) *screen {
	s := &screen{w: a.out, told: time.Now()}
	if a.output != "table" {
		s.w = a.err
	}
	s.width, s.color = colored(s.w)
	return s
}

// Step shows a finished step and its time.
func (s *screen) Step(name, what string, took time.Duration) {
	s.clear()
	fmt.Fprintf(s.w, "%s %s  %s%s\n", s.paint("32", "✓"), s.paint("1", fmt.Sprintf("%-9s", name)), what,
		s.paint("2", fmt.Sprintf("  (%s)", took.Round(time.Millisecond))))
}

// Live shows a line that the next one replaces. Without a terminal it is shown
// every few seconds.
func (s *screen) Live(name, what string) {
	if s.width == 0 {
		if time.Since(s.told) > progressEvery {
			s.told = time.Now()
			fmt.Fprintf(s.w, "  %-9s  %s\n", name, what)
		}
		return
	}
	s.live = true
	line := cut(fmt.Sprintf("  %-9s  %s", name, what), s.width-1)
	fmt.Fprintf(s.w, "\r\x1b[K%s", line)
}

// Say shows lines, cut to the width of the terminal unless they are colored.
func (s *screen) Say(lines ...string) {
	s.clear()
	for _, line := range lines {
		if line == "Before" || line == "After" {
			line = s.paint("1", line)
		}
		if s.width > 0 && !strings.Contains(line, "\x1b") {
			line = cut(line, s.width)
		}
		fmt.Fprintln(s.w, line)
	}
}

func (s *screen) clear() {
	if s.live {
		fmt.Fprint(s.w, "\r\x1b[K")
		s.live = false
	}
}

func (s *screen) paint(code, text string) string {
	if !s.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
