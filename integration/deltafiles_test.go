package integration_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// deltaAction is what a line of a Delta log's commit, or a row of its checkpoint, says of a
// file.
type deltaAction struct {
	Add *struct {
		Path string `json:"path" parquet:"path"`
	} `json:"add" parquet:"add,optional"`
	Remove *struct {
		Path string `json:"path" parquet:"path"`
	} `json:"remove" parquet:"remove,optional"`
}

// deltaFiles returns the files of which a table consists now, as the Delta log in its
// folder has them: the newest checkpoint and the commits behind it.
func deltaFiles(table string) ([]string, error) {
	live := map[string]bool{}
	take := func(actions []deltaAction) error {
		for _, a := range actions {
			switch {
			case a.Add != nil:
				path, err := url.PathUnescape(a.Add.Path)
				if err != nil {
					return err
				}
				live[filepath.Join(table, filepath.FromSlash(path))] = true
			case a.Remove != nil:
				path, err := url.PathUnescape(a.Remove.Path)
				if err != nil {
					return err
				}
				delete(live, filepath.Join(table, filepath.FromSlash(path)))
			}
		}
		return nil
	}
	// Checkpoints first: what is listed later cannot lack commits behind them.
	const digits = 20
	version := func(name string) string { return filepath.Base(name)[:digits] }
	checkpoints, err := filepath.Glob(filepath.Join(table, "_delta_log", "*.checkpoint.parquet"))
	if err != nil {
		return nil, err
	}
	from := ""
	if n := len(checkpoints); n > 0 { // in the order of their names
		from = version(checkpoints[n-1])
		actions, err := parquet.ReadFile[deltaAction](checkpoints[n-1])
		if err != nil {
			return nil, err
		}
		if err := take(actions); err != nil {
			return nil, err
		}
	}
	commits, err := filepath.Glob(filepath.Join(table, "_delta_log", "*.json"))
	if err != nil {
		return nil, err
	}
	for _, name := range commits {
		if version(name) <= from {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(data) {
			var a deltaAction
			if err := json.Unmarshal(line, &a); err != nil {
				return nil, err
			}
			if err := take([]deltaAction{a}); err != nil {
				return nil, err
			}
		}
	}
	return slices.Sorted(maps.Keys(live)), nil
}
