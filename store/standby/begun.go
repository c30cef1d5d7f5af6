package standby

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/atomicfile"
	"github.com/millrace/millrace/store/owner"
)

// begun is a copy that a follower of this node began, in this process or an earlier one, and that was not freed
// yet. One that an owner of this node took stays with it, and is none any more.
type begun struct {
	unwanted time.Time // since when it is to be freed; zero if it is wanted
	retry    time.Time // when to try again that could not be freed
	said     string    // why not, as it was logged last
}

// begunVersion is the version of the file; FORMAT.md describes it.
const begunVersion = 1

type begunFile struct {
	Version    int      `json:"v"`
	Partitions []string `json:"partitions"`
}

// readBegun reads what earlier processes of this node have begun. A file that cannot be read is left alone: then the
// disk space of what it names is not freed, and nothing else depends on it.
func (s *Standbys) readBegun() {
	if s.cfg.File == "" {
		return
	}
	ids, err := decodeBegun(s.cfg.File)
	if err != nil {
		s.cfg.Logger.Warn("which copies of other stores' partitions are to be freed is not known any more; remove the file, and they stay until their containers are deleted",
			"error", err)
		s.cfg.File = ""
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.begun[id] = &begun{}
	}
	s.written = slices.Clone(ids)
}

func decodeBegun(file string) ([]feed.Partition, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var f begunFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if f.Version != begunVersion {
		return nil, fmt.Errorf("%s has version %d, this release reads version %d", file, f.Version, begunVersion)
	}
	var ids []feed.Partition
	for _, name := range f.Partitions {
		id, err := feed.ParsePartition(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// writeBegun writes which copies were begun, those of more included, if the file says something else.
func (s *Standbys) writeBegun(more []feed.Partition) error {
	s.mu.Lock()
	ids := slices.Concat(slices.Collect(maps.Keys(s.begun)), more)
	s.mu.Unlock()
	slices.SortFunc(ids, func(a, b feed.Partition) int { return strings.Compare(a.String(), b.String()) })
	ids = slices.Compact(ids)
	if s.cfg.File == "" || slices.Equal(ids, s.written) {
		return nil
	}
	f := begunFile{Version: begunVersion, Partitions: []string{}}
	for _, id := range ids {
		f.Partitions = append(f.Partitions, id.String())
	}
	data, err := json.Marshal(f)
	if err == nil {
		err = atomicfile.Write(s.cfg.File, append(data, '\n'))
	}
	if err == nil {
		s.written = ids
	}
	return err
}

// freeableLocked returns the copies whose freeing may begin now, as many as freeingsMax allows. It is any of them: one
// that cannot be freed is not tried again for a while, so each has its turn.
func (s *Standbys) freeableLocked(now time.Time) (free []feed.Partition) {
	places := freeingsMax
	for _, f := range s.followers {
		if f.frees {
			places--
		}
	}
	for id, b := range s.begun {
		if len(free) >= places {
			break
		}
		if !b.unwanted.IsZero() && now.Sub(b.unwanted) >= s.cfg.Settle && s.followers[id] == nil && s.owned[id] == 0 && !now.Before(b.retry) {
			free = append(free, id)
		}
	}
	return free
}

// freeLocked begins to free a copy that nobody here follows or owns. Nobody follows it until that has ended, and an
// owner who comes ends it.
func (s *Standbys) freeLocked(ctx context.Context, owners *owner.Server, id feed.Partition, b *begun) {
	f := s.newFollower(owners, id)
	f.frees = true
	s.startLocked(ctx, f, func(ctx context.Context) { f.free(ctx, b, owners.Unfollow) })
}

// free frees what the copy takes, unless it may be the last of its kind.
func (f *follower) free(ctx context.Context, b *begun, unfollow func(context.Context, feed.Partition, func()) (string, error)) {
	moving, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(retryMax, func() { cancel(fmt.Errorf("nothing came for %s", retryMax)) })
	defer stalled.Stop()
	kept, err := unfollow(moving, f.id, func() { stalled.Reset(retryMax) })
	if ctx.Err() != nil && err != nil {
		return // its owner goes on from it, or the process ends
	}
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if err == nil && kept == "" {
		delete(f.s.begun, f.id)
		f.log.Info("the copy of another store's partition is not kept any more")
		return
	}
	b.retry = time.Now().Add(retryMax)
	why := kept
	if err != nil {
		why = err.Error()
	}
	if errors.Is(err, owner.ErrNotFollowed) {
		b.retry = time.Now().Add(retryMin)
	}
	if b.said == why {
		return
	}
	b.said = why
	switch {
	case err == nil:
		f.log.Warn("the copy of another store's partition is not followed any more, and stays on the disk", "reason", kept)
	case errors.Is(err, owner.ErrNotFollowed):
		f.log.Debug("the copy of another store's partition is not freed now", "error", err)
	default:
		f.log.Log(ctx, slog.LevelError, "what the copy of another store's partition takes could not be freed", "error", err)
	}
}
