package inspect

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// Change is a change as commands print it.
type Change struct {
	Partition string `json:"partition,omitempty"`
	Position  string `json:"position,omitempty"`
	// LSN takes the place of partition and position where an endpoint tells no more. An
	// endpoint does not tell the operation either.
	LSN  uint64          `json:"lsn,omitempty"`
	Time time.Time       `json:"time"`
	Op   string          `json:"op,omitempty"`
	Key  json.RawMessage `json:"partitionKey"`
	ID   string          `json:"id"`
	// Pipeline made the change, if a pipeline did; Trace is the trace that it
	// belongs to.
	Pipeline string          `json:"pipeline,omitempty"`
	Trace    string          `json:"trace,omitempty"`
	Item     json.RawMessage `json:"item,omitempty"`
	Before   json.RawMessage `json:"before,omitempty"`
}

// NewChange returns a change as commands print it, with what it replaced if before is set.
func NewChange(partition feed.Partition, commit *feed.Commit, t *feed.Transaction, at feed.Position, c *feed.Change, before bool) (*Change, error) {
	v := &Change{
		Partition: partition.String(), Position: at.String(), Time: time.UnixMilli(commit.Time).UTC(),
		Op: opName(c.Op), Key: json.RawMessage(c.Key.String()), ID: c.ID, Item: c.After,
	}
	if t.Effect != nil {
		v.Pipeline = t.Effect.Producer.Pipeline
	}
	if sc := store.ParseTraceContext(t.TraceParent, ""); sc.IsValid() {
		v.Trace = sc.TraceID().String()
	}
	if before {
		body, err := c.BeforeBody()
		if err != nil {
			return nil, fmt.Errorf("change %s of %s: %w", at, partition, err)
		}
		v.Before = body
	}
	return v, nil
}

func opName(op feed.Op) string {
	switch op {
	case feed.OpCreate:
		return "create"
	case feed.OpReplace:
		return "replace"
	case feed.OpDelete:
		return "delete"
	case feed.OpExpire:
		return "expire"
	}
	return fmt.Sprintf("op %d", op)
}
