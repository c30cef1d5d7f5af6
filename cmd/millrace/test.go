package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/testcase"
	"github.com/millrace/millrace/processors"
)

// testFlags are those of test.
type testFlags struct {
	files  []string
	run    string
	settle time.Duration
}

func newTest(a *app) *cobra.Command {
	var f testFlags
	cmd := &cobra.Command{
		Use:   "test -f FILE|DIR...",
		Short: "Run test cases of pipelines, without a server",
		Long: `Test runs the documents of kind Test among the files: given these items, after these
changes, those items and rows are expected. Of a directory it also reads the files in
its folder tests.

It starts a store and a worker in this process, on a temporary directory, so nothing
that runs is touched. What a test expects is looked at when every pipeline has come to
rest, so the outcome does not depend on how fast anything is. Projections into files,
buckets and PostgreSQL write to files in the temporary directory.

It exits with 1 if a test fails.`,
		Example: "  millrace test -f configs/webstore\n  millrace test -f orders.yaml -f orders_test.yaml --run totals -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFiles("test", f.files); err != nil {
				return err
			}
			if f.settle <= 0 {
				return &usageError{fmt.Errorf("--settle %s: a time above 0 is expected", f.settle)}
			}
			if cmd.Flags().Changed("wait") {
				return &usageError{errors.New("--wait is for a NATS server that is not there yet, and test has its own; how long pipelines may take is --settle")}
			}
			only, err := regexp.Compile(f.run)
			if err != nil {
				return &usageError{fmt.Errorf("--run %w", err)}
			}
			declared, err := testcase.Load(f.files...)
			if err != nil {
				return err
			}
			declared.Tests = slices.DeleteFunc(declared.Tests, func(t spec.Test) bool { return !only.MatchString(t.Metadata.Name) })
			if len(declared.Tests) == 0 {
				return bad("no test has a name that matches %s", f.run)
			}
			return a.test(cmd.Context(), declared, &f)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "file", "f", nil, "file or directory of declarations and tests; - is standard input; may be given again")
	flags.StringVar(&f.run, "run", "", "run only tests whose names match this regular expression")
	flags.DurationVar(&f.settle, flagSettle, 30*time.Second, "how long the pipelines may take to come to rest after a step")
	return cmd
}

// test runs tests and prints how they ended.
func (a *app) test(ctx context.Context, declared *spec.Resources, f *testFlags) (err error) {
	dir, err := os.MkdirTemp("", "millrace-test-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var report *testcase.Report
	err = a.withTestNode(ctx, dir, func(ctx context.Context, n *node.Node, cfg *configs.Config) error {
		tester := testcase.Config{
			Dir: filepath.Join(dir, "sinks"), Timeout: f.settle, Bucket: cfg.Leases.Bucket, Log: cfg.Feed.Log,
		}
		if a.output == "table" {
			tester.Progress = func(r *testcase.Result) { _ = r.Print(a.out) } // who reads may have gone
		}
		report, err = testcase.New(n.JetStream(), n.Registry(), n.Client(), tester).Run(ctx, declared)
		return err
	})
	if err != nil {
		return err
	}
	if err := a.print(report, func(w io.Writer) error { return report.PrintSum(w) }); err != nil {
		return err
	}
	if report.Failed > 0 {
		return &badNews{errTold}
	}
	return nil
}

// The intervals of what runs tests: much shorter than where others have work to do.
const (
	testCheckpointInterval = 5 * time.Millisecond
	testReconcilerInterval = 20 * time.Millisecond
)

// withTestNode runs f beside a store and a worker in this process, which nobody else sees.
func (a *app) withTestNode(ctx context.Context, dir string, f func(ctx context.Context, n *node.Node, cfg *configs.Config) error) error {
	// What a test writes need not outlive the machine.
	a.sets = append([]string{"dir=" + dir, "nats.dontListen=true", "nats.syncInterval=1m", "http.listen=off", "gateway.listen=off"}, a.sets...)
	cfg, err := a.config()
	if err != nil {
		return err
	}
	cfg.Isolate()
	log := slog.New(slog.DiscardHandler) // what goes wrong is in the report
	if a.logLevel != "" {
		log = a.logger(cfg)
	}
	// The node has no worker of its own: that of a test looks for work all the time.
	return withNode(ctx, cfg, node.Roles{NATS: true, Store: true}, log, func(n *node.Node) (err error) {
		worker, hub, err := newTestWorker(ctx, n, cfg, log)
		if err != nil {
			return err
		}
		defer hub.Close()
		working, end := context.WithCancel(context.WithoutCancel(ctx))
		worked := make(chan error, 1)
		go func() { worked <- worker.Run(working) }()
		defer func() {
			end()
			err = errors.Join(err, <-worked)
		}()
		return f(ctx, n, cfg)
	})
}

// newTestWorker returns a worker that takes up what is registered, and the readers that
// it uses, which callers close.
func newTestWorker(ctx context.Context, n *node.Node, cfg *configs.Config, log *slog.Logger) (*pipelines.Supervisor, *feed.Hub, error) {
	deadLetters, err := processors.OpenDeadLetters(ctx, n.Client())
	if err != nil {
		return nil, nil, err
	}
	hub := feed.NewHub(func(ctx context.Context, p feed.Partition) (*feed.Log, error) {
		return feed.OpenLog(ctx, n.JetStream(), p, cfg.Feed.Log)
	}, cfg.Feed.Hub)
	hosting := cfg.Processors
	hosting.Logger, hosting.CheckpointInterval, hosting.CheckpointBusyInterval = log, testCheckpointInterval, testCheckpointInterval
	host, err := processors.NewHost(hub, deadLetters, hosting)
	if err != nil {
		hub.Close()
		return nil, nil, err
	}
	leasing := cfg.Leases
	leasing.Group, leasing.Log = node.GroupWorker, log
	manager, err := leases.Open(ctx, n.JetStream(), leasing)
	if err != nil {
		hub.Close()
		return nil, nil, err
	}
	return pipelines.NewSupervisor(n.Registry(), n.Client(), manager, host, pipelines.SupervisorConfig{
		Cascade: cfg.Cascade, Bucket: cfg.Leases.Bucket, Logger: log, Reconciler: pipelines.ReconcilerConfig{Interval: testReconcilerInterval},
	}), hub, nil
}
