package owner

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/store"
)

const (
	diskInterval = 250 * time.Millisecond
	// diskSlack is the part of the reserve that must be free beyond it before
	// writes are taken again, so that they do not come and go.
	diskSlack = 16
)

// diskLoop refuses writes while a guarded disk has less than DiskReserve free, which is
// before anything breaks, and takes them again when there is room.
func (s *Server) diskLoop(ctx context.Context) {
	if s.cfg.DiskReserve < 0 || s.cfg.DataDir == "" && s.cfg.LogDir == "" {
		return
	}
	t := time.NewTicker(diskInterval)
	defer t.Stop()
	var guard *store.Error
	for {
		dir, free, err := s.leastFree()
		switch {
		case err != nil:
			s.cfg.Logger.Error("free disk space cannot be read", "error", err)
		case free < s.cfg.DiskReserve && guard == nil:
			guard = &store.Error{
				Status: store.StatusInsufficientDisk, RetryAfter: time.Second,
				Message: fmt.Sprintf("disk nearly full: %d MiB are free below %s, writes are refused below %d MiB (store.diskReserve); free some space",
					free>>20, dir, s.cfg.DiskReserve>>20),
			}
			s.cfg.Logger.Error(guard.Message)
		case free >= s.cfg.DiskReserve+s.cfg.DiskReserve/diskSlack && guard != nil:
			s.cfg.Logger.Info("the disk has space again; writes are taken", "free", free)
			// Compared, because a partition may refuse writes for another reason by now, such
			// as a damaged log, and that does not end when the disk has room.
			for _, p := range s.partitions() {
				p.trouble.CompareAndSwap(guard, nil)
			}
			guard = nil
		}
		if err == nil {
			meters.diskFree.Record(ctx, free)
		}
		// At every tick, not only when the guard begins: partitions are opened meanwhile, and
		// other reasons to refuse writes end.
		if guard != nil {
			for _, p := range s.partitions() {
				p.trouble.CompareAndSwap(nil, guard)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// copyReserve is how much of a disk copies of other stores' partitions leave free, where writes to this store's own
// partitions are refused below reserve. Copies end earlier: what one takes in the second or two until it is told to end,
// and what merges take for a while, must not be what those writes lack.
func copyReserve(reserve int64) int64 { return reserve + reserve/4 }

// loadReserve is how much of the disk the load of a snapshot of that many bytes leaves free. A copy is not loaded where it
// would be followed for a moment only: there must be room for it to grow.
func (p *Partition) loadReserve(bytes int64) int64 {
	reserve := p.cfg.loadReserve()
	if p.follows {
		return copyReserve(reserve) + bytes/16
	}
	return reserve
}

// leastFree returns the guarded directory whose disk has the least free space.
func (s *Server) leastFree() (dir string, free int64, err error) {
	for _, d := range []string{s.cfg.DataDir, s.cfg.LogDir} {
		if d == "" {
			continue
		}
		f, err := freeBytes(d)
		if err != nil {
			return d, 0, err
		}
		if dir == "" || f < free {
			dir, free = d, f
		}
	}
	return dir, free, nil
}

// freeBytes is the space that an unprivileged process may still use.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", dir, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil //nolint:unconvert // the types differ between systems
}
