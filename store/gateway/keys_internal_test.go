package gateway

import (
	"os"
	"path/filepath"
	"testing"
)

// Of two processes that make one key file the first has made it, and the second goes on with its keys.
func TestMakeKeys_LeavesThoseOfAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway", "keys.json")
	if err := makeKeys(path); err != nil {
		t.Fatal(err)
	}
	first, err := ReadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	// The second process has seen no file a moment ago.
	if err := makeKeys(path); err != nil {
		t.Fatal(err)
	}
	if second, err := ReadKeys(path); err != nil || second != first {
		t.Errorf("the keys of the first were replaced: %v", err)
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 1 {
		t.Errorf("left beside the keys: %v, %v", files, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
}
