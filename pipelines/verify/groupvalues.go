package verify

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/accumulator"
)

// groupValues are what accumulators were seen to say of the fields of their targets,
// as digests by the hash of the group. A nil *groupValues knows nothing.
type groupValues struct {
	rule    *accumulator.Rule
	max     int
	digests map[uint64]uint64
	none    uint64 // of a group without members
	full    bool   // there were too many
}

// valueBytes is about what a digest takes in memory, and that its group has a target.
const valueBytes = 80

func newGroupValues(rule *accumulator.Rule, bytesMax int) *groupValues {
	return &groupValues{rule: rule, max: bytesMax / valueBytes, digests: map[uint64]uint64{}}
}

// note notes what a page of accumulators says.
func (v *groupValues) note(content *accumulator.Delta) error {
	if v == nil || v.full {
		return nil
	}
	memory := accumulator.NewMemory()
	if err := v.rule.Apply(memory, content); err != nil {
		return err
	}
	for _, g := range content.Groups() {
		state, err := v.rule.State(memory, g)
		if err != nil {
			return err
		}
		v.digests[HashGroup(g)] = digestOf(state.Values())
	}
	if len(v.digests) > v.max {
		// Half of the digests would help nobody: an item whose group is not among
		// them must be looked up, so all are.
		v.full, v.digests = true, nil
	}
	return nil
}

// known tells whether it knows all groups.
func (v *groupValues) known() bool { return v != nil && !v.full }

// has tells whether a group, by its hash, has an accumulator.
func (v *groupValues) has(hash uint64) bool { _, ok := v.digests[hash]; return ok }

// digestFor returns the digest of the fields that a target of a group must have.
func (v *groupValues) digestFor(g accumulator.Group) uint64 {
	if digest, ok := v.digests[HashGroup(g)]; ok {
		return digest
	}
	if v.none == 0 {
		state, err := v.rule.State(accumulator.NewMemory(), g)
		if err != nil {
			panic(fmt.Sprintf("verify: an empty memory fails: %v", err))
		}
		v.none = digestOf(state.Values())
	}
	return v.none
}

// digestOf is equal for fields of which document.Equal is true, one by one.
func digestOf(values []document.FieldValue) uint64 {
	buf := make([]byte, 0, 64)
	for i := range values {
		if values[i].Value == nil {
			buf = append(buf, 0)
			continue
		}
		buf = binary.LittleEndian.AppendUint64(append(buf, 1), JSONDigest(values[i].Value))
	}
	// 0 says that none was not computed yet.
	return max(xxhash.Sum64(buf), 1)
}
