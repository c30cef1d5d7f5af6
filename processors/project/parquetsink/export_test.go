package parquetsink

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/millrace/millrace/processors/project"
)

// PublishParallel bounds the Delta logs that are written at once.
const PublishParallel = publishParallel

// Shown is what a reader of currentName sees.
type Shown struct {
	Commit     uint64
	Generation uint32
	Positions  map[string]string
	Versions   map[string]int64
}

// ReadShown reads currentName; nil if there is none.
func ReadShown(ctx context.Context, store ObjectStore) (*Shown, error) {
	data, err := store.Get(ctx, currentName)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &Shown{}
	return s, json.Unmarshal(data, s)
}

// ReadFiles reads the rows of files of a table whose names are not mapped.
func ReadFiles(ctx context.Context, store ObjectStore, s *project.TableSchema, index int, paths []string) ([]project.Row, error) {
	ts := &tableSet{}
	if _, err := ts.addTable(s); err != nil {
		return nil, err
	}
	l, err := newLayout(ts.Tables[0])
	if err != nil {
		return nil, err
	}
	r := newRowReader(l, s, index)
	var rows []project.Row
	for _, name := range paths {
		data, err := store.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		err = scan(data, l, func(_ int64, some []parquet.Row) error {
			for _, row := range some {
				rows = append(rows, r.read(row))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// Newest returns the files that the newest manifest names as live, the ones it
// names as removed, and its number.
func Newest(ctx context.Context, store ObjectStore) (live, gone []string, number uint64, err error) {
	c := newCommitLog(store)
	if err := c.refresh(ctx); err != nil {
		return nil, nil, 0, err
	}
	for _, ts := range c.last.Sets {
		ts.files(func(f *file) bool { live = append(live, f.Path); return true })
	}
	for _, r := range c.last.Removed {
		gone = append(gone, r.Path)
	}
	slices.Sort(live)
	return live, gone, c.last.Number, nil
}

// LookEvery sets how long a sink believes what it knows of the end of a Delta log.
func LookEvery(s *Sink, every time.Duration) { s.lookEvery = every }

// CheckpointEvery sets how many commits a Delta log of a sink has between two checkpoints.
func CheckpointEvery(s *Sink, commits int64) { s.checkpointEvery = commits }
