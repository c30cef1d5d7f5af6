//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
)

// profiled runs f, which measures Millrace alone, and keeps its CPU profile if
// that was asked for. A bar that is missed stands beside its profile.
func (b *bench) profiled(name string, f func() error) (err error) {
	if b.cfg.profiles == "" {
		return f()
	}
	if err := os.MkdirAll(b.cfg.profiles, 0o755); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	b.profiles++
	name = strings.NewReplacer(" ", "-", ",", "", "/", "-").Replace(name)
	file, err := os.Create(filepath.Join(b.cfg.profiles, fmt.Sprintf("%s-%03d.pprof", name, b.profiles)))
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := pprof.StartCPUProfile(file); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer pprof.StopCPUProfile()
	return f()
}
