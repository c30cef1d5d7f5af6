package ingest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/millrace/millrace/feed/atomicfile"
)

// stateVersion begins every state file.
const stateVersion = 1

// rejectionsMax bounds the rejections that a state and a report list; all are
// counted.
const rejectionsMax = 1000

// Rejection is a record that was not taken.
type Rejection struct {
	Line   int    `json:"line"`
	Reason string `json:"reason"`
}

// State is how far an import is. It is kept in a file, so that the import can go
// on after a stop.
type State struct {
	Version int `json:"version"`
	// Input and Container are what the import is of; with another of either, it
	// does not go on.
	Input     string `json:"input"`
	Container string `json:"container"`
	// Done records, from the first on, are finished; Written of them are in the
	// store and Rejected are not.
	Done     int64 `json:"done"`
	Written  int64 `json:"written"`
	Rejected int64 `json:"rejected"`
	// Sum is a digest of the records that are finished, in hexadecimal. It is empty before
	// the first, and of a state that an earlier release wrote: it then says nothing.
	Sum string `json:"sum,omitempty"`
	// Rejections are the first of what was rejected.
	Rejections []Rejection `json:"rejections,omitempty"`
}

// digest is that of one record.
type digest = [sha256.Size]byte

// add chains the next record that is finished to the digest.
func (s *State) add(record digest) {
	before, _ := hex.DecodeString(s.Sum) // of a file that was changed by hand it differs anyhow
	sum := sha256.Sum256(append(before, record[:]...))
	s.Sum = hex.EncodeToString(sum[:])
}

// Fingerprint names the content of a file as far as that costs nothing: its size and a
// digest of its beginning. What it does not see, State.Sum does when the import goes on.
func Fingerprint(f *os.File) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("fingerprint: %w", err)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, 1<<20)); err != nil {
		return "", fmt.Errorf("fingerprint: %w", err)
	}
	return fmt.Sprintf("%d bytes, sha256 of the first MiB %s", info.Size(), hex.EncodeToString(sum.Sum(nil))), nil
}

// LoadState reads a state file. Without one, or with one of another input or
// container, the state is at the beginning; stale then says so.
func LoadState(file, input, container string) (s *State, stale bool, err error) {
	fresh := &State{Version: stateVersion, Input: input, Container: container}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fresh, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read the state of the import: %w", err)
	}
	s = &State{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, false, fmt.Errorf("%s is not the state of an import: %w; remove it, or name another with --state", file, err)
	}
	if s.Version > stateVersion {
		return nil, false, fmt.Errorf("%s has version %d; this program knows %d", file, s.Version, stateVersion)
	}
	if s.Input != input || s.Container != container {
		return fresh, true, nil
	}
	return s, false, nil
}

// Save writes the state, all or nothing.
func (s *State) Save(file string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("save the state of the import: %w", err)
	}
	if err := atomicfile.Write(file, append(data, '\n')); err != nil {
		return fmt.Errorf("save the state of the import: %w; name a file that can be written with --state", err)
	}
	return nil
}
