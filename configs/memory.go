package configs

import "fmt"

// MemoryLimitMin is the least Memory.Limit.
const MemoryLimitMin = 256 << 20

// Memory bounds what the process takes of the machine's memory.
type Memory struct {
	// Limit is how much memory the process may take, mapped files included, in
	// bytes; at least 256 MiB. The garbage collector works harder near it, and
	// tables in memory, rings and what is read ahead are smaller where they are not
	// set. It is no wall: what requests and pipelines need at once is not refused
	// for it. Default: GOMEMLIMIT of the environment counts, else no limit.
	Limit int64 `yaml:"limit"`
}

// GoLimit is the part of Limit that is Go's: a quarter is left for mapped files,
// which the system takes back where it needs memory, and 48 MiB for the program
// itself. 0 without a limit.
func (m Memory) GoLimit() int64 {
	if m.Limit == 0 {
		return 0
	}
	return m.Limit - m.Limit/4 - 48<<20
}

// fit makes what is held in memory fit the limit where it is not set.
func (c *Config) fit() error {
	limit := c.Memory.Limit
	if limit == 0 {
		return nil
	}
	if limit < MemoryLimitMin {
		return fmt.Errorf("memory.limit is %d bytes; at least 256MiB is expected", limit)
	}
	const mib = 1 << 20
	// At 256 MiB: tables of 8 MiB, of which up to five are in memory, and for each
	// partition 4 MiB in its ring, 1 MiB on the way to a reader and 2 MiB ahead of a
	// pipeline. From 2 GiB on all of these are the defaults.
	smaller := func(field *int, part int64, most int) {
		if *field == 0 {
			*field = min(most, max(mib, int(limit/part)))
		}
	}
	if c.Engine.MemTableBytes == 0 {
		c.Engine.MemTableBytes = min(32*mib, max(8*mib, limit/64))
	}
	smaller(&c.Feed.Hub.RingBytesMax, 64, 16*mib)
	smaller(&c.Feed.Hub.Tail.BytesMax, 256, 4*mib)
	smaller(&c.Processors.ReadAheadBytes, 128, 8*mib)
	return nil
}
