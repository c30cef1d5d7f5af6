package parquetsink

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// Releases before Delta logs told readers of the live files by lists of paths, and on local
// disks by folders of hard links:
//
//	TABLE/_files.json              the live files of one table
//	current -> _views/NUMBER-…     the live files of all
//
// The Delta logs stand in their place. What such a release has left is removed once, when
// the logs are there: nobody would keep it up, and whoever went on reading it would see
// the tables as they were. A worker of such a release that still runs, or runs again,
// makes it anew, and the next look removes it.

// formerListName is the list of a table that earlier releases kept.
func formerListName(as string) string { return as + "/_files.json" }

// removeFormer removes lists and, on local disks, the hard links.
func (s *Sink) removeFormer(ctx context.Context, lists []string) error {
	if len(lists) > 0 {
		if err := s.store.Delete(ctx, lists...); err != nil {
			return unreachable("remove lists of an earlier release", err)
		}
	}
	links := false
	if v, ok := s.store.(tidier); ok {
		var err error
		if links, err = v.RemoveViews(ctx); err != nil {
			return unreachable("remove hard links of an earlier release", err)
		}
	}
	if len(lists) > 0 || links {
		s.cfg.Logger.InfoContext(ctx, "what an earlier release kept for readers was removed: they open the folder of a table as a Delta Lake table",
			slog.Any("lists", lists), slog.Bool("current", links))
	}
	return nil
}

// RemoveViews removes the link current and the folders of hard links, not what the links
// lead to. A file of the name current that is no such link is somebody else's and stays.
func (d *Dir) RemoveViews(ctx context.Context) (bool, error) {
	if _, err := os.Lstat(d.path(viewsFolder)); err != nil {
		if missing(err) {
			return false, nil
		}
		return false, err
	}
	if d.may != nil {
		if err := d.may(ctx); err != nil {
			return false, err
		}
	}
	// The link first: after a crash the folder is there still, and the rest is made up for.
	if to, err := os.Readlink(d.path(currentLink)); err == nil && strings.HasPrefix(filepath.ToSlash(to), viewsFolder+"/") {
		if err := os.Remove(d.path(currentLink)); err != nil && !missing(err) {
			return false, err
		}
	}
	return true, os.RemoveAll(d.path(viewsFolder))
}
