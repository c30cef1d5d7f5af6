package postgres

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// binaries returns the folder of PostgreSQL's programs: that of the newest version
// that Debian has put there, else where PATH finds initdb.
func binaries() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", fmt.Errorf("postgres: %w", err)
	}
	if len(found) > 0 {
		newest := slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
		return filepath.Dir(newest), nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", ErrMissing
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", fmt.Errorf("postgres: %w", err)
	}
	return filepath.Dir(path), nil
}

// version is the number in /usr/lib/postgresql/15/bin/initdb.
func version(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// owner is who runs the server: nil is who runs this process.
type owner struct{ uid, gid int }

// findOwner returns the user postgres for root, whom PostgreSQL refuses.
func findOwner() (*owner, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("%w, or run as another user than root: %w", ErrMissing, err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("postgres: ids of the user postgres: %w", err)
	}
	return &owner{uid, gid}, nil
}

// own gives a file to the owner.
func (o *owner) own(path string) error {
	if o == nil {
		return nil
	}
	if err := os.Chown(path, o.uid, o.gid); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return nil
}

func (o *owner) attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{}
	if o != nil {
		a.Credential = &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.gid)}
	}
	return a
}
