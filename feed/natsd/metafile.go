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
	"strings"

	"github.com/minio/highwayhash"
	"github.com/nats-io/nats-server/v2/server"
)

// completeUpdates completes updates of streams' configurations that a kill cut off. It returns
// the names of the streams. It is called before a server opens its directory.
//
// A NATS server writes a stream's configuration to meta.inf and then its checksum to
// meta.sum, each in one piece. If the process ends between the two, they differ, and the
// next server ignores the whole stream, with all of its messages:
//
//	meta.inf  written, with a rename      the update
//	  -- kill -9 --
//	meta.sum  still that of the configuration before
//
// The update is completed, by writing meta.sum, if meta.inf is the newer file or the only one,
// names the stream of its directory, and does not have the checksum in meta.sum. A
// meta.inf that a disk has damaged is not newer than its checksum, so it stays refused.
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

// cutOffFolder has what is left of streams whose deletion was cut off, by account.
const cutOffFolder = "deleted"

// finishDeletions moves aside what a kill has left of streams that were being deleted, and returns where to. It is called
// before a server opens its directory.
//
// A NATS server removes meta.inf first, so that nobody opens the stream again, and then gives its directory another name.
// If the process ends between the two, every server from then on says that it could not recover a stream, so
// the node would never be ready:
//
//	meta.inf                removed
//	  -- kill -9 --
//	streams/NAME            still there, with meta.sum and its messages
//
// They are not removed here, because a file system that has lost meta.inf looks the same.
func finishDeletions(dir string) (aside []string, err error) {
	sums, err := filepath.Glob(filepath.Join(dir, server.JetStreamStoreDir, "*", "streams", "*", server.JetStreamMetaFileSum))
	if err != nil {
		return nil, err
	}
	for _, sum := range sums {
		stream := filepath.Dir(sum)
		if strings.HasPrefix(filepath.Base(stream), ".") { // it has its other name, and the server removes it
			continue
		}
		if _, err := os.Stat(filepath.Join(stream, server.JetStreamMetaFile)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		account := filepath.Base(filepath.Dir(filepath.Dir(stream)))
		folder := filepath.Join(dir, cutOffFolder, account)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return aside, err
		}
		to := filepath.Join(folder, filepath.Base(stream))
		for n := 2; ; n++ { // a stream of that name may have been made and deleted since
			if _, err := os.Stat(to); errors.Is(err, fs.ErrNotExist) {
				break
			}
			to = filepath.Join(folder, fmt.Sprintf("%s.%d", filepath.Base(stream), n))
		}
		if err := os.Rename(stream, to); err != nil {
			return aside, fmt.Errorf("move aside the rest of the stream in %s: %w", stream, err)
		}
		aside = append(aside, to)
	}
	return aside, nil
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
		// The stream was being made. Its maker got no answer, so it will make the stream
		// again. The server then writes neither file, because meta.inf is there, and accepts
		// messages; the next server would ignore all of them.
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
	// The checksum as the NATS server makes it: HighwayHash, keyed by the stream's name.
	name := filepath.Base(filepath.Dir(meta))
	key := sha256.Sum256([]byte(name))
	hash, err := highwayhash.New64(key[:])
	if err != nil {
		return "", err
	}
	_, _ = hash.Write(config)
	want := []byte(hex.EncodeToString(hash.Sum(nil)))
	if bytes.Equal(sum, want) || !isOfStream(config, name) {
		return "", nil
	}
	return name, replaceFile(sumFile, want, summed.Mode().Perm())
}

// isOfStream reports whether config is the whole configuration of the named stream: JSON that
// was cut off is not.
func isOfStream(config []byte, name string) bool {
	var stream struct {
		Name string `json:"name"`
	}
	err := json.Unmarshal(config, &stream)
	return err == nil && stream.Name == name
}

// replaceFile writes a file in one piece, under another name first. Its content is on disk when
// it takes its name.
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
