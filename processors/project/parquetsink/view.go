package parquetsink

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// View links the files into a folder of the commit, and makes the symbolic link
// "current" lead there. It is not synced: it is made anew from the manifest.
//
// Under each table they stand in a folder that is named after the commit too. Readers
// list first and open then, by paths through "current", and pass over what is gone when
// they look at what they have listed. So that what they then open is all of one commit
// or nothing, no path leads into two commits.
func (d *Dir) View(ctx context.Context, commit uint64, files map[string]string) error {
	if d.viewed() >= commit {
		return nil
	}
	if d.may != nil {
		if err := d.may(ctx); err != nil {
			return err
		}
	}
	name := fmt.Sprintf("%020d-%s", commit, rand.Text()[:6])
	folder := path.Join(viewsFolder, name)
	if err := os.MkdirAll(d.path(folder), folderMode); err != nil {
		return err
	}
	made := map[string]bool{}
	for at, file := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		table, rest, _ := strings.Cut(at, "/")
		to := d.path(path.Join(folder, table, name, rest))
		if above := filepath.Dir(to); !made[above] {
			if err := os.MkdirAll(above, folderMode); err != nil {
				return err
			}
			made[above] = true
		}
		if err := os.Link(d.path(file), to); err != nil {
			return err
		}
	}
	// A symbolic link cannot be changed, only replaced: by a rename, which is one step.
	temp := d.path(path.Join(folder, "."+currentLink))
	if err := os.Symlink(filepath.FromSlash(folder), temp); err != nil {
		return err
	}
	return os.Rename(temp, d.path(currentLink))
}

// viewed is the commit that current shows, zero for none.
func (d *Dir) viewed() uint64 {
	target, err := os.Readlink(d.path(currentLink))
	if err != nil {
		return 0
	}
	number, _, _ := strings.Cut(filepath.Base(target), "-")
	commit, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return 0
	}
	return commit
}

// Tidy removes views that have not been current for grace, and files that were
// begun and never moved to their place.
func (d *Dir) Tidy(ctx context.Context, grace time.Duration) error {
	target, err := os.Readlink(d.path(currentLink))
	if err != nil && !missing(err) {
		return err
	}
	kept := filepath.Base(target)
	superseded, err := d.supersededAt(kept)
	if err != nil {
		return err
	}
	for _, folder := range []string{viewsFolder, tempFolder} {
		entries, err := os.ReadDir(d.path(folder))
		if err != nil && !missing(err) {
			return err
		}
		for _, entry := range entries {
			if err := ctx.Err(); err != nil {
				return err
			}
			since, ok := superseded[entry.Name()]
			if folder == tempFolder {
				since, ok = modified(entry)
			}
			if ok && time.Since(since) >= grace {
				if err := os.RemoveAll(d.path(path.Join(folder, entry.Name()))); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// supersededAt tells since when each view but the kept one is not current: since
// the next one was made.
func (d *Dir) supersededAt(kept string) (map[string]time.Time, error) {
	entries, err := os.ReadDir(d.path(viewsFolder))
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	since := map[string]time.Time{}
	// os.ReadDir sorts by name, and names begin with the commit's number. The folder's own
	// time tells when its view was made, not when it stopped being current.
	for i, entry := range entries {
		if entry.Name() == kept {
			continue
		}
		next := entry
		if i+1 < len(entries) {
			next = entries[i+1]
		}
		if at, ok := modified(next); ok {
			since[entry.Name()] = at
		}
	}
	return since, nil
}

func modified(entry fs.DirEntry) (time.Time, bool) {
	info, err := entry.Info()
	if err != nil {
		return time.Time{}, false
	}
	return info.ModTime(), true
}
