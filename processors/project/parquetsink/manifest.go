package parquetsink

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/feed"
)

// formatVersion is that of manifests; see FORMAT.md.
const formatVersion = 1

const manifestFolder = "_manifest/"

func manifestName(number uint64) string { return fmt.Sprintf("%s%020d.json", manifestFolder, number) }

// manifestNumber reads what manifestName wrote.
func manifestNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(strings.TrimPrefix(name, manifestFolder), ".json")
	if !ok || len(digits) != 20 {
		return 0, false
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, err == nil
}

// manifest is one commit: all that is there. It, and all that it refers to, does not
// change once it has been written or read; clones of it do. Names of JSON members are the
// stored format, FORMAT.md; those of the fields are this package's.
type manifest struct {
	// Number is one more than that of the manifest before. Commit is random,
	// Previous that of the manifest before.
	Number   uint64    `json:"number"`
	Commit   string    `json:"commit"`
	Previous string    `json:"previous,omitempty"`
	Time     time.Time `json:"time"`
	Pipeline string    `json:"pipeline"`
	// Changed is the number of the last manifest that changed what readers see.
	Changed uint64 `json:"changed"`
	// Floor is the oldest manifest from which a commit may have begun: files that were
	// written for one that began before may have been deleted as abandoned.
	Floor uint64      `json:"floor,omitempty"`
	Sets  []*tableSet `json:"areas"`
	// Removed are files that are not live any more and may still be read.
	Removed []removed `json:"removed,omitempty"`
}

// removed is a file that was live until At. By is the number of the manifest that removed
// it, zero for a file that readers never saw.
type removed struct {
	Path string    `json:"path"`
	At   time.Time `json:"at"`
	By   uint64    `json:"by,omitempty"`
}

// tableSet is the tables of one generation, or of several that went on in them.
type tableSet struct {
	// Current is set for the one that readers see.
	Current     bool     `json:"current,omitempty"`
	Generations []uint32 `json:"generations"`
	Sources     []source `json:"sources,omitempty"`
	Tables      []*table `json:"tables"`
}

// source is how far a producer has come.
type source struct {
	Generation uint32 `json:"generation"`
	Source     string `json:"source"`
	Epoch      uint64 `json:"epoch"`
	Position   string `json:"position,omitempty"`
}

// table is one table of a table set. As is its name in folders.
type table struct {
	Name        string        `json:"name"`
	As          string        `json:"as"`
	Columns     []tableColumn `json:"columns"`
	Key         []string      `json:"key"`
	PartitionBy string        `json:"partitionBy,omitempty"`
	// PartitionAs begins the names of partition folders. It differs from the column, so
	// that engines take the column from the files.
	PartitionAs string `json:"partitionAs,omitempty"`
	Files       []file `json:"files"`
	RejectsAs   string `json:"rejectsAs"`
	Rejects     []file `json:"rejects"`
}

// tableColumn is a column and its name in files.
type tableColumn struct {
	Name string `json:"name"`
	As   string `json:"as"`
	Type string `json:"type,omitempty"`
}

// file is a live file.
type file struct {
	Path   string `json:"path"`
	Folder string `json:"folder,omitempty"` // of the partition, such as "city_partition=Berlin"
	Rows   int64  `json:"rows"`
	Bytes  int64  `json:"bytes"`
}

// envelope is the stored object. Sum is the hash of the bytes of Manifest.
type envelope struct {
	Format   int             `json:"format"`
	Sum      string          `json:"sum"`
	Manifest json.RawMessage `json:"manifest"`
}

var errManifest = errors.New("parquet sink: damaged manifest")

func sumOf(data []byte) string { return fmt.Sprintf("%016x", xxhash.Sum64(data)) }

func encodeManifest(m *manifest) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return json.Marshal(envelope{Format: formatVersion, Sum: sumOf(body), Manifest: body})
}

// decodeManifest reads what encodeManifest wrote. The error is errManifest.
func decodeManifest(data []byte) (*manifest, error) {
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, fmt.Errorf("%w: %w", errManifest, err)
	}
	if e.Format != formatVersion {
		return nil, fmt.Errorf("%w: format %d, this program reads %d", errManifest, e.Format, formatVersion)
	}
	// The sum is of the bytes as they lie there. If they were decoded and encoded again for
	// it, a member that this program does not know would be missed.
	if sumOf(e.Manifest) != e.Sum {
		return nil, fmt.Errorf("%w: its checksum does not match", errManifest)
	}
	m := &manifest{}
	dec := json.NewDecoder(bytes.NewReader(e.Manifest))
	if err := dec.Decode(m); err != nil {
		return nil, fmt.Errorf("%w: %w", errManifest, err)
	}
	return m, nil
}

// clone returns a copy whose table sets, tables and lists may be changed.
func (m *manifest) clone() *manifest {
	c := *m
	c.Sets = make([]*tableSet, len(m.Sets))
	for i, ts := range m.Sets {
		other := *ts
		other.Generations = slices.Clone(ts.Generations)
		other.Sources = slices.Clone(ts.Sources)
		other.Tables = make([]*table, len(ts.Tables))
		for j, t := range ts.Tables {
			u := *t
			u.Columns, u.Files, u.Rejects = slices.Clone(t.Columns), slices.Clone(t.Files), slices.Clone(t.Rejects)
			other.Tables[j] = &u
		}
		c.Sets[i] = &other
	}
	c.Removed = slices.Clone(m.Removed)
	return &c
}

// setOf returns the table set that a generation writes to, nil if there is none.
func (m *manifest) setOf(generation uint32) *tableSet {
	for _, ts := range m.Sets {
		if slices.Contains(ts.Generations, generation) {
			return ts
		}
	}
	return nil
}

// current returns the table set that readers see, nil if there is none.
func (m *manifest) current() *tableSet {
	for _, ts := range m.Sets {
		if ts.Current {
			return ts
		}
	}
	return nil
}

// newestGeneration is the newest generation that has a table set, 0 if there is none.
func (m *manifest) newestGeneration() (newest uint32) {
	for _, ts := range m.Sets {
		newest = max(newest, ts.newestGeneration())
	}
	return newest
}

// newestGeneration is the newest generation of the table set.
func (ts *tableSet) newestGeneration() uint32 { return slices.Max(ts.Generations) }

// source returns what is recorded for a producer, nil for nothing.
func (ts *tableSet) source(p feed.Producer) *source {
	for i := range ts.Sources {
		if s := &ts.Sources[i]; s.Generation == p.Generation && s.Source == p.Source {
			return s
		}
	}
	return nil
}

// recordPosition sets what is recorded for a producer.
func (ts *tableSet) recordPosition(p feed.Producer, epoch uint64, at feed.Position) {
	s := ts.source(p)
	if s == nil {
		ts.Sources = append(ts.Sources, source{Generation: p.Generation, Source: p.Source})
		s = &ts.Sources[len(ts.Sources)-1]
	}
	s.Epoch, s.Position = epoch, ""
	if at != (feed.Position{}) {
		s.Position = at.String()
	}
}

// position is the recorded position, zero for none.
func (s *source) position() (feed.Position, error) {
	if s == nil || s.Position == "" {
		return feed.Position{}, nil
	}
	return feed.ParsePosition(s.Position)
}

// table returns a table by its declared name, nil if there is none.
func (ts *tableSet) table(name string) *table {
	for _, t := range ts.Tables {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// files yields all live files.
func (ts *tableSet) files(yield func(*file) bool) {
	for _, t := range ts.Tables {
		for i := range t.Files {
			if !yield(&t.Files[i]) {
				return
			}
		}
		for i := range t.Rejects {
			if !yield(&t.Rejects[i]) {
				return
			}
		}
	}
}

// removeFile adds a file of ts that is not live any more to those that are deleted after
// the grace. The manifest is a copy of its base still.
func (m *manifest) removeFile(ts *tableSet, f *file) {
	r := removed{Path: f.Path, At: time.Now().UTC().Truncate(time.Millisecond)}
	if ts.Current {
		r.By = m.Number + 1
	}
	m.Removed = append(m.Removed, r)
}
