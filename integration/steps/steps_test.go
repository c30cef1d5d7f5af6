package steps_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/integration/steps"
)

func TestMain(m *testing.M) {
	steps.Main()
	if dir := os.Getenv("MILLRACE_STEPS_DIR"); dir != "" {
		write(dir)
		return
	}
	os.Exit(m.Run())
}

// write makes a file as products do: temporary name, sync, rename; and removes another.
func write(dir string) {
	f, err := os.Create(filepath.Join(dir, "new.tmp"))
	if err != nil {
		panic(err)
	}
	if _, err = f.WriteString("text"); err != nil {
		panic(err)
	}
	if err := f.Sync(); err != nil {
		panic(err)
	}
	if err := f.Close(); err != nil {
		panic(err)
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, "new")); err != nil {
		panic(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "old")); err != nil {
		panic(err)
	}
}

// TestWatcher_KillsAtTheStep kills a process at each of its steps: what comes before has
// been done, and it and what comes after has not.
func TestWatcher_KillsAtTheStep(t *testing.T) {
	for _, c := range []struct {
		at    string // "" is nowhere; a plain write has the watcher see those
		files []string
	}{
		{"create new.tmp", []string{"old"}},
		{"write new.tmp", []string{"new.tmp", "old"}},
		{"fsync new.tmp", []string{"new.tmp", "old"}},
		{"renameat new", []string{"new.tmp", "old"}},
		{"unlinkat old", []string{"new", "old"}},
		{"", []string{"new"}},
	} {
		t.Run(c.at, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("MILLRACE_STEPS_DIR", dir)
			if err := os.WriteFile(filepath.Join(dir, "old"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var seen []string
			w := steps.New(t, func(call steps.Call) steps.Verdict {
				if filepath.Dir(call.Path) != dir {
					return steps.Go
				}
				name := call.Name + " " + filepath.Base(call.Path)
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, name)
				if name == c.at {
					return steps.Kill
				}
				return steps.Go
			})
			w.Writes = strings.HasPrefix(c.at, "write ")
			cmd := w.Command(os.Args[0])
			if err := w.Start(cmd); err != nil {
				t.Fatal(err)
			}
			err := cmd.Wait()
			if killed := err != nil; killed != (c.at != "") {
				t.Errorf("it ends with %v", err)
			}
			var there []string
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				there = append(there, e.Name())
			}
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(there, c.files) {
				t.Errorf("files %q, want %q; it has made %q", there, c.files, seen)
			}
		})
	}
}
