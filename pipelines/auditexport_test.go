package pipelines

import (
	"context"
	"log/slog"
	"time"

	"github.com/millrace/millrace/store"
)

// Patrol verifies all pipelines continuously until ctx ends, without a lease.
// passed tells how many pipelines were verified.
func Patrol(ctx context.Context, registry *Registry, client *store.Client, cfg AuditConfig) (passed int, err error) {
	w, err := registry.World(ctx)
	if err != nil {
		return 0, err
	}
	a := newAuditor(registry, client, func() (World, bool) { return w, true }, "", cfg, time.Second, slog.New(slog.DiscardHandler))
	lease := &passes{}
	err = a.run(ctx, lease)
	return lease.saved, err
}

// passes counts what is saved.
type passes struct{ saved int }

func (*passes) Checkpoint() []byte { return nil }

func (*passes) Progress() {}

func (p *passes) Save(context.Context, []byte) error {
	p.saved++
	return nil
}

// AdmitSink says whether a worker with these limits may write the files of a pipeline.
func AdmitSink(ctx context.Context, limits *SinkLimits, rec *Record) error {
	return limits.admit(ctx, rec)
}
