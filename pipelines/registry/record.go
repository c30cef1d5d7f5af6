package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
	"github.com/millrace/millrace/store/query"
)

// recordVersion is the newest version of records in the registry; see RECORD.md.
// Version 1 knew cascades only. A record that needs no more than an older version is
// written as that: the release before can go on with it.
const (
	recordVersion        = 5 // it begins with items
	recordVersionTurned  = 4 // expressions of another meaning, which makes a difference
	recordVersionMatch   = 3 // a cascade's match may name several fields of the source
	recordVersionOneEach = 2
)

// Record is one pipeline as it is registered.
type Record struct {
	// ID names this incarnation of the pipeline in leases, producers and dead
	// letters: its name, a dash and a random part. One deleted and made again has
	// another.
	ID       string `json:"id"`
	Database string `json:"database"`
	Name     string `json:"name"`
	// Generation is 1 at first and grows with every change of meaning, which
	// begins the copying anew.
	Generation uint32            `json:"generation"`
	Spec       spec.PipelineSpec `json:"spec"`
	// Source and Target are the containers that the generation was registered
	// for: one made again under the same name is another. A projection has no
	// Target; Tables are the containers of its tables, in their order, and of its
	// rejects, if its sink is of containers.
	Source feed.ResourceID   `json:"source"`
	Target feed.ResourceID   `json:"target,omitempty"`
	Tables []feed.ResourceID `json:"tables,omitempty"`
	// Starts are the positions behind which the target's feed is checked, the
	// ends of its logs when the generation of a cascade was registered. What is
	// older is found by the fan-outs, or by the walk with which the generation begins: then
	// From is Heads, and the first of Backfills is the walk.
	Starts []Start `json:"starts,omitempty"`
	// From are the positions behind which the source's feed is read. A partition
	// that is not named is read from the beginning of its log.
	From []Start `json:"from,omitempty"`
	// RowsFrom are the positions behind which all changes are in the rows of a projection that was
	// set back among them: the rows are older than From. Without them that is From.
	RowsFrom []Start `json:"rowsFrom,omitempty"`
	// Walks are the partitions of the source that are read from items on, and not from the
	// beginning of their logs.
	Walks []Walk `json:"walks,omitempty"`
	// Heads are the ends of the source's logs when the generation was registered,
	// or set back: up to there its reading is a backfill.
	Heads []Start `json:"heads,omitempty"`
	// Rewinds counts how often the generation was set back to From.
	Rewinds uint32 `json:"rewinds,omitempty"`
	// Rule is what the partitions are told of an aggregate. It keeps its words for
	// as long as the generation lasts: accumulators belong to them.
	Rule *accumulator.Spec `json:"rule,omitempty"`
	// Expressions is the query.Meaning that the generation was begun under, or that makes
	// no difference to it; 0 for query.MeaningTyped.
	Expressions query.Meaning `json:"expressions,omitempty"`
	// Published says that the fields of an aggregate's targets follow its
	// accumulators. Until then, in a backfill, they stay as they were.
	Published bool `json:"published,omitempty"`
	// Shadow says that a projection writes beside the rows of Former, and takes
	// their place when it has reached Heads. Former is kept up to date meanwhile.
	Shadow bool    `json:"shadow,omitempty"`
	Former *Former `json:"former,omitempty"`
	// Swapping says that they may have taken that place: it is noted before the sink is asked to
	// do so, and goes, with Shadow and Former, when it is noted that it has.
	Swapping bool `json:"swapping,omitempty"`
	// SwapRefused is why the sink will never put the rows in that place: it has those of a later
	// generation. Those of Former are read on, until another generation takes over.
	SwapRefused string `json:"swapRefused,omitempty"`
	// Between is a generation after Former that was Swapping when the next one was registered:
	// readers see the rows of the one or of the other. It is kept up to date too, until the sink
	// has told which; then it is Former, or is gone.
	Between *Former `json:"between,omitempty"`
	// Backfills counts how often this generation was to backfill: when the tables
	// of a projection had gained columns, and when it was asked for. BackfillScope says what
	// the last one is about.
	Backfills     uint32        `json:"fills,omitempty"`
	BackfillScope BackfillScope `json:"fillScope,omitzero"`
	// InForce says that the generation was seen to be in force everywhere, as
	// declared: an aggregate's rule in each partition, and the processors beyond it.
	InForce bool `json:"settled,omitempty"`
	// Unverified says that its consistency has changed, and that its copies have not
	// been verified since: until they are, once it is in force, it is switching.
	Unverified bool `json:"unproven,omitempty"`
	// Paused says that no processor of the pipeline is to run.
	Paused  bool      `json:"paused,omitempty"`
	Created time.Time `json:"created"`
	// Changed is when the generation began.
	Changed time.Time `json:"changed"`
	// Revision is the registry's version of this record.
	Revision uint64 `json:"-"`
}

// Start is where the reading of one physical partition begins.
type Start struct {
	Partition uint32
	After     feed.Position
}

type startJSON struct {
	Partition uint32 `json:"partition"`
	After     string `json:"after"`
}

// MarshalJSON writes the position as it is written everywhere, "12.3".
func (s Start) MarshalJSON() ([]byte, error) {
	return json.Marshal(startJSON{s.Partition, s.After.String()})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Start) UnmarshalJSON(data []byte) error {
	var w startJSON
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	after, err := feed.ParsePosition(w.After)
	*s = Start{w.Partition, after}
	return err
}

// Metadata names the pipeline.
func (r *Record) Metadata() spec.Metadata { return spec.Metadata{Name: r.Name, Database: r.Database} }

// Document returns the pipeline as an operator would declare it.
func (r *Record) Document() spec.Pipeline {
	return spec.Pipeline{APIVersion: spec.APIVersion, Kind: spec.KindPipeline, Metadata: r.Metadata(), Spec: r.Spec.Clone()}
}

// ContainerDocument returns a container as an operator would declare it.
func ContainerDocument(info *store.ContainerInfo) spec.Container {
	return spec.Container{
		APIVersion: spec.APIVersion, Kind: spec.KindContainer, Metadata: spec.Metadata{Name: info.Name, Database: info.Database}, Spec: info.Spec,
	}
}

type plainRecord Record

type recordJSON struct {
	Version int `json:"version"`
	plainRecord
}

func (r *Record) encode() []byte {
	data, err := json.Marshal(recordJSON{r.version(), plainRecord(*r)})
	if err != nil {
		panic(fmt.Sprintf("registry: record %+v cannot be encoded: %v", r, err))
	}
	return data
}

// version returns the version that the record needs.
func (r *Record) version() int {
	if len(r.Walks) > 0 || r.Former != nil && len(r.Former.Walks) > 0 {
		return recordVersion
	}
	if r.Expressions > query.MeaningTyped && len(r.Spec.Turns()) > 0 {
		return recordVersionTurned
	}
	if c := r.Spec.Cascade; c != nil {
		for _, m := range c.Match {
			if len(m.Value) > 1 {
				return recordVersionMatch
			}
		}
	}
	return recordVersionOneEach
}

// newerRecordError says that a later release wrote a record.
type newerRecordError struct {
	key          string
	what         string // is newer
	number, upTo int
}

func (e *newerRecordError) Error() string {
	return fmt.Sprintf("pipeline record %s has %s %d; this release knows up to %d: was it written by a newer one?", e.key, e.what, e.number, e.upTo)
}

// decodeRecord reads a record of the registry. The error is *store.DamageError if it
// is none.
func decodeRecord(key string, data []byte, revision uint64) (Record, error) {
	r, err := readRecord(key, data, revision)
	if _, newer := errors.AsType[*newerRecordError](err); err != nil && !newer {
		return Record{}, badRecord(key, err)
	}
	return r, err
}

func readRecord(key string, data []byte, revision uint64) (Record, error) {
	var of struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &of); err != nil {
		return Record{}, err
	}
	if of.Version > recordVersion {
		return Record{}, &newerRecordError{key, "version", of.Version, recordVersion}
	}
	var w recordJSON
	if err := json.Unmarshal(data, &w); err != nil {
		return Record{}, err
	}
	if of.Version < 1 || registryKey(spec.Metadata{Name: w.Name, Database: w.Database}) != key {
		return Record{}, fmt.Errorf("it is that of %q/%q, version %d", w.Database, w.Name, of.Version)
	}
	if w.Expressions > query.MeaningNow {
		return Record{}, &newerRecordError{key, "expressions of the meaning", int(w.Expressions), int(query.MeaningNow)}
	}
	r := Record(w.plainRecord)
	r.Revision = revision
	return r, nil
}

// turned tells whether the generation was begun when expressions meant something else,
// and this makes a difference to it: what it wrote does not hold any more.
func (r *Record) turned() bool {
	return r.ID != "" && r.Expressions < query.MeaningNow && len(r.Spec.Turns()) > 0
}
