package configs

import (
	"fmt"

	"github.com/millrace/millrace/store/owner"
)

// MemoryLimitMin is the least Memory.Limit.
const MemoryLimitMin = 400 << 20

// Memory bounds what the process takes of the machine's memory.
type Memory struct {
	// Limit is how much memory the process may take, mapped files included, in
	// bytes; at least 400 MiB. The garbage collector works harder near it, tables in
	// memory, caches, rings and what is read ahead are smaller where they are not set,
	// and what is mapped beyond a quarter is left to the system's page cache. It is no
	// wall: what requests and pipelines need at once is not refused for it. Default:
	// GOMEMLIMIT of the environment counts, else no limit.
	Limit int64 `yaml:"limit"`
}

// fit makes what is held in memory fit the limit where it is not set.
func (c *Config) fit() error {
	limit := c.Memory.Limit
	if limit == 0 {
		return nil
	}
	if limit < MemoryLimitMin {
		return fmt.Errorf("memory.limit is %d bytes; at least 400MiB is expected", limit)
	}
	const mib = 1 << 20
	// At 400 MiB: 100 MiB of queries, up to three tables in memory, 25 MiB of what aggregates read again and
	// again, 12.5 MiB of rows for Parquet, and for each partition 6.25 MiB in its ring,
	// 1.6 MiB on the way to a reader and 3.1 MiB ahead of a pipeline. From 2 GiB on all of
	// these are the defaults.
	smaller := func(field *int, part int64, most int) {
		if *field == 0 {
			*field = min(most, max(mib, int(limit/part)))
		}
	}
	if c.Engine.MemTables == 0 && limit < 1<<30 {
		c.Engine.MemTables = 2
	}
	smaller(&c.Feed.Hub.RingBytesMax, 64, 16*mib)
	smaller(&c.Feed.Hub.Tail.BytesMax, 256, 4*mib)
	smaller(&c.Processors.ReadAheadBytes, 128, 8*mib)
	smaller(&c.Store.RuleCacheBytes, 16, 32*mib)
	smaller(&c.Store.QueriesBytesMax, 4, owner.QueriesBytesDefault)
	smaller(&c.Sinks.Parquet.BufferBytesMax, 32, 64*mib)
	return nil
}
