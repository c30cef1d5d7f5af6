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

// manifest is one commit: all that is there. It, and all that it refers to, does
// not change once it has been written or read; clones of it do.
type manifest struct {
	// Number is one more than that of the manifest before. Commit is random,
	// Previous that of the manifest before.
	Number   uint64    `json:"number"`
	Commit   string    `json:"commit"`
	Previous string    `json:"previous,omitempty"`
	Time     time.Time `json:"time"`
	Pipeline string    `json:"pipeline"`
	// Changed is the last manifest in which what readers see has changed.
	Changed uint64 `json:"changed"`
	// Floor is the manifest from which a commit must have begun; files that were
	// staged for one that began before have been removed.
	Floor uint64  `json:"floor,omitempty"`
	Areas []*area `json:"areas"`
	// Removed are files that are not live any more and may still be read.
	Removed []removed `json:"removed,omitempty"`
}

// removed is a file that was live until At.
type removed struct {
	Path string    `json:"path"`
	At   time.Time `json:"at"`
}

// area is the tables of one generation, or of several that went on in them.
type area struct {
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

// table is one table of an area. As is its name in folders.
type table struct {
	Name        string        `json:"name"`
	As          string        `json:"as"`
	Columns     []tableColumn `json:"columns"`
	Key         []string      `json:"key"`
	PartitionBy string        `json:"partitionBy,omitempty"`
	// PartitionAs is what folders of partitions are named for, beside the column, so
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

// envelope is what stands in an object: Sum is that of the bytes of Manifest.
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

// clone returns a copy whose areas, tables and lists may be changed.
func (m *manifest) clone() *manifest {
	c := *m
	c.Areas = make([]*area, len(m.Areas))
	for i, a := range m.Areas {
		b := *a
		b.Generations = slices.Clone(a.Generations)
		b.Sources = slices.Clone(a.Sources)
		b.Tables = make([]*table, len(a.Tables))
		for j, t := range a.Tables {
			u := *t
			u.Columns, u.Files, u.Rejects = slices.Clone(t.Columns), slices.Clone(t.Files), slices.Clone(t.Rejects)
			b.Tables[j] = &u
		}
		c.Areas[i] = &b
	}
	c.Removed = slices.Clone(m.Removed)
	return &c
}

// area returns the one that a generation writes to, nil if there is none.
func (m *manifest) area(generation uint32) *area {
	for _, a := range m.Areas {
		if slices.Contains(a.Generations, generation) {
			return a
		}
	}
	return nil
}

// current returns the area that readers see, nil if there is none.
func (m *manifest) current() *area {
	for _, a := range m.Areas {
		if a.Current {
			return a
		}
	}
	return nil
}

// newest is the newest generation of the area.
func (a *area) newest() uint32 { return slices.Max(a.Generations) }

// source returns what is recorded for a producer, nil for nothing.
func (a *area) source(p feed.Producer) *source {
	for i := range a.Sources {
		if s := &a.Sources[i]; s.Generation == p.Generation && s.Source == p.Source {
			return s
		}
	}
	return nil
}

// record sets what is recorded for a producer.
func (a *area) record(p feed.Producer, epoch uint64, at feed.Position) {
	s := a.source(p)
	if s == nil {
		a.Sources = append(a.Sources, source{Generation: p.Generation, Source: p.Source})
		s = &a.Sources[len(a.Sources)-1]
	}
	s.Epoch, s.Position = epoch, ""
	if at != (feed.Position{}) {
		s.Position = at.String()
	}
}

// at is the recorded position, zero for none.
func (s *source) at() (feed.Position, error) {
	if s == nil || s.Position == "" {
		return feed.Position{}, nil
	}
	return feed.ParsePosition(s.Position)
}

// table returns a table by its declared name, nil if there is none.
func (a *area) table(name string) *table {
	for _, t := range a.Tables {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// files yields all live files.
func (a *area) files(yield func(*file) bool) {
	for _, t := range a.Tables {
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

// drop takes a file from the live ones to those that are removed after a while.
func (m *manifest) drop(f *file) {
	m.Removed = append(m.Removed, removed{Path: f.Path, At: time.Now().UTC().Truncate(time.Millisecond)})
}
