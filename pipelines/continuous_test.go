package pipelines_test

import (
	"context"
	"log/slog"
	"time"

	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/store"
)

// verifyContinuously verifies all pipelines continuously until ctx ends, without a lease.
// passed tells how many pipelines were verified.
func verifyContinuously(ctx context.Context, reg *registry.Registry, client *store.Client, cfg verify.ContinuousConfig) (passed int, err error) {
	w, err := reg.World(ctx)
	if err != nil {
		return 0, err
	}
	a := verify.NewContinuous(reg, client, func() (registry.World, bool) { return w, true }, "", cfg, time.Second, slog.New(slog.DiscardHandler))
	lease := &passes{}
	err = a.Run(ctx, lease)
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
