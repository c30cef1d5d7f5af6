package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"syscall"

	"github.com/dgraph-io/badger/v4"
)

// OpenOrSetAside is Open for those who can rebuild from the log: a directory whose
// files cannot be read is renamed to dir.corrupt-1 (or the next free number),
// which is returned as aside, and a new one is made. What is wrong with the machine
// rather than with the files (no permission, no space, too many open files, another
// process, a later format) is an error, and the directory stays.
func OpenOrSetAside(dir string, cfg Config, log *slog.Logger) (db *DB, aside string, err error) {
	db, err = Open(dir, cfg, log)
	if err == nil || !errors.Is(err, ErrCorrupt) {
		return db, "", err
	}
	if aside, err = setAside(dir, err, log); err != nil {
		return nil, "", err
	}
	db, err = Open(dir, cfg, log)
	return db, aside, err
}

// setAside renames dir because of what is wrong with it.
func setAside(dir string, wrong error, log *slog.Logger) (string, error) {
	for n := 1; ; n++ {
		aside := fmt.Sprintf("%s.corrupt-%d", dir, n)
		if _, err := os.Lstat(aside); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("engine: set %s aside: %w", dir, err)
		}
		if err := os.Rename(dir, aside); err != nil {
			return "", fmt.Errorf("engine: set %s aside: %w", dir, err)
		}
		log.Error("stored state cannot be read and was moved aside; it is rebuilt from the log",
			"dir", dir, "aside", aside, "error", wrong)
		return aside, nil
	}
}

// openBadger opens Badger in dir.
func openBadger(dir string, cfg Config, log *slog.Logger) (b *badger.DB, w *witness, kept bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = corrupt("open %s: %v", dir, r)
		}
		if err != nil {
			w.close()
		}
	}()
	countMismatches()
	guardMappings(log)
	opt := cfg.badgerOptions(dir, log)
	stops := uncleanStops(dir)
	if err := checkFiles(dir, cfg.Verify, opt); err != nil {
		return nil, nil, false, err
	}
	if w, err = newWitness(dir); err != nil {
		return nil, nil, false, openError(dir, err)
	}
	if b, err = badger.OpenManaged(opt); err != nil {
		if cause := openError(dir, err); !errors.Is(cause, ErrCorrupt) || !w.full() {
			return nil, w, false, cause
		}
		// Badger's errors have lost their causes.
		return nil, w, false, fmt.Errorf("engine: open %s: %w: %w", dir, syscall.ENOSPC, err)
	}
	if stops >= uncleanMax {
		stops = 0 // everything was verified
	}
	err = setUnclean(dir, stops+1)
	if err == nil {
		err = w.opened()
	}
	if err != nil {
		return nil, w, false, errors.Join(openError(dir, err), b.Close())
	}
	return b, w, sameBoot(dir), nil
}

// environmentErrors are the errors that say nothing about the files. One whose text is a part of
// another's comes behind it.
var environmentErrors = []error{
	syscall.EACCES, syscall.EPERM, fs.ErrPermission, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS,
	syscall.ENFILE, syscall.EMFILE, syscall.ENOMEM, syscall.ENOTDIR, syscall.EBUSY, syscall.EINTR,
}

// openError gives an error of opening its cause.
func openError(dir string, err error) error {
	if _, ok := errors.AsType[*LockedError](err); ok || errors.Is(err, ErrCorrupt) {
		return err
	}
	if isOrSays(err, syscall.EWOULDBLOCK) {
		return &LockedError{Dir: dir, Err: err}
	}
	for _, m := range environmentErrors {
		if errors.Is(err, m) {
			return fmt.Errorf("engine: open %s: %w", dir, err)
		}
		if isOrSays(err, m) {
			return fmt.Errorf("engine: open %s: %w: %w", dir, m, err)
		}
	}
	return corrupt("open %s: %v", dir, err)
}

// isOrSays tells whether an error has a cause, or its text. Badger formats causes into its errors,
// so nothing else is left of them. Sound files that are taken for damaged cost a rebuild; damaged
// ones under such a text cost an error that somebody reads.
func isOrSays(err, cause error) bool {
	return errors.Is(err, cause) || strings.Contains(err.Error(), cause.Error())
}
