package parquetsink

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Names inside a Dir that are no objects. In _views earlier releases had hard links to the
// live files of each commit; the symbolic link current led to the newest.
const (
	tempFolder  = "_tmp"
	viewsFolder = "_views"
	currentLink = "current"
)

// What a Dir makes can be read by its group, and by nobody else.
const (
	fileMode   = 0o640
	folderMode = 0o750
)

// Dir is an ObjectStore in a local directory. An object is a file; it is written
// beside its place, synced, and moved there, and its folder is synced, so that
// after a crash it is there whole or not at all. The file system must have hard
// links: they make PutExclusive exclusive.
type Dir struct {
	root string
	// may is asked before something is written; nil for a directory that anybody may
	// write to.
	may func(context.Context) error
	// synced are folders whose own place is known to be durable.
	synced sync.Map
}

// NewDir returns the store in the directory at root, which is made when something
// is written.
func NewDir(root string) *Dir { return &Dir{root: filepath.Clean(root)} }

// Guard sets a check that runs before each write and can refuse it: somebody may have
// put another directory in the place of this one.
func (d *Dir) Guard(may func(context.Context) error) { d.may = may }

// String returns the directory's path.
func (d *Dir) String() string { return d.root }

func (d *Dir) path(name string) string { return filepath.Join(d.root, filepath.FromSlash(name)) }

// Get reads a file.
func (d *Dir) Get(_ context.Context, name string) ([]byte, error) { return os.ReadFile(d.path(name)) }

// Put writes a file.
func (d *Dir) Put(ctx context.Context, name string, data []byte) error {
	return d.writeAndMove(ctx, name, data, os.Rename)
}

// PutExclusive writes a file that is not there.
func (d *Dir) PutExclusive(ctx context.Context, name string, data []byte) error {
	return d.writeAndMove(ctx, name, data, os.Link)
}

// writeAndMove writes data to a temporary file, syncs it, and moves it to its name, by a
// rename or by a link, which fails if the name is taken. The other order, a file that is
// opened under its name and then written, would show half a manifest to readers and
// leave it after a crash.
func (d *Dir) writeAndMove(ctx context.Context, name string, data []byte, move func(from, to string) error) error {
	if d.may != nil {
		if err := d.may(ctx); err != nil {
			return err
		}
	}
	temp, err := d.temp(data)
	if err != nil {
		return err
	}
	defer os.Remove(temp) //nolint:errcheck // it has been moved, or is tidied away later
	to := d.path(name)
	// Try first, make the folder then: it is there but for the first file in it.
	if err = move(temp, to); missing(err) {
		if err = d.makeFolder(filepath.Dir(to)); err != nil {
			return err
		}
		err = move(temp, to)
	}
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: the directory must be writable, on a file system with hard links", err)
	}
	if err != nil {
		return err
	}
	return d.syncFolders(filepath.Dir(to))
}

// syncFolders syncs a folder and, once, those above it, which another process may
// have made a moment ago.
func (d *Dir) syncFolders(folder string) error {
	if err := syncFolder(folder); err != nil {
		return err
	}
	if _, ok := d.synced.Load(folder); ok {
		return nil
	}
	for at := folder; at != d.root; at = filepath.Dir(at) {
		if err := syncFolder(filepath.Dir(at)); err != nil {
			return err
		}
	}
	d.synced.Store(folder, true)
	return nil
}

// temp writes and syncs a file of a name that nobody has.
func (d *Dir) temp(data []byte) (string, error) {
	name := filepath.Join(d.root, tempFolder, rand.Text())
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if missing(err) {
		if err = d.makeFolder(filepath.Dir(name)); err != nil {
			return "", err
		}
		f, err = os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	}
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(name)
		return "", err
	}
	return name, nil
}

// makeFolder makes a folder and those above it, durably.
func (d *Dir) makeFolder(folder string) error {
	if info, err := os.Stat(folder); err == nil && info.IsDir() {
		return nil
	}
	above := filepath.Dir(folder)
	if above != folder {
		if err := d.makeFolder(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(folder, folderMode); err != nil && !exists(err) {
		return err
	}
	return syncFolder(above)
}

func syncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	err = f.Sync()
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("sync folder %s: %w", folder, err)
	}
	return nil
}

// List walks the folder prefix.
func (d *Dir) List(ctx context.Context, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		var objects []Object
		err := filepath.WalkDir(d.path(prefix), func(at string, entry fs.DirEntry, err error) error {
			switch {
			case missing(err):
				return nil // it has gone meanwhile, or was never there
			case err != nil:
				return err
			case entry.IsDir() && hidden(d.root, at):
				return fs.SkipDir
			case !entry.Type().IsRegular():
				return ctx.Err()
			}
			return d.appendListed(&objects, at, entry, after)
		})
		if err != nil {
			yield(Object{}, err)
			return
		}
		slices.SortFunc(objects, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
		for _, o := range objects {
			if !yield(o, nil) {
				return
			}
		}
	}
}

// hidden says whether a folder holds no objects.
func hidden(root, folder string) bool {
	return filepath.Dir(folder) == root && slices.Contains([]string{tempFolder, viewsFolder}, filepath.Base(folder))
}

func (d *Dir) appendListed(objects *[]Object, at string, entry fs.DirEntry, after string) error {
	rel, err := filepath.Rel(d.root, at)
	if err != nil {
		return err
	}
	name := filepath.ToSlash(rel)
	if name <= after {
		return nil
	}
	info, err := entry.Info()
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	*objects = append(*objects, Object{Name: name, Modified: info.ModTime()})
	return nil
}

// Tidy removes files that were begun and never moved to their place, once grace has
// passed.
func (d *Dir) Tidy(ctx context.Context, grace time.Duration) error {
	entries, err := os.ReadDir(d.path(tempFolder))
	if err != nil && !missing(err) {
		return err
	}
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) < grace {
			continue // it may have gone meanwhile
		}
		if err := os.Remove(d.path(path.Join(tempFolder, entry.Name()))); err != nil && !missing(err) {
			return err
		}
	}
	return nil
}

// Delete removes files. Folders stay.
func (d *Dir) Delete(_ context.Context, names ...string) error {
	for _, name := range names {
		if err := os.Remove(d.path(name)); err != nil && !missing(err) {
			return err
		}
	}
	return nil
}
