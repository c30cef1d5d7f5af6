// Package demo shows what Millrace is for, on a shop: products carry copies of
// their category's name and of their tags' names, customers the count and the worth
// of their orders, categories their sales, and analysts flat tables of it all; and
// the copies stay true while names change and orders and products are written.
//
//	declare ─▶ load ─▶ before ─▶ rename, order, write ─▶ last copy ─▶ after ─▶ totals ─▶ verify
//
// What every copy must be is known without asking the store: the demo keeps the
// names that it wrote and adds up the orders itself, and compares all products and
// customers with them.
package demo

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/cmd/millrace/webstore"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/store"
)

// Config says what to show. Zero fields take their defaults.
type Config struct {
	// Dir is where the analysts' tables go.
	Dir string
	// DataDir is a directory of WebStore files; "" generates a shop from Store.
	DataDir string
	// Store sizes the generated shop.
	Store webstore.Config
	// Writers is how many writes are under way at a time. Default 64.
	Writers int
	// Renames bounds the categories and tags that are renamed. Default 250; the
	// most copied ones are.
	Renames int
	// CopiesTimeout is how long to wait for the last copy. Default 5m, for machines that
	// have much else to do.
	CopiesTimeout time.Duration
	// Screen shows what happens.
	Screen Screen

	Client   *store.Client
	Registry *registry.Registry
	JS       jetstream.JetStream
	Bucket   string // of the leases; "" is the default
	Log      feed.LogConfig
}

// Screen shows a demo. Its methods are called by one goroutine at a time.
type Screen interface {
	// Step tells that a step is done and what it did.
	Step(name, what string, took time.Duration)
	// Live shows the progress of a step that is under way.
	Live(name, what string)
	// Say shows lines of text.
	Say(lines ...string)
}

// Report is the outcome in figures.
type Report struct {
	Shop       string `json:"shop"`
	Categories int    `json:"categories"`
	Tags       int    `json:"tags"`
	Products   int    `json:"products"`
	Customers  int    `json:"customers"`
	Orders     int    `json:"orders"`

	LoadItems     int     `json:"loadItems"`
	LoadPerSecond float64 `json:"loadPerSecond"`

	Renames         int     `json:"renames"`
	Writes          int     `json:"writes"` // beside the renames, while they ran
	WritesPerSecond float64 `json:"writesPerSecond"`
	Copies          int64   `json:"copies"` // that changed because of the renames
	CopiesPerSecond float64 `json:"copiesPerSecond"`
	LagMax          uint64  `json:"lagMax"` // commits
	// LastCopySeconds is the time from the last acknowledged write to the last
	// copy that followed.
	LastCopySeconds float64 `json:"lastCopySeconds"`
	// FreshnessMillis are the times from an acknowledged rename to its copy in one
	// product, when nothing else happens: the middle one and the slowest.
	FreshnessMillis    float64 `json:"freshnessMillis"`
	FreshnessMaxMillis float64 `json:"freshnessMaxMillis"`

	// Totals are the customers whose count, worth and newest order were added up
	// again and found right.
	Totals int `json:"totals"`

	Verify *verify.Report `json:"verify"`
}

// demo is one run.
type demo struct {
	cfg    Config
	shop   *shop
	report *Report

	meta, products, customers *store.Container
}

// Run runs the demo. With an error it returns the report of the steps before.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if cfg.Writers <= 0 {
		cfg.Writers = 64
	}
	if cfg.Renames <= 0 {
		cfg.Renames = 250
	}
	if cfg.CopiesTimeout <= 0 {
		cfg.CopiesTimeout = 5 * time.Minute
	}
	d := &demo{cfg: cfg, report: &Report{}}
	// freshness times single renames, so it comes when nothing else moves. verify is last, to find
	// what any step left wrong.
	for _, step := range []func(context.Context) error{
		d.readShop, d.declare, d.load, d.awaitLoaded, d.rename, d.totals, d.freshness, d.verify,
	} {
		if err := step(ctx); err != nil {
			return d.report, err
		}
	}
	return d.report, nil
}

// readShop generates or reads the shop.
func (d *demo) readShop(context.Context) (err error) {
	began := time.Now()
	if d.cfg.DataDir != "" {
		d.shop, err = fromDir(d.cfg.DataDir)
	} else {
		d.shop, err = generated(d.cfg.Store)
	}
	if err != nil {
		return err
	}
	if err := d.shop.count(); err != nil {
		return err
	}
	r, s := d.report, d.shop
	r.Shop, r.Categories, r.Tags, r.Products, r.Customers, r.Orders = s.from, s.categories, s.tags, s.products, s.customers, len(s.orders)
	d.cfg.Screen.Step("Shop", fmt.Sprintf("%s categories, %s tags, %s products, %s customers, %s orders; %s",
		format.Count(s.categories), format.Count(s.tags), format.Count(s.products), format.Count(s.customers), format.Count(len(s.orders)), s.from), time.Since(began))
	return nil
}

// declare applies the embedded declarations.
func (d *demo) declare(ctx context.Context) error {
	began := time.Now()
	declared := &spec.Resources{}
	dir := configs.WebStore()
	names, err := fs.Glob(dir, "*.yaml")
	if err != nil {
		return err
	}
	for _, name := range names {
		data, err := fs.ReadFile(dir, name)
		if err != nil {
			return err
		}
		part, err := spec.Decode(name, data)
		if err != nil {
			return err
		}
		declared.Containers = append(declared.Containers, part.Containers...)
		declared.Pipelines = append(declared.Pipelines, part.Pipelines...)
	}
	for i := range declared.Pipelines {
		if p := declared.Pipelines[i].Spec.Project; p != nil && p.Sink.Parquet != nil {
			if p.Sink.Parquet.Path, err = filepath.Abs(filepath.Join(d.cfg.Dir, p.Sink.Parquet.Path)); err != nil {
				return err
			}
			// The tables are up to one interval behind, and the demo waits for them more than once.
			p.Sink.Parquet.CommitInterval = spec.Duration(time.Second)
		}
	}
	if _, err := d.cfg.Registry.Apply(ctx, declared); err != nil {
		return err
	}
	for _, open := range []struct {
		name string
		into **store.Container
	}{
		{webstore.ContainerProductMeta, &d.meta},
		{webstore.ContainerProduct, &d.products},
		{webstore.ContainerCustomer, &d.customers},
	} {
		if *open.into, err = d.cfg.Client.Container(ctx, spec.DatabaseDefault, open.name); err != nil {
			return err
		}
	}
	d.cfg.Screen.Step("Declare", fmt.Sprintf("%d containers and %d pipelines, those of configs/webstore",
		len(declared.Containers), len(declared.Pipelines)), time.Since(began))
	return nil
}

func (d *demo) container(name string) *store.Container {
	switch name {
	case webstore.ContainerProductMeta:
		return d.meta
	case webstore.ContainerProduct:
		return d.products
	}
	return d.customers
}

// load writes the items that are there before the first rename.
func (d *demo) load(ctx context.Context) error {
	began := time.Now()
	var ops []op
	for _, it := range d.shop.first {
		ops = append(ops, d.put(it))
	}
	err := d.run(ctx, ops, func(done int) {
		d.cfg.Screen.Live("Load", fmt.Sprintf("%s of %s items", format.Count(done), format.Count(len(ops))))
	})
	took := time.Since(began)
	d.report.LoadItems, d.report.LoadPerSecond = len(ops), float64(len(ops))/took.Seconds()
	if err != nil {
		return err
	}
	d.cfg.Screen.Step("Load", fmt.Sprintf("%s items, %s/s, each write on disk before it is acknowledged",
		format.Count(len(ops)), format.Count(int(d.report.LoadPerSecond))), took)
	return nil
}

// awaitLoaded waits until the pipelines have looked at all that was loaded, so that
// what comes next is measured by itself.
func (d *demo) awaitLoaded(ctx context.Context) error {
	began := time.Now()
	monitor := d.monitor()
	defer monitor.Close()
	deadline := began.Add(d.cfg.CopiesTimeout)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		status, err := monitor.Read(ctx)
		if err != nil {
			return err
		}
		if idle(status) {
			d.cfg.Screen.Step("Settle", "every pipeline has read all of it and made the copies that follow", time.Since(began))
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the pipelines are not done after %s: %s%s", d.cfg.CopiesTimeout, lagText(status), reasons(status))
		}
		d.cfg.Screen.Live("Settle", lagText(status))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// idle says whether no pipeline has anything left to do.
func idle(s *status.Status) bool {
	for i := range s.Pipelines {
		if s.Pipelines[i].State != status.Idle {
			return false
		}
	}
	return true
}

// lagText says what is left to do.
func lagText(s *status.Status) string {
	fanOuts := 0
	for i := range s.Pipelines {
		fanOuts += len(s.Pipelines[i].FanOuts)
	}
	return fmt.Sprintf("lag %s commits, %s fan-outs open", format.Count(lagOf(s)), format.Count(fanOuts))
}

// reasons says what the pipelines wait for, where they know it.
func reasons(s *status.Status) string {
	var b strings.Builder
	for i := range s.Pipelines {
		p := &s.Pipelines[i]
		if p.Reason != "" {
			fmt.Fprintf(&b, "; %s is %s: %s", p.Name, p.State, p.Reason)
		}
		if len(p.FanOuts) > 0 && p.FanOuts[0].LastError != "" {
			fmt.Fprintf(&b, "; %s of %s: %s", p.Name, p.FanOuts[0].Source, p.FanOuts[0].LastError)
		}
	}
	return b.String()
}

// lagOf adds up the commits that the pipelines have still to read.
func lagOf(s *status.Status) (commits uint64) {
	for i := range s.Pipelines {
		commits += s.Pipelines[i].Lag.Commits
	}
	return commits
}

func (d *demo) monitor() *status.Monitor {
	return status.NewMonitor(d.cfg.JS, d.cfg.Registry, status.MonitorConfig{Bucket: d.cfg.Bucket, Log: d.cfg.Log})
}

// verify lets Millrace compare all copies with their sources.
func (d *demo) verify(ctx context.Context) error {
	report, err := verify.New(d.cfg.JS, d.cfg.Registry, d.cfg.Client, verify.Config{Bucket: d.cfg.Bucket}).Verify(ctx)
	if err != nil {
		return err
	}
	d.report.Verify = report
	var copies int64
	for _, p := range report.Pipelines {
		copies += p.Copies
	}
	d.cfg.Screen.Step("Verify", fmt.Sprintf("%s: %s copies recomputed from their sources", report.Verdict, format.Count(int(copies))), report.Duration)
	return nil
}
