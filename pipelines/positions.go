package pipelines

import (
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/processors"
)

// positions is how far processors have come, by the names of their leases.
type positions map[string]*processors.Checkpoint

// progressOf reads the checkpoints of leases. One that cannot be read has come
// nowhere.
func progressOf(held []leases.Lease) positions {
	at := positions{}
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

// passed tells whether the readers of a generation's source have come to goals.
func (r *Record) passed(b *bound, at positions, goals []Start) bool {
	for _, reader := range r.readersOf(processors.RoleSource, b.source) {
		goal := positionOf(goals, reader.Partition.Number).LSN
		position := positionOf(r.From, reader.Partition.Number)
		if cp := at[reader.String()]; cp != nil {
			position = cp.Position
		}
		if position.LSN < goal {
			return false
		}
	}
	return true
}

// stewardResource is the lease of the steward, one for all pipelines.
const stewardResource = "steward"
