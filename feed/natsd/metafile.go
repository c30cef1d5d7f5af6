package natsd

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/minio/highwayhash"
	"github.com/nats-io/nats-server/v2/server"
)

// completeUpdates completes updates of streams that were cut off, and returns the
// names of the streams. It is called before a server opens its directory.
//
// A server writes a stream's configuration to meta.inf and then the checksum of it to
// meta.sum, each in one piece. If the process ends between the two they differ, and
// the next server passes the whole stream over, with all of its messages:
//
//	meta.inf  written, with a rename      the update
//	  -- kill -9 --
//	meta.sum  still that of the configuration before
//
// So where meta.inf is the newer of the two, or alone, tells the name of its directory, and is
// not what meta.sum says, the update is completed. A file that has rotted is not newer
// than its checksum, and stays refused.
func completeUpdates(dir string) (completed []string, err error) {
	metas, err := filepath.Glob(filepath.Join(dir, server.JetStreamStoreDir, "*", "streams", "*", server.JetStreamMetaFile))
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, meta := range metas {
		name, err := completeUpdate(meta)
		if err != nil {
			errs = append(errs, fmt.Errorf("complete the update of the stream in %s: %w", filepath.Dir(meta), err))
		} else if name != "" {
			completed = append(completed, name)
		}
	}
	return completed, errors.Join(errs...)
}

// completeUpdate returns the stream's name if it completed an update.
func completeUpdate(meta string) (string, error) {
	sumFile := filepath.Join(filepath.Dir(meta), server.JetStreamMetaFileSum)
	written, err := os.Stat(meta)
	if err != nil {
		return "", err
	}
	var sum []byte
	summed, err := os.Stat(sumFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// It was being made, and whoever made it was not answered, so he makes it again. A
		// server then writes neither file, because meta.inf is there, and takes messages. The
		// next one would pass all of them over.
		summed = written
	case err != nil || !written.ModTime().After(summed.ModTime()):
		return "", err
	default:
		if sum, err = os.ReadFile(sumFile); err != nil {
			return "", err
		}
	}
	config, err := os.ReadFile(meta)
	if err != nil {
		return "", err
	}
	name := filepath.Base(filepath.Dir(meta))
	key := sha256.Sum256([]byte(name))
	hash, err := highwayhash.New64(key[:])
	if err != nil {
		return "", err
	}
	_, _ = hash.Write(config)
	want := []byte(hex.EncodeToString(hash.Sum(nil)))
	if bytes.Equal(sum, want) || !names(config, name) {
		return "", nil
	}
	return name, replaceFile(sumFile, want, summed.Mode().Perm())
}

// names says whether a stream's configuration can be read and is that of a name.
func names(config []byte, name string) bool {
	var stream struct {
		Name string `json:"name"`
	}
	err := json.Unmarshal(config, &stream)
	return err == nil && stream.Name == name
}

// replaceFile writes a file in one piece, and returns when it is on disk.
func replaceFile(name string, data []byte, mode fs.FileMode) error {
	next := name + ".next"
	f, err := os.OpenFile(next, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return os.Rename(next, name)
}
