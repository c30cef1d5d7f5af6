package natsd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// probe begins the names of empty files that a server makes and removes in each directory
// that it opens, to learn whether it may write there.
const probe = "_test_"

// removeProbes removes the probes that a server left which was killed between the two. It is
// called before a server opens its directory.
//
// In a stream's directory they lie for ever. Where accounts are, the next server takes one
// for an account that it does not know, and is never healthy again:
//
//	jetstream/$G             the account
//	jetstream/_test_2169418  JetStream account '_test_2169418' could not be resolved
func removeProbes(dir string) error {
	var errs []error
	for _, where := range []string{".", "*/streams/*"} {
		found, err := filepath.Glob(filepath.Join(dir, server.JetStreamStoreDir, where, probe+"*"))
		if err != nil {
			return err
		}
		for _, name := range found {
			if digits := strings.TrimPrefix(filepath.Base(name), probe); strings.Trim(digits, "0123456789") != "" {
				continue // it is none of os.CreateTemp
			}
			info, err := os.Lstat(name)
			if err != nil || !info.Mode().IsRegular() || info.Size() > 0 {
				errs = append(errs, err)
				continue
			}
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
