package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// directory is a Store in a directory, which is made with the first object.
type directory string

// Directory returns the store in a directory.
func Directory(name string) Store { return directory(name) }

func (d directory) String() string { return string(d) }

func (d directory) path(name string) string {
	return filepath.Join(string(d), filepath.FromSlash(name))
}

// temporary marks files that are being written. A crash leaves them; List passes over them.
const temporary = ".tmp"

func (d directory) Put(ctx context.Context, name string, data []byte) error {
	path := d.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// The name comes last, when the bytes are on disk: a file with its name is whole.
	if err := writeSynced(path+temporary, data); err != nil {
		return errors.Join(err, d.Remove(ctx, name+temporary))
	}
	if err := os.Rename(path+temporary, path); err != nil {
		return err
	}
	return d.syncUp(filepath.Dir(path))
}

// Replace does not compare: a directory is for one process alone.
func (d directory) Replace(ctx context.Context, name string, data []byte, _ Revision) error {
	return d.Put(ctx, name, data)
}

func (d directory) Look(ctx context.Context, name string) ([]byte, Revision, error) {
	data, err := d.Get(ctx, name)
	return data, "", err
}

func writeSynced(path string, data []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err = f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}

// syncUp syncs a directory and those that it lies in, up to the store's own and the one
// that holds that: names that were made on the way must last too.
func (d directory) syncUp(dir string) error {
	top := filepath.Dir(filepath.Clean(string(d)))
	for {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		if err = errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
		if dir == top || dir == filepath.Dir(dir) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

func (d directory) Get(_ context.Context, name string) ([]byte, error) {
	data, err := os.ReadFile(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, d.path(name))
	}
	return data, err
}

// Sweep removes the temporary files that killed writes left below a folder. Nobody may write
// there meanwhile.
func (d directory) Sweep(ctx context.Context, folder string) error {
	err := filepath.WalkDir(d.path(folder), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.HasSuffix(path, temporary) {
			err = os.Remove(path)
		}
		return errors.Join(err, ctx.Err())
	})
	if errors.Is(err, fs.ErrNotExist) { // nothing was written yet
		return nil
	}
	return err
}

func (d directory) List(_ context.Context, prefix string) ([]string, error) {
	entries, err := os.ReadDir(d.path(prefix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		switch {
		case e.IsDir():
			names = append(names, e.Name()+"/")
		case !strings.HasSuffix(e.Name(), temporary):
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (d directory) Remove(_ context.Context, name string) error {
	if strings.HasSuffix(name, "/") {
		return os.RemoveAll(d.path(name))
	}
	if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
