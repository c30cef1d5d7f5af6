package aggregate

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// Defaults of Config.
const (
	FoldBytesDefault      = 1 << 20
	RecordIntervalDefault = 5 * time.Second
)

// Config declares one aggregate. Zero limits take their defaults.
type Config struct {
	// Pipeline and Generation identify the aggregate's writes and its rule in the
	// partitions of the target.
	Pipeline   string
	Generation uint32

	// Source is where the members are, Target where the fields are. They may be one
	// container.
	Source, Target *store.Container
	// Spec is what the fields say of the members.
	Spec accumulator.Spec

	// FoldBytesMax bounds the shares, in bytes, that one request brings to a
	// partition; a single change that means more goes alone. Default 1 MiB.
	FoldBytesMax int

	// RecordInterval is the time between two looks for partitions to which nothing
	// was sent for a while: there the position is recorded, so that one that is
	// restored older is noticed by the next term. Default 5s; negative is never.
	RecordInterval time.Duration
}

func (c Config) withDefaults() (Config, error) {
	if c.FoldBytesMax == 0 {
		c.FoldBytesMax = FoldBytesDefault
	}
	if c.RecordInterval == 0 {
		c.RecordInterval = RecordIntervalDefault
	}
	if c.FoldBytesMax < 0 {
		return c, fmt.Errorf("aggregate: foldBytesMax is %d; it must not be negative", c.FoldBytesMax)
	}
	return c, nil
}
