package pipelines

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/document"
	"github.com/millrace/millrace/store/query"
)

// recordVersion begins every record in the registry; see RECORD.md.
const recordVersion = 1

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
	Generation uint32       `json:"generation"`
	Spec       PipelineSpec `json:"spec"`
	// Source and Target are the containers that the generation was registered
	// for: one made again under the same name is another.
	Source feed.ResourceID `json:"source"`
	Target feed.ResourceID `json:"target"`
	// Starts are the positions behind which the target's feed is checked, the
	// ends of its logs when the generation was registered. What is older is found
	// by the fan-outs, which read the source's feed from its beginning.
	Starts []Start `json:"starts"`
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
func (r *Record) Metadata() Metadata { return Metadata{r.Name, r.Database} }

// Document returns the pipeline as an operator would declare it.
func (r *Record) Document() Pipeline {
	return Pipeline{APIVersion: APIVersion, Kind: KindPipeline, Metadata: r.Metadata(), Spec: r.Spec.clone()}
}

// ContainerDocument returns a container as an operator would declare it.
func ContainerDocument(info *store.ContainerInfo) Container {
	return Container{
		APIVersion: APIVersion, Kind: KindContainer, Metadata: Metadata{info.Name, info.Database}, Spec: info.Spec,
	}
}

// start returns the position behind which the check of partition begins.
func (r *Record) start(partition uint32) feed.Position {
	for _, s := range r.Starts {
		if s.Partition == partition {
			return s.After
		}
	}
	return feed.Position{}
}

type plainRecord Record

type recordJSON struct {
	Version int `json:"version"`
	plainRecord
}

func (r *Record) encode() []byte {
	data, err := json.Marshal(recordJSON{recordVersion, plainRecord(*r)})
	if err != nil {
		panic(fmt.Sprintf("pipelines: record %+v cannot be encoded: %v", r, err))
	}
	return data
}

func decodeRecord(key string, data []byte, revision uint64) (Record, error) {
	var w recordJSON
	if err := json.Unmarshal(data, &w); err != nil {
		return Record{}, fmt.Errorf("pipeline record %s: %w", key, err)
	}
	if w.Version != recordVersion {
		return Record{}, fmt.Errorf("pipeline record %s has version %d; this release knows %d: was it written by a newer one?", key, w.Version, recordVersion)
	}
	r := Record(w.plainRecord)
	r.Revision = revision
	return r, nil
}

// sameText tells whether two specs are written alike.
func (s *PipelineSpec) sameText(other *PipelineSpec) bool { return bytes.Equal(s.json(), other.json()) }

// sameMeaning tells whether two specs copy the same in the same way, however
// their expressions and paths are written.
func (s *PipelineSpec) sameMeaning(other *PipelineSpec) bool {
	return bytes.Equal(s.meaning().json(), other.meaning().json())
}

func (s *PipelineSpec) json() []byte {
	data, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("pipelines: spec %+v cannot be encoded: %v", s, err))
	}
	return data
}

// meaning returns the spec with every expression and path in its one form.
func (s *PipelineSpec) meaning() *PipelineSpec {
	m := s.clone()
	m.normalize()
	m.Source.Where = sameExpression(m.Source.Where)
	if c := m.Cascade; c != nil {
		c.Where, c.Each = sameExpression(c.Where), sameField(c.Each)
		c.Match, c.Set = sameFields(c.Match), sameFields(c.Set)
	}
	return &m
}

func sameExpression(text string) string {
	if text == "" {
		return ""
	}
	if e, err := query.ParseExpr(text); err == nil {
		return e.String()
	}
	return text
}

func sameField(text string) string {
	if p, err := document.ParseField(text); err == nil {
		return p.String()
	}
	return text
}

func sameFields(fields map[string]string) map[string]string {
	same := make(map[string]string, len(fields))
	for target, source := range fields {
		same[sameField(target)] = sameField(source)
	}
	return same
}
