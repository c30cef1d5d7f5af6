package inspect

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
)

const (
	// fieldsMax is how many fields are told of one version.
	fieldsMax = 100
	// valueBytesMax is how much is told of one value, in bytes.
	valueBytesMax = 200
)

// Version is one version of an item: a change, and what it made different.
type Version struct {
	Position string     `json:"position"`
	LSN      feed.LSN   `json:"lsn"`
	ETag     store.ETag `json:"etag"`
	Time     time.Time  `json:"time"`
	Op       string     `json:"op"`
	Writer   Writer     `json:"writer"`
	// Trace is the trace that the change belongs to; "" if its writer told none.
	Trace string `json:"trace,omitempty"`
	// Together is how many other changes its transaction has.
	Together int `json:"together,omitempty"`
	// Bytes is the size of the item as it was then; 0 where the change removed it.
	Bytes int `json:"bytes"`
	// Fields are those that differ from the version before; of a create all fields, and so of what
	// removed the item. More is how many are left out.
	Fields []FieldChange `json:"fields"`
	More   int           `json:"more,omitempty"`
}

// FieldChange is a field before and after a change. Nil is a field that was not there.
type FieldChange struct {
	Field  string `json:"field"`
	Before *Value `json:"before,omitempty"`
	After  *Value `json:"after,omitempty"`
}

// Value is a value of an item, of a long one the beginning.
type Value struct {
	JSON json.RawMessage `json:"value,omitempty"`
	// Beginning stands in place of JSON for a value of many bytes.
	Beginning string `json:"beginning,omitempty"`
	Bytes     int    `json:"bytes,omitempty"`
}

func newValue(raw []byte) *Value {
	switch {
	case raw == nil:
		return nil
	case len(raw) > valueBytesMax:
		return &Value{Beginning: document.Excerpt(string(raw), valueBytesMax), Bytes: len(raw)}
	}
	return &Value{JSON: json.RawMessage(string(raw))} // a copy: the commit is not kept for it
}

// String prints a value, and the size of one that was cut; "absent" for nil.
func (v *Value) String() string {
	switch {
	case v == nil:
		return "absent"
	case v.Bytes > 0:
		return fmt.Sprintf("%s (%s bytes)", v.Beginning, format.Count(v.Bytes))
	}
	return string(v.JSON)
}

// WriterKind is who makes changes.
type WriterKind string

// The kinds of writers.
const (
	WrittenByClient   WriterKind = "client"
	WrittenByPipeline WriterKind = "pipeline"
	// WrittenByExpiry: the owner removed the item because its time to live had passed.
	WrittenByExpiry WriterKind = "expiry"
)

// Writer is who made a change. All but Kind and Folds is of a pipeline.
type Writer struct {
	Kind WriterKind `json:"kind"`
	// Database and Pipeline name the pipeline; Database is "" if it is not there any more, and
	// Pipeline its id then.
	Database   string `json:"database,omitempty"`
	Pipeline   string `json:"pipeline,omitempty"`
	Generation uint32 `json:"generation,omitempty"`
	// Feed is the physical partition whose feed was read, behind the role in which it was:
	// source:c7k2x4ab/0.
	Feed string `json:"feed,omitempty"`
	// Container and Item are the source of a copy, where the fan-out of its change made it;
	// Container is "" if the pipeline's source is another one now.
	Container string `json:"container,omitempty"`
	Item      string `json:"item,omitempty"`
	// Position is that of the change in the feed which was copied, or the last one that was folded;
	// then After is the one behind which the first was.
	Position string `json:"position,omitempty"`
	After    string `json:"after,omitempty"`
	// Folds are the aggregates into which the owner folded the transaction's changes itself.
	Folds []string `json:"folds,omitempty"`
}

// String tells who it is in a line.
func (w Writer) String() string {
	text := string(w.Kind)
	if w.Kind == WrittenByPipeline {
		text = fmt.Sprintf("%s, generation %d", w.Pipeline, w.Generation)
		if source := w.Source(); source != "" {
			text += ", from " + source
		}
	}
	if len(w.Folds) > 0 {
		text += ", folded by " + strings.Join(w.Folds, ", ")
	}
	return text
}

// Source tells in a line what a pipeline's write comes from; "" of other writers.
func (w Writer) Source() string {
	switch {
	case w.Item != "":
		return fmt.Sprintf("%s at %s of %s", w.Item, w.Position, w.Feed)
	case w.Position != "":
		return fmt.Sprintf("%s up to %s of %s", w.After, w.Position, w.Feed)
	}
	return w.Feed
}

// version tells of one change.
func (h *historian) version(t *feed.Transaction, c *feed.Change, at feed.Position) (Version, error) {
	before, err := c.BeforeBody()
	if err != nil {
		return Version{}, fmt.Errorf("change %s of %s: %w", at, h.partition, err)
	}
	v := Version{
		Position: at.String(), LSN: at.LSN, ETag: store.ETag(at), Time: time.UnixMilli(h.commit.Time).UTC(), Op: opName(c.Op),
		Writer: h.writer(t, c), Together: len(t.Changes) - 1, Bytes: len(c.After), Fields: []FieldChange{},
	}
	if sc := store.ParseTraceContext(t.TraceParent, ""); sc.IsValid() {
		v.Trace = sc.TraceID().String()
	}
	// What is not there has no fields: so a create and a removal show each field by itself.
	body := func(raw []byte) []byte {
		if raw == nil {
			return []byte("{}")
		}
		return raw
	}
	document.Diff(nil, body(before), body(c.After), func(path document.Path, old, is []byte) bool {
		if len(v.Fields) == fieldsMax {
			v.More++
		} else {
			v.Fields = append(v.Fields, FieldChange{Field: path.String(), Before: newValue(old), After: newValue(is)})
		}
		return true
	})
	return v, nil
}

// writer tells who made a change.
func (h *historian) writer(t *feed.Transaction, c *feed.Change) Writer {
	w := Writer{Kind: WrittenByClient}
	switch {
	case c.Op == feed.OpExpire:
		w.Kind = WrittenByExpiry
	case t.Effect != nil:
		h.pipeline(&w, t)
		return w // its folds are what it sent
	}
	for i := range t.Folds {
		w.Folds = append(w.Folds, h.nameOf(t.Folds[i].Pipeline))
	}
	return w
}

// pipeline tells of the pipeline that made a transaction.
func (h *historian) pipeline(w *Writer, t *feed.Transaction) {
	producer := t.Effect.Producer
	if parent, _, ok := producer.Parent(); ok {
		producer = parent
	}
	w.Kind, w.Pipeline, w.Generation, w.Feed = WrittenByPipeline, producer.Pipeline, producer.Generation, producer.Source
	rec := h.recordOf(producer.Pipeline)
	if rec != nil {
		w.Database, w.Pipeline = rec.Database, rec.Name
	}
	switch {
	case t.Page != nil:
		w.Item, w.Position = t.Page.Source, t.Page.Position.String()
		_, read, _ := strings.Cut(producer.Source, ":")
		if p, err := feed.ParsePartition(read); err == nil && rec != nil && p.Container == rec.Source {
			w.Container = rec.Spec.Source.Container
		}
	case !t.Effect.UpTo.IsZero():
		w.After, w.Position = t.Effect.After.String(), t.Effect.UpTo.String()
	}
}

// recordOf finds a pipeline by its id; nil if it is not there.
func (h *historian) recordOf(id string) *registry.Record {
	for i := range h.records {
		if h.records[i].ID == id {
			return &h.records[i]
		}
	}
	return nil
}

// nameOf is the name of a pipeline, or its id if it is not there.
func (h *historian) nameOf(id string) string {
	if rec := h.recordOf(id); rec != nil {
		return rec.Name
	}
	return id
}
