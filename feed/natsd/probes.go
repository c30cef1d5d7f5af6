package natsd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// probe begins the names of empty files that a NATS server makes and removes in each directory
// that it opens, to find out whether it may write there.
const probe = "_test_"

// removeProbes removes the probes that a server left because it was killed between making and
// removing one. It is called before a server opens its directory.
//
// A probe in a stream's directory would stay for ever. The next server takes one that lies
// beside the accounts for an account that it does not know, and is never healthy again:
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
				continue // os.CreateTemp, which makes the probes, appends digits alone
			}
			// Anything but an empty file is not a probe, whatever its name.
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
