package pipelines

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// AuditConfig tunes the continuous verification. Zero fields take their defaults.
type AuditConfig struct {
	// Continuous says whether one worker of the group verifies all pipelines for
	// ever, one after the other: on or off. Default on.
	Continuous string `yaml:"continuous"`

	// SharePercent is the part of its time in which it works: it rests for the other
	// part after each page. It does one thing at a time, so this is the share of one
	// processor, the store that answers it included. Default 2, at most 100.
	SharePercent int `yaml:"sharePercent"`

	// Interval is the least time between the beginnings of two rounds over all
	// pipelines. Default 30s.
	Interval time.Duration `yaml:"interval"`

	// BytesMax bounds its memory for the groups or rows of one pipeline, in bytes;
	// what is more takes several passes. Default 64 MiB.
	BytesMax int `yaml:"bytesMax"`
}

// On says whether there is to be a continuous verification.
func (c *AuditConfig) On() bool { return c.Continuous != "off" && c.Continuous != "false" }

// Check returns what is wrong with the configuration, nil if nothing is.
func (c *AuditConfig) Check() error {
	var errs []error
	if !slices.Contains([]string{"", "on", "off", "true", "false"}, c.Continuous) {
		errs = append(errs, fmt.Errorf("verify.continuous is %q; on or off is expected", c.Continuous))
	}
	if c.SharePercent < 0 || c.SharePercent > 100 {
		errs = append(errs, fmt.Errorf("verify.sharePercent is %d; 1 to 100 are expected", c.SharePercent))
	}
	if c.Interval < 0 || c.BytesMax < 0 {
		errs = append(errs, errors.New("verify.interval and verify.bytesMax must not be negative"))
	}
	return errors.Join(errs...)
}

func (c AuditConfig) withDefaults() AuditConfig {
	if c.SharePercent <= 0 {
		c.SharePercent = 2
	}
	c.SharePercent = min(c.SharePercent, 100)
	if c.Interval <= 0 {
		c.Interval = 30 * time.Second
	}
	if c.BytesMax <= 0 {
		c.BytesMax = 64 << 20
	}
	return c
}

// Auditor verifies all pipelines for ever, in a small share of its time, and tells
// by metrics what it finds:
//
//	millrace.verify.coverage      share of copies that the last pass proved equal
//	millrace.verify.position_age  age of the oldest state that the last full proof was of
//	millrace.verify.drift         copies that the last pass found to differ for no reason
//
// each for each pipeline. It mends nothing: what it finds it logs, and millrace
// repair mends. It is safe to run two at a time, which costs twice the work.
type Auditor struct {
	verifier *Verifier
	registry *Registry
	cfg      AuditConfig
	log      *slog.Logger

	mu     sync.Mutex
	audits map[string]*audit // by pipeline id
}

// audit is what was found of one pipeline.
type audit struct {
	title    string
	coverage float64
	drift    int64
	proved   time.Time // when the last pass began that proved all; zero if none did
	began    time.Time // when it was first seen
}

// NewAuditor returns an Auditor of the pipelines in registry. bucket holds the
// leases; "" is leases.DefaultBucket.
func NewAuditor(js jetstream.JetStream, registry *Registry, client *store.Client, bucket string, cfg AuditConfig, log *slog.Logger) *Auditor {
	if log == nil {
		log = slog.Default()
	}
	cfg = cfg.withDefaults()
	v := NewVerifier(js, registry, client, VerifyConfig{
		Bucket: bucket, BytesMax: cfg.BytesMax, PartitionsMax: 1, PageItems: auditPageItems, ListMax: auditListMax,
		PollInterval: auditPollInterval,
	})
	return &Auditor{verifier: v, registry: registry, cfg: cfg, log: log, audits: map[string]*audit{}}
}

const (
	// auditPageItems keeps the auditor from occupying an owner for long.
	auditPageItems = 200
	// auditPollInterval keeps it from reading the leases often.
	auditPollInterval = 500 * time.Millisecond
	// auditListMax is how many differences of each kind and pipeline are logged.
	auditListMax = 5
)

// Run verifies until ctx ends. turned is called often, to show that it is alive.
func (a *Auditor) Run(ctx context.Context, turned func()) error {
	forget, err := observeAudits(a.each)
	if err != nil {
		return err
	}
	defer forget()
	paced := *a.verifier
	paced.pacer = &pacer{share: float64(a.cfg.SharePercent) / 100, turned: turned, since: time.Now()}
	pauses := processors.NewPauses()
	for ctx.Err() == nil {
		began := time.Now()
		err := a.round(ctx, &paced)
		turned()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			a.log.DebugContext(ctx, "a round of the continuous verification failed", slog.Any("error", err))
			_ = pauses.Wait(ctx, err) // that ctx has ended is seen above
		default:
			pauses.Reset()
			_ = paced.pacer.rest(ctx, a.cfg.Interval-time.Since(began)) // likewise
		}
	}
	return nil
}

// round verifies every pipeline once.
func (a *Auditor) round(ctx context.Context, v *Verifier) error {
	records, err := a.registry.List(ctx)
	if err != nil {
		return err
	}
	a.keep(records)
	for i := range records {
		rec := &records[i]
		began := time.Now()
		v.pacer.resume()
		report, err := v.run(ctx, nil, []Metadata{rec.Metadata()})
		switch {
		case err == nil:
			a.note(ctx, rec, &report.Pipelines[0], began)
		case ctx.Err() != nil:
			return ctx.Err()
		default:
			a.log.WarnContext(ctx, "a pipeline cannot be verified", slog.String("pipeline", rec.Metadata().String()), slog.Any("error", err))
		}
	}
	return nil
}

// keep forgets pipelines that are gone.
func (a *Auditor) keep(records []Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.audits
	a.audits = make(map[string]*audit, len(records))
	for i := range records {
		rec := &records[i]
		if a.audits[rec.ID] = was[rec.ID]; was[rec.ID] == nil {
			title := PipelineReport{Database: rec.Database, Name: rec.Name}
			a.audits[rec.ID] = &audit{title: title.title(), began: time.Now()}
		}
	}
}

// note takes over what was found of a pipeline.
func (a *Auditor) note(ctx context.Context, rec *Record, r *PipelineReport, began time.Time) {
	a.mu.Lock()
	one := a.audits[rec.ID]
	before := one.drift
	one.drift = r.Drift
	one.coverage = r.coverage()
	if r.Verdict == VerdictEqual {
		one.proved = began
	}
	a.mu.Unlock()
	if r.Drift > 0 && r.Drift != before {
		examples := make([]string, 0, auditListMax)
		for i := range r.Differences {
			if r.Differences[i].Kind == DifferenceDrift {
				examples = append(examples, r.Differences[i].String())
			}
		}
		a.log.ErrorContext(ctx, "copies differ from their sources for no reason; millrace verify lists them, millrace repair mends them",
			slog.String("pipeline", rec.Metadata().String()), slog.Int64("drift", r.Drift), slog.Any("examples", examples))
	}
}

// coverage is the share of copies and groups that were proved to be equal, 0 if the
// pipeline could not be judged.
func (r *PipelineReport) coverage() float64 {
	all := r.Copies + r.Groups
	switch {
	case r.Reason != "":
		return 0
	case all == 0:
		return 1
	}
	return float64(max(all-r.Drift-r.Behind, 0)) / float64(all)
}

// each tells what was found of each pipeline.
func (a *Auditor) each(f func(title string, coverage, age float64, drift int64)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.audits {
		since := one.proved
		if since.IsZero() {
			since = one.began
		}
		f(one.title, one.coverage, time.Since(since).Seconds(), one.drift)
	}
}
