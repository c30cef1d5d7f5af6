package node

import (
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/millrace/millrace/configs"
)

// gcPercent is how much garbage may gather beside what is in use before it is
// collected. With Go's default of 100 a process takes twice what is in use. The
// collector works about twice as often for it; at 100 it took 2 % of the CPU of an
// import.
const gcPercent = 50

// limitMemory applies the memory limit to Go's runtime. What the environment says
// in GOGC and GOMEMLIMIT counts where the configuration says nothing.
func limitMemory(m configs.Memory, log *slog.Logger) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if limit := m.GoLimit(); limit > 0 {
		debug.SetMemoryLimit(limit)
		log.Info("memory is limited", slog.Int64("limit", m.Limit), slog.Int64("heap", limit))
	}
}
