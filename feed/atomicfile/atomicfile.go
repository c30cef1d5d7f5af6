// Package atomicfile writes small files that nobody may see in parts: keys, credentials,
// the state of an import. It follows them too: a Follower reads one again when it has changed.
//
// This package is no API for other programs.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Write replaces the file at path whole: after a crash it has its old content or the
// new one. Only its owner can read it. The directory must be there.
func Write(path string, data []byte) (err error) {
	// Beside the file, because a rename across file systems is none; with mode 0600.
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
		}
	}()
	_, err = f.Write(data)
	// Before the rename: else the name could outlive a loss of power and the content not.
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// WriteMkdir is Write, and makes the directory, for its owner alone, if it is not there.
func WriteMkdir(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return Write(path, data)
}
