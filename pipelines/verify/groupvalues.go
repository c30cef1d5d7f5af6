package verify

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
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

// valueBytes is about what a digest takes in memory.
const valueBytes = 40

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

// findOrphans counts groups whose members name a target that is not there.
func (run *verification) findOrphans(ctx context.Context, fields *fieldCheck) error {
	c, err := newGroupCheck(run, fields.p, nil)
	if err != nil || !fields.values.known() {
		return err
	}
	// Most verifications end here: the groups are read once more only if some hash of theirs
	// was not met among the targets.
	left := len(fields.values.digests)
	for hash := range fields.values.digests {
		if _, home := fields.homes[hash]; home {
			left--
		}
	}
	if left == 0 {
		return nil
	}
	for _, partition := range c.p.target.Partitions() {
		page := &store.ReadGroups{Pipeline: c.p.Record.ID, Generation: c.p.Record.Generation, Max: run.cfg.PageItems}
		for {
			result, err := c.p.target.ReadGroups(ctx, partition, page)
			if err != nil {
				return fmt.Errorf("read the accumulators of %s in %s: %w", c.p.Record.Metadata(), partition, err)
			}
			content, err := c.rule.DecodeDelta(result.Content)
			if err == nil {
				err = c.addOrphans(ctx, fields, content.Groups())
			}
			if err != nil {
				return err
			}
			if page.After = result.Last; page.After == "" {
				break
			}
		}
	}
	return nil
}

// addOrphans tells of those among groups that have no target.
func (c *groupCheck) addOrphans(ctx context.Context, fields *fieldCheck, groups []accumulator.Group) error {
	var refs []store.ItemRef
	var homeless []accumulator.Group
	for _, g := range groups {
		if _, home := fields.homes[HashGroup(g)]; home {
			continue
		}
		if ref, ok := c.targetRef(g); ok {
			refs, homeless = append(refs, ref), append(homeless, g)
			continue
		}
		c.run.addDifference(c.p, Difference{Kind: DifferenceDangling, Group: g.String(), Element: -1})
	}
	items, err := c.p.target.ReadMany(ctx, refs, true)
	if err != nil {
		return fmt.Errorf("read the targets of groups: %w", err)
	}
	for i := range items {
		if items[i].ETag != (store.ETag{}) {
			if g, ok := c.rule.TargetGroup(items[i].Body); ok && g == homeless[i] {
				continue // it was made meanwhile
			}
		}
		c.run.addDifference(c.p, Difference{Kind: DifferenceDangling, Item: refs[i].String(), Group: homeless[i].String(), Element: -1})
	}
	return nil
}
