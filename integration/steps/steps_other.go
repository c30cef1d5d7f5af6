//go:build !linux || !(amd64 || arm64)

package steps

import (
	"errors"
	"os/exec"
)

// Main does nothing here.
func Main() {}

func unsupported() string { return "seccomp is of Linux" }

func (w *Watcher) command(path string, args []string) *exec.Cmd { return exec.Command(path, args...) }

func (w *Watcher) start(*exec.Cmd) error { return errors.ErrUnsupported }
