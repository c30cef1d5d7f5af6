package judge

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Group is writers and readers at work. Its methods are for one goroutine.
type Group struct {
	ctx     context.Context //nolint:containedctx // the scope of those at work, which Stop ends
	cancel  context.CancelFunc
	running sync.WaitGroup
	names   []string
	readers map[string][]*Reader
}

// NewGroup returns an empty group, which ends with ctx or by Stop.
func NewGroup(ctx context.Context) *Group {
	g := &Group{readers: map[string][]*Reader{}}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

// Write sets the writer of a register to work.
func (g *Group) Write(r *Register, every time.Duration, write func(ctx context.Context, version uint64) error) {
	g.running.Go(func() { r.Write(g.ctx, every, write) })
}

// Read sets a reader to work whose verdict counts for name.
func (g *Group) Read(name string, r *Register, every time.Duration, read func(ctx context.Context) (version uint64, err error)) {
	d := NewReader(r, read)
	if !slices.Contains(g.names, name) {
		g.names = append(g.names, name)
	}
	g.readers[name] = append(g.readers[name], d)
	g.running.Go(func() { d.Run(g.ctx, every) })
}

// Stop ends all and waits for them.
func (g *Group) Stop() {
	g.cancel()
	g.running.Wait()
}

// Names are those that readers count for, in the order in which they came.
func (g *Group) Names() []string { return g.names }

// Verdict is that of all readers of a name.
func (g *Group) Verdict(name string) (sum Verdict) {
	for _, d := range g.readers[name] {
		v := d.Verdict()
		sum.Reads += v.Reads
		sum.Failed += v.Failed
		sum.Errors = append(sum.Errors, v.Errors...)
		sum.Wrong = append(sum.Wrong, v.Wrong...)
	}
	return sum
}
