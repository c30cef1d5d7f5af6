package store

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/tombstone"
)

// TombstonesDefault is how long a container keeps the tombstones of deleted items,
// unless changeFeed.tombstones says otherwise.
const TombstonesDefault = 365 * 24 * time.Hour

// ControlTombstones is the kind of a control transaction with the tombstones of items that went
// before a setting was in force. Data: TombstonesPast.
const ControlTombstones = "tombstones"

// TombstoneSetting is one kind of tombstone of a partition. Tombstones are made from
// the commit on that puts it in force; those of what went before are brought from the
// log, and then it is ready.
type TombstoneSetting struct {
	tombstone.Wish
	Number uint32 `json:"number"`
	Ready  bool   `json:"ready,omitempty"`
	// Since is the commit that put it in force.
	Since feed.LSN `json:"since,omitempty"`
}

// TombstonesPast are tombstones that were found in the log behind the setting of that
// number. An item that is there, or went again later, keeps what it has.
type TombstonesPast struct {
	Number     uint32          `json:"number"`
	Tombstones []PastTombstone `json:"tombstones"`
}

// PastTombstone is a tombstone and the item key, as the engine writes both.
type PastTombstone struct {
	Item  []byte `json:"item"`
	Stone []byte `json:"stone"`
}

// WantTombstones records that a pipeline follows deleted items of a container.
func (c *Catalog) WantTombstones(ctx context.Context, database, name string, wish tombstone.Wish) error {
	_, err := c.modify(ctx, database, name, func(i *ContainerInfo) error {
		if !i.WantsTombstones(wish) {
			i.Tombstones = append(i.Tombstones, wish)
		}
		return nil
	})
	return err
}

// DropTombstones takes back what WantTombstones recorded. The tombstones go.
func (c *Catalog) DropTombstones(ctx context.Context, database, name string, wish tombstone.Wish) error {
	_, err := c.modify(ctx, database, name, func(i *ContainerInfo) error {
		i.Tombstones = slices.DeleteFunc(i.Tombstones, wish.Equal)
		return nil
	})
	return err
}

// WantsTombstones says whether the catalog asks the container for them.
func (i *ContainerInfo) WantsTombstones(wish tombstone.Wish) bool {
	return slices.ContainsFunc(i.Tombstones, wish.Equal)
}

// wishTombstones takes over what c asks for. Kinds that are gone lose their number.
func (s *Settings) wishTombstones(c *ContainerInfo) (changed bool) {
	var kinds []TombstoneSetting
	for _, is := range s.Tombstones {
		if c.WantsTombstones(is.Wish) {
			kinds = append(kinds, is)
		} else {
			changed = true
		}
	}
	for _, wish := range c.Tombstones {
		if !slices.ContainsFunc(kinds, func(is TombstoneSetting) bool { return is.Equal(wish) }) {
			kinds = append(kinds, TombstoneSetting{Wish: wish, Number: s.NextNumber})
			s.NextNumber++
			changed = true
		}
	}
	s.Tombstones = kinds
	keep := int64(0)
	if len(kinds) > 0 {
		if keep = c.Spec.ChangeFeed.Tombstones.Milliseconds(); keep == 0 {
			keep = TombstonesDefault.Milliseconds()
		}
	}
	changed = changed || s.TombstonesKept != keep
	s.TombstonesKept = keep
	return changed
}

// TombstonesSince notes the commit that puts new kinds of tombstones in force.
func (s *Settings) TombstonesSince(lsn feed.LSN) {
	s.Tombstones = slices.Clone(s.Tombstones)
	for i := range s.Tombstones {
		if s.Tombstones[i].Since == 0 {
			s.Tombstones[i].Since = lsn
		}
	}
}

// TombstonesReady returns the settings with that kind of tombstones ready, and whether
// it was not.
func (s Settings) TombstonesReady(number uint32) (Settings, bool) {
	at := slices.IndexFunc(s.Tombstones, func(t TombstoneSetting) bool { return t.Number == number && !t.Ready })
	if at < 0 {
		return s, false
	}
	s.Tombstones = slices.Clone(s.Tombstones)
	s.Tombstones[at].Ready = true
	return s, true
}
