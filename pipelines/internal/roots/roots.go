// Package roots says below which directories the workers' sinks may write files.
//
// Each worker has roots of its own, from its configuration. It announces them, so that
// who declares a pipeline is told at once what a worker would refuse; but the worker
// alone decides, whenever it opens a sink:
//
//	apply, plan   Outside: by name, against what the workers have announced
//	worker        Check: on the disk, with symbolic links followed
//
// Roots are safe for concurrent use.
package roots

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Roots are the directories below which sinks of one process may write.
type Roots struct {
	paths []string // absolute
	own   []string // absolute; of the process itself
}

// OutsideError says that a directory is not one that sinks may write to.
type OutsideError struct {
	// Path is the directory, Leads where it leads by symbolic links; "" for itself.
	Path, Leads string
	// Roots are those that there are, and Own is the folder of Millrace itself that
	// the directory would touch, "" if it is none.
	Roots []string
	Own   string
}

func (e *OutsideError) Error() string {
	path := e.Path
	if e.Leads != "" {
		path += ", which leads to " + e.Leads + ","
	}
	if e.Own != "" {
		return fmt.Sprintf("%s is or holds %s, where this worker keeps its own files; choose another folder", path, e.Own)
	}
	return fmt.Sprintf("%s is not below %s, where this worker's sinks may write; choose a folder there, or add one to sinks.roots in the worker's configuration",
		path, strings.Join(e.Roots, " or "))
}

// New returns roots at paths, without those folders that are own. Paths that are not
// absolute are below the working directory. Without paths it returns nil: nothing is
// checked.
func New(paths, own []string) (*Roots, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	r := &Roots{}
	for _, list := range []struct {
		from []string
		to   *[]string
	}{{paths, &r.paths}, {own, &r.own}} {
		for _, path := range list.from {
			at, err := filepath.Abs(path)
			if err != nil {
				return nil, fmt.Errorf("sinks.roots: %s: %w", path, err)
			}
			*list.to = append(*list.to, at)
		}
	}
	return r, nil
}

// Paths returns the roots; none for nil.
func (r *Roots) Paths() []string {
	if r == nil {
		return nil
	}
	return slices.Clone(r.paths)
}

// Check returns *OutsideError unless a sink may write to the directory path, with
// symbolic links followed as far as there is something.
func (r *Roots) Check(path string) error {
	if r == nil {
		return nil
	}
	path = filepath.Clean(path)
	if !filepath.IsAbs(path) {
		return fmt.Errorf("the directory %s is not absolute", path)
	}
	leads, err := follow(path)
	if err != nil {
		return err
	}
	outside := &OutsideError{Path: path, Roots: r.paths}
	if leads != path {
		outside.Leads = leads
	}
	allowed := false
	for _, root := range r.paths {
		at, err := follow(root)
		if err != nil {
			return err
		}
		allowed = allowed || Holds(at, leads)
	}
	if !allowed {
		return outside
	}
	for _, own := range r.own {
		at, err := follow(own)
		if err != nil {
			return err
		}
		if Holds(at, leads) || Holds(leads, at) {
			outside.Own = own
			return outside
		}
	}
	return nil
}

// Below returns the directory that path names for who has the roots paths: one that is
// not absolute is below the first of them, or below the working directory without any.
func Below(paths []string, path string) (string, error) {
	if !filepath.IsAbs(path) && len(paths) > 0 {
		path = filepath.Join(paths[0], path)
	}
	return filepath.Abs(path)
}

// Outside returns *OutsideError if path, which is absolute, is below none of paths by
// its name.
func Outside(paths []string, path string) error {
	path = filepath.Clean(path)
	if slices.ContainsFunc(paths, func(root string) bool { return Holds(root, path) }) {
		return nil
	}
	return &OutsideError{Path: path, Roots: paths}
}

// Holds says whether a directory is another one or holds it, by their names.
func Holds(dir, other string) bool {
	rel, err := filepath.Rel(dir, other)
	return err == nil && filepath.IsLocal(rel)
}

// follow returns where path leads. What is not there yet is made where the last folder
// that is there leads.
func follow(path string) (string, error) {
	rest := ""
	for at := path; ; at = filepath.Dir(at) {
		leads, err := filepath.EvalSymlinks(at)
		if err == nil {
			return filepath.Join(leads, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("follow %s: %w", at, err)
		}
		// A link to what is not there would be made somewhere else than it seems.
		if info, err := os.Lstat(at); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return "", fmt.Errorf("follow %s: the symbolic link leads to nothing", at)
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}
