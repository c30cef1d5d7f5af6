package testcase

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/store"
)

// Config tunes a Tester. Zero fields take their defaults.
type Config struct {
	// Dir is where projections write, whatever sink they declare, but for containers.
	// Required if a projection runs.
	Dir string
	// Timeout is how long the pipelines may take to come to rest after one step.
	// Default 30s.
	Timeout time.Duration
	// PollInterval is the time between two looks at whether they have. Default 5ms.
	PollInterval time.Duration
	// Bucket holds the leases. Default leases.DefaultBucket.
	Bucket string
	// Log is the configuration with which logs are opened.
	Log feed.LogConfig
	// Progress is told of each test when it is done; may be nil.
	Progress func(*Result)
}

// Tester runs tests in a Millrace that is running: a store, and a worker which takes up
// what is registered. It is meant for one that was started for the purpose, in the
// process and on an empty directory.
//
// Each test has a database of its own, made before it and removed after it, so that
// tests do not see each other. Its containers have the partitions that are declared.
// Given items are written, then the pipelines are registered. A step's expectations
// are looked at when every pipeline of the test has come to rest, so that the outcome
// does not depend on how fast anything is. What is projected to Parquet files, a
// bucket or PostgreSQL is written to Parquet files below Config.Dir; tables in
// PostgreSQL may refuse values beyond that.
//
// Time passes as it does: what expires in a test expires while it runs, or not.
type Tester struct {
	js       jetstream.JetStream
	registry *registry.Registry
	client   *store.Client
	cfg      Config
}

// New returns a Tester that registers pipelines in registry.
func New(js jetstream.JetStream, registry *registry.Registry, client *store.Client, cfg Config) *Tester {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.PollInterval <= 0 {
		cfg.PollInterval = 5 * time.Millisecond
	}
	return &Tester{js: js, registry: registry, client: client, cfg: cfg}
}

// Run runs the tests of declared, one after the other, as Load has read them. The
// error is Findings if the declarations are wrong; a test that fails is no error.
func (t *Tester) Run(ctx context.Context, declared *spec.Resources) (*Report, error) {
	if err := declared.Check(spec.Existing{}); err != nil {
		return nil, err
	}
	report := &Report{Tests: []Result{}}
	began := time.Now()
	for i := range declared.Tests {
		// A database is named for the number of its test: two tests of one name may be declared, in
		// databases of their own.
		run, err := t.prepare(declared, &declared.Tests[i], i)
		if err != nil {
			return report, err
		}
		if err := run.all(ctx); err != nil {
			return report, fmt.Errorf("test %s: %w", run.test.Metadata, err)
		}
		report.add(&run.result)
		if t.cfg.Progress != nil {
			t.cfg.Progress(&run.result)
		}
	}
	report.Duration = time.Since(began)
	report.Seconds = report.Duration.Seconds()
	return report, nil
}

// testRun is the run of one test.
type testRun struct {
	*Tester
	test      *spec.Test
	database  string // of this run
	resources spec.Resources
	monitor   *status.Monitor
	result    Result
	step      int // at hand, from 0; -1 before the first
}

// prepare returns the run of a test with the resources that it needs.
func (t *Tester) prepare(declared *spec.Resources, test *spec.Test, number int) (*testRun, error) {
	run := &testRun{Tester: t, test: test, database: fmt.Sprintf("test-%d", number+1), step: -1}
	run.result = Result{
		Database: test.Metadata.Database, Name: test.Metadata.Name, Place: test.At("metadata.name").String(), Steps: len(test.Spec.Steps), Passed: true,
	}
	needed := test.Spec.Containers()
	for i := range declared.Pipelines {
		p := declared.Pipelines[i]
		// Pipelines that the test leaves out are not registered, and no container is made for them
		// alone: fewer partitions open, and fewer pipelines have to come to rest.
		if p.Metadata.Database != test.Metadata.Database || len(test.Spec.Pipelines) > 0 && !slices.Contains(test.Spec.Pipelines, p.Metadata.Name) {
			continue
		}
		// The declaration is that of all tests, and redirect writes into it.
		p.Spec = p.Spec.Clone()
		if err := run.redirect(&p); err != nil {
			return nil, err
		}
		needed = append(needed, p.Spec.Containers()...)
		p.Metadata.Database = run.database
		run.resources.Pipelines = append(run.resources.Pipelines, p)
	}
	for i := range declared.Containers {
		c := declared.Containers[i]
		if c.Metadata.Database == test.Metadata.Database && slices.Contains(needed, c.Metadata.Name) {
			c.Metadata.Database = run.database
			run.resources.Containers = append(run.resources.Containers, c)
		}
	}
	return run, nil
}

// testCommitInterval is how long the sinks of tests gather rows.
const testCommitInterval = 100 * time.Millisecond

// redirect makes a projection write below Dir.
func (run *testRun) redirect(p *spec.Pipeline) error {
	if p.Spec.Project == nil || p.Spec.Project.Sink.Container != nil {
		return nil
	}
	if run.cfg.Dir == "" {
		return errors.New("pipelines: a Tester needs a directory for projections")
	}
	p.Spec.Project.Sink = spec.Sink{Parquet: &spec.ParquetSink{
		Path: filepath.Join(run.cfg.Dir, run.database, p.Metadata.Name), CommitInterval: spec.Duration(testCommitInterval),
	}}
	return nil
}

// all runs the test and removes what it has made. The error is what kept it from being
// run.
func (run *testRun) all(ctx context.Context) (err error) {
	began := time.Now()
	run.monitor = status.NewMonitor(run.js, run.registry, status.MonitorConfig{Bucket: run.cfg.Bucket, Log: run.cfg.Log})
	defer run.monitor.Close()
	defer func() {
		run.result.Seconds = time.Since(began).Seconds()
		// Also when ctx has ended: the node goes on, with the pipelines of the test. removeMax bounds it.
		err = errors.Join(err, run.remove(context.WithoutCancel(ctx)))
	}()
	// Containers first, alone: the given items are in them before a pipeline reads, so that it
	// finds them in its backfill as it would in a container that has been there for long.
	if _, err := run.registry.Apply(ctx, &spec.Resources{Containers: run.resources.Containers}); err != nil {
		return err
	}
	for _, c := range run.test.Spec.Given {
		for _, item := range c.Items {
			// nil where it was refused: that is a failure of the test, which is noted, and no error.
			if !run.do(ctx, &spec.TestOperation{Kind: "upsert", Container: c.Container, Item: item}) {
				return ctx.Err()
			}
		}
	}
	if len(run.resources.Pipelines) > 0 {
		if _, err := run.registry.Apply(ctx, &spec.Resources{Pipelines: run.resources.Pipelines}); err != nil {
			return err
		}
	}
	// Else the first step would race with the backfill of what was given.
	if err := run.rest(ctx); err != nil || !run.result.Passed {
		return err
	}
	for run.step = range run.test.Spec.Steps {
		if err := run.one(ctx, &run.test.Spec.Steps[run.step]); err != nil || !run.result.Passed {
			return err
		}
	}
	return nil
}

// one does one step.
func (run *testRun) one(ctx context.Context, step *spec.TestStep) error {
	for i := range step.Change {
		for left := step.Change[i].Operations; len(left) > 0; {
			n := together(left)
			for j := range left[:n] {
				if !run.do(ctx, &left[j]) {
					return ctx.Err()
				}
			}
			if err := run.rest(ctx); err != nil || !run.result.Passed {
				return err
			}
			left = left[n:]
		}
	}
	if err := run.expectItems(ctx, step); err != nil {
		return err
	}
	return run.expectRows(ctx, step)
}

// together is how many of the first operations are carried out without a rest between
// them: those of one kind on one container.
func together(operations []spec.TestOperation) int {
	// Two upserts of products are carried out together. A rename that stands behind them waits
	// until their copies are made: which of the two is seen first would be luck.
	n := 1
	for n < len(operations) && operations[n].Kind == operations[0].Kind && operations[n].Container == operations[0].Container {
		n++
	}
	return n
}

// fail notes what is not as expected, at a path of the test.
func (run *testRun) fail(path string, f Failure) {
	f.Step = run.step + 1
	if f.Place = run.test.At(path).String(); run.step >= 0 {
		f.StepName = run.test.Spec.Steps[run.step].Name
	}
	run.result.Passed = false
	run.result.Failures = append(run.result.Failures, f)
}

// do carries out an operation; false if it was refused, which is a failure.
func (run *testRun) do(ctx context.Context, o *spec.TestOperation) bool {
	c, err := run.client.Container(ctx, run.database, o.Container)
	if err == nil {
		err = run.operate(ctx, c, o)
	}
	if err == nil {
		return true
	}
	if ctx.Err() == nil {
		run.fail(o.Item.Path, Failure{What: o.Container + " " + itemName(o.Item.Body), Message: fmt.Sprintf("%s was refused: %s", o.Kind, err)})
	}
	return false
}

func (run *testRun) operate(ctx context.Context, c *store.Container, o *spec.TestOperation) error {
	body := o.Item.Body
	id, _ := document.ID(body)
	key, err := c.KeyOf(body)
	if err != nil {
		return err
	}
	switch o.Kind {
	case "create":
		_, err = c.Create(ctx, body)
	case "replace":
		_, err = c.Replace(ctx, id, body)
	case "upsert":
		_, err = c.Upsert(ctx, body)
	case "delete":
		err = c.Delete(ctx, key, id)
	case "patch":
		var ops []document.Op
		if ops, err = patchOf(body, c.Info().Spec.PartitionKey); err == nil {
			_, err = c.Patch(ctx, key, id, ops)
		}
	}
	return err
}

// patchOf returns the operations that give an item the fields of body: all but the id
// and those that hold the partition key.
func patchOf(body []byte, partitionKey []string) ([]document.Op, error) {
	var keys []document.Path
	for _, pointer := range partitionKey {
		path, err := document.ParsePointer(pointer)
		if err != nil {
			return nil, err
		}
		keys = append(keys, path)
	}
	var ops []document.Op
	var bad error
	document.Members(body, func(name, raw []byte) bool {
		path, err := document.ParseField(string(name))
		if err != nil {
			bad = err
			return false
		}
		// These say which item is meant, and an item cannot change them.
		if string(name) == "id" || spec.Touches(path, keys) {
			return true
		}
		op := document.Op{Kind: document.OpSet, Path: path.Pointer(), Value: slices.Clone(raw)}
		// A test has no other way to remove a field. One that is to hold null is replaced.
		if document.KindOf(raw) == document.Null {
			op.Kind, op.Value = document.OpRemove, nil
		}
		ops = append(ops, op)
		return true
	})
	return ops, bad
}

// itemName names an item of a test by its id.
func itemName(body []byte) string {
	id, _ := document.ID(body)
	return id
}
