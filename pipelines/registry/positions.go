package registry

import (
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/processors"
)

// Positions is how far processors have come, by the names of their leases.
type Positions map[string]*processors.Checkpoint

// ProgressOf reads the checkpoints of leases. One that cannot be read has come
// nowhere.
func ProgressOf(held []leases.Lease) Positions {
	at := Positions{}
	for i := range held {
		if len(held[i].Checkpoint) == 0 {
			continue
		}
		if cp, err := processors.DecodeCheckpoint(held[i].Checkpoint); err == nil {
			at[held[i].Resource] = cp
		}
	}
	return at
}

// Passed tells whether the readers of a generation's source have come to goals.
func (r *Record) Passed(b *Bound, at Positions, goals []Start) bool {
	for _, reader := range r.readersOf(processors.RoleSource, b.Source) {
		goal := PositionOf(goals, reader.Partition.Number).LSN
		position := PositionOf(r.From, reader.Partition.Number)
		if cp := at[reader.String()]; cp != nil {
			position = cp.Position
		}
		if position.LSN < goal {
			return false
		}
	}
	return true
}

// ReconcilerResource is the lease of the reconciler, one for all pipelines.
const ReconcilerResource = "steward"
