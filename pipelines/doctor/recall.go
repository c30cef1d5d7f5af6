package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

const (
	// keysMax bounds the keys of one log that are held to tell how many partitions
	// a container has.
	keysMax = 4096
	// componentLen is the length of the hash of a key's first component.
	componentLen = 16
	// keysTelling is how many keys tell that number: that so many lie in one half of a
	// range by chance happens once in four thousand million times.
	keysTelling = 32
)

// readLogs makes the record of a container anew from what its logs hold: the
// settings that decided its writes, and the keys, which tell whether all of its logs
// are there.
func (f *fixer) readLogs(ctx context.Context, l *lost) (*store.ContainerInfo, error) {
	if err := f.unsplit(ctx, l); err != nil {
		return nil, err
	}
	info := &store.ContainerInfo{ID: l.id, State: store.ContainerReady}
	keys := make([][]feed.EPK, len(l.logs))
	for i, p := range l.logs {
		stream := f.p.streams[p]
		switch {
		case int(p.Number) != i:
			return nil, fmt.Errorf("log %s/%d is not there, and later ones are: restore stream %s first", l.id, i, feed.Partition{Container: l.id, Number: uint32(i)}.Stream())
		case stream == nil:
			return nil, fmt.Errorf("stream %s does not answer", f.p.exam.Streams[p])
		}
		id, ok := feed.LogOf(stream)
		if !ok {
			return nil, fmt.Errorf("stream %s does not tell which log it holds", stream.Config.Name)
		}
		info.Partitions = append(info.Partitions, store.PartitionInfo{Number: p.Number, Log: id})
		settings, begun, found, err := f.readLog(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("read the log %s: %w", p, err)
		}
		keys[i] = found
		if i == 0 {
			declare(info, &settings, begun)
		}
	}
	info.Spec.Partitions = len(l.logs)
	for i, r := range feed.EvenRanges(len(l.logs)) {
		info.Partitions[i].Range = r
	}
	return info, checkPartitions(l.id, keys)
}

// declare sets what the settings of a partition tell of the declaration. They do not tell
// changeFeed.retention, and what the default would trim nobody brings back: so every change
// is kept until an operator declares otherwise.
func declare(info *store.ContainerInfo, s *store.Settings, begun time.Time) {
	info.Created = begun
	info.Spec = store.ContainerSpec{PartitionKey: s.PartitionKey, TTL: s.TTL}
	info.Spec.ChangeFeed.Retention = new(store.RetentionForever)
	if s.TombstonesKept > 0 {
		info.Spec.ChangeFeed.Tombstones = time.Duration(s.TombstonesKept) * time.Millisecond
	}
	for _, index := range s.Indexes {
		if index.Rule == "" {
			info.Spec.Indexes = append(info.Spec.Indexes, index.Path)
		}
	}
	for _, unique := range s.UniqueKeys {
		info.Spec.UniqueKeys = append(info.Spec.UniqueKeys, unique.Paths)
	}
	for _, rule := range s.Rules {
		info.Rules = append(info.Rules, rule.RuleWish)
	}
	info.Spec.Normalize()
}

// readLog reads a log from end to end: its last settings, when it began, and some
// of the keys in it.
func (f *fixer) readLog(ctx context.Context, p feed.Partition) (settings store.Settings, begun time.Time, keys []feed.EPK, err error) {
	log, err := feed.OpenLog(ctx, f.js, p, f.cfg.Log)
	if err != nil {
		return settings, begun, nil, err
	}
	defer log.Close()
	first, last, err := log.Bounds(ctx)
	if err != nil {
		return settings, begun, nil, err
	}
	if first != 1 || last == 0 {
		return settings, begun, nil, fmt.Errorf("it begins with LSN %d and ends with %d: its settings are not all there; restore stream %s first", first, last, f.p.exam.Streams[p])
	}
	tail, err := log.Tail(ctx, first, feed.TailOptions{FromStream: true})
	if err != nil {
		return settings, begun, nil, err
	}
	defer tail.Close()
	seen := map[feed.EPK]bool{}
	for {
		c, err := tail.Next(ctx)
		if err != nil {
			return settings, begun, nil, err
		}
		if c.LSN == first {
			begun = time.UnixMilli(c.Time).UTC()
		}
		for i := range c.Transactions {
			t := &c.Transactions[i]
			if t.Control != nil && (t.Control.Kind == store.ControlGenesis || t.Control.Kind == store.ControlSettings) {
				// Each change of settings holds all of them. Decoded into the ones before, one that was removed
				// would stay.
				settings = store.Settings{}
				if err := json.Unmarshal(t.Control.Data, &settings); err != nil {
					return settings, begun, nil, fmt.Errorf("settings at LSN %d: %w", c.LSN, err)
				}
			}
			for j := range t.Changes {
				// Keys whose first components are equal lie side by side, and tell no more
				// than one of them.
				key := t.Changes[j].Key.Hash()
				key = key[:min(len(key), componentLen)]
				if len(seen) < keysMax && !seen[key] {
					seen[key] = true
					keys = append(keys, key)
				}
			}
		}
		if c.LSN >= last {
			return settings, begun, keys, nil
		}
	}
}

// checkPartitions says whether logs are all that a container had, by the keys in them: those of
// log i of n lie in the i-th of n equal ranges. A record with too few partitions would send keys
// to logs that never held them.
//
//	2 logs, keys in the first and in the second half      2 partitions
//	2 logs, keys in the first and in the second quarter   the first 2 of 4: restore 2 more
//	2 logs, keys all over                                 others are missing before them
func checkPartitions(id feed.ResourceID, keys [][]feed.EPK) error {
	n, all := len(keys), 0
	for _, of := range keys {
		all += len(of)
	}
	if !fit(keys, n) {
		return fmt.Errorf("the keys in the %d logs of %s are not those of a container of %d partitions: more logs belong to it; restore their streams first", n, id, n)
	}
	for more := n + 1; more <= store.PartitionsMax && all >= keysTelling; more++ {
		if fit(keys, more) {
			return fmt.Errorf("the keys in the %d logs of %s are those of the first of %d partitions or more: restore the streams of the others first, from %s on",
				n, id, more, feed.Partition{Container: id, Number: uint32(n)}.Stream())
		}
	}
	return nil
}

func fit(keys [][]feed.EPK, n int) bool {
	ranges := feed.EvenRanges(n)
	for i, of := range keys {
		for _, key := range of {
			if !ranges[i].Contains(key) {
				return false
			}
		}
	}
	return true
}
