package right

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// recordVersion is the version of the keys that this package writes. FORMAT.md describes them.
const recordVersion = 1

// VersionError says that a key was written by a later release.
type VersionError struct {
	Key     string
	Version int
}

// Error names the key and the version, and says what to do.
func (e *VersionError) Error() string {
	return fmt.Sprintf("right: key %s has version %d, this release reads up to %d; run the release that wrote it, or a later one",
		e.Key, e.Version, recordVersion)
}

// State is what a node says of itself.
type State string

// The states of a node.
const (
	StateUp   State = "up"   // it serves
	StateLeft State = "left" // it has ended, and its right before that

	// stateDrains is of version 1, and is read like StateUp. It is not written: who drains is in the leases' own records.
	stateDrains State = "drains"
)

// record is the value of a node's key.
type record struct {
	Version     int      `json:"v"`
	Node        string   `json:"node"`
	Incarnation string   `json:"incarnation"`
	Host        string   `json:"host,omitempty"`
	Write       uint64   `json:"write"`             // number of this write among those of its incarnation
	Deposed     *deposed `json:"deposed,omitempty"` // nil: it lives
	State       State    `json:"state"`
	Level       int      `json:"level"`
	Trust       int64    `json:"trustMs"`
}

// deposed says who deposed an incarnation, and why.
type deposed struct {
	By  string `json:"by"` // node/incarnation
	Why string `json:"why"`
	At  int64  `json:"at"` // unix ms, informative
}

func (r *record) holder() string { return r.Node + "/" + r.Incarnation }

// trust is how long the right of the key's node holds. What a key must not say counts as the longest that one may say, so
// a wrong one does not shorten a wait, and does not make it endless.
func (r *record) trust() time.Duration {
	if r.Trust <= 0 || r.Trust > trustMax.Milliseconds() {
		return trustMax
	}
	return time.Duration(r.Trust) * time.Millisecond
}

// encode renders a record. Its field types cannot fail to encode.
func encode(r *record) []byte {
	data, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("right: encode %+v: %v", r, err))
	}
	return data
}

// decode reads the value of a key. The error is a *VersionError if a later release wrote it.
func decode(key string, data []byte) (*record, error) {
	// The version first: the other members of a later version may have other types, and the error must name the
	// version and not a type.
	var head struct {
		Version int `json:"v"`
	}
	r := &record{}
	err := json.Unmarshal(data, &head)
	switch {
	case err != nil:
	case head.Version > recordVersion:
		return nil, &VersionError{Key: key, Version: head.Version}
	case head.Version < 1:
		err = fmt.Errorf("version %d", head.Version)
	default:
		if err = json.Unmarshal(data, r); err == nil {
			err = r.check(key)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("key %s cannot be read; delete it when no process of the node runs: %w", key, err)
	}
	return r, nil
}

// check returns what is wrong with a record of version 1.
func (r *record) check(key string) error {
	switch {
	case r.Node == "" || r.Incarnation == "":
		return errors.New("no node or no incarnation")
	case r.Node != nodeOf(key):
		return fmt.Errorf("it is of node %q", r.Node)
	case r.State != StateUp && r.State != stateDrains && r.State != StateLeft:
		return fmt.Errorf("state %q is not up, drains or left", r.State)
	}
	return nil
}

const keyPrefix = "node."

// Groups and nodes are of characters that may stand in a token of a key.
func keyOf(group, node string) string { return keyPrefix + group + "." + node }
func keysOf(group string) string      { return keyPrefix + group + ".>" }
func nodeOf(key string) string        { return key[strings.LastIndexByte(key, '.')+1:] }

// clip cuts s to at most n bytes, between characters.
func clip(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }
