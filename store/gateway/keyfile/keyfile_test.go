package keyfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/store/gateway/keyfile"
)

type key struct {
	Name  string `json:"name"`
	Opens string `json:"opens"`
}

func (k key) KeyName() string { return k.Name }

func (k key) Check() error {
	if k.Opens == "" {
		return errors.New("it opens nothing")
	}
	return nil
}

var (
	errNone = errors.New("no such key")
	kind    = &keyfile.Kind[key]{Names: "keys of doors", None: errNone}
)

// TestKind keeps keys in a file, and sees that what is refused leaves it as it is.
func TestKind(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "in", "keys.json")
	if keys, err := kind.Read(path); err != nil || len(keys) != 0 {
		t.Fatalf("where there is no file: %v, %v", keys, err)
	}
	for _, name := range []string{"b", "a"} {
		if err := kind.Add(path, key{name, "front"}); err != nil {
			t.Fatal(err)
		}
	}
	for what, err := range map[string]error{
		"there already":         kind.Add(path, key{"a", "back"}),
		"no plain name":         kind.Add(path, key{"a b", "back"}),
		"none by itself":        kind.Add(path, key{"c", ""}),
		"made one that is none": kind.Change(path, "a", func(k *key) { k.Opens = "" }),
		"given another's name":  kind.Change(path, "a", func(k *key) { k.Name = "b" }),
	} {
		if err == nil {
			t.Errorf("a key that is %s was taken", what)
		}
	}
	if err := kind.Change(path, "c", func(*key) {}); !errors.Is(err, errNone) {
		t.Errorf("changed, and not there: %v", err)
	}
	if err := kind.Remove(path, "c"); !errors.Is(err, errNone) {
		t.Errorf("removed, and not there: %v", err)
	}
	if err := kind.Change(path, "a", func(k *key) { k.Opens = "back" }); err != nil {
		t.Fatal(err)
	}
	if keys, err := kind.Read(path); err != nil || len(keys) != 2 || keys[0] != (key{"a", "back"}) || keys[1] != (key{"b", "front"}) {
		t.Errorf("the file has %v, %v", keys, err)
	}
	if err := kind.Remove(path, "b"); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(good), `"name"`, `"only":"today","name"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := kind.Read(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a limit that is not known: %v", err)
	}
}
