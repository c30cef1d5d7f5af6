// Package keyfile keeps named keys in a file: those of applications and those of operators. A file is read whole, checked
// and written whole, so nobody sees a part of it, and one that is not known to be right opens nothing.
//
// This package is no API for other programs.
package keyfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed/atomicfile"
	"github.com/millrace/millrace/store/naming"
)

const (
	// Max bounds the keys of a file: what somebody shows is compared with each.
	Max = 64
	// bytesMax bounds a file, in bytes.
	bytesMax = 4 << 20
	// version is that of the form of a file.
	version = 1
)

// Key is one key of a file.
type Key interface {
	// KeyName is plain (naming.CheckPlain), and the only one of its name in the file.
	KeyName() string
	// Check returns why a key with a plain name is none.
	Check() error
}

// Kind is what a file holds.
type Kind[K Key] struct {
	// Names says what the keys are, in errors: "keys of operators".
	Names string
	// None is the error where no key has a name.
	None error
}

// content is what a file says.
type content[K Key] struct {
	Version int `json:"version"`
	Keys    []K `json:"keys"`
}

// Read returns the keys of the file at path, by name. Where there is no file there are none.
func (f *Kind[K]) Read(path string) ([]K, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the %s: %w", f.Names, err)
	}
	if len(data) > bytesMax {
		return nil, fmt.Errorf("key file %s has %d bytes, more than %d", path, len(data), bytesMax)
	}
	var file content[K]
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields() // a limit of a key that is not known would be no limit
	err = dec.Decode(&file)
	if err == nil && file.Version != version {
		err = fmt.Errorf("it has version %d, and this release reads %d", file.Version, version)
	}
	if err == nil {
		err = check(file.Keys)
	}
	if err != nil {
		return nil, fmt.Errorf("key file %s is not what millrace keys create writes: %w", path, err)
	}
	return file.Keys, nil
}

func check[K Key](keys []K) error {
	if len(keys) > Max {
		return fmt.Errorf("it has %d keys; at most %d are allowed", len(keys), Max)
	}
	seen := map[string]bool{}
	for _, k := range keys {
		name := k.KeyName()
		if err := naming.CheckPlain(name); err != nil {
			return fmt.Errorf("key %.40q: %w", name, err)
		}
		if err := k.Check(); err != nil {
			return fmt.Errorf("key %s: %w", name, err)
		}
		if seen[name] {
			return fmt.Errorf("it has two keys of the name %s", name)
		}
		seen[name] = true
	}
	return nil
}

func (f *Kind[K]) write(path string, keys []K) error {
	if err := check(keys); err != nil {
		return err
	}
	slices.SortFunc(keys, func(a, b K) int { return strings.Compare(a.KeyName(), b.KeyName()) })
	data, err := json.MarshalIndent(content[K]{version, keys}, "", "  ")
	if err != nil {
		return fmt.Errorf("write the %s: %w", f.Names, err)
	}
	return atomicfile.WriteMkdir(path, append(data, '\n'))
}

// Add writes one more key. Nothing is changed if there is one of its name, or it is not right.
func (f *Kind[K]) Add(path string, k K) error {
	keys, err := f.Read(path)
	if err != nil {
		return err
	}
	if index(keys, k.KeyName()) >= 0 {
		return fmt.Errorf("there is a key %s already; millrace keys rotate %[1]s replaces it", k.KeyName())
	}
	return f.write(path, append(keys, k))
}

// Change writes the file with the key of that name as change makes it, or returns None.
func (f *Kind[K]) Change(path, name string, change func(*K)) error {
	return f.with(path, name, func(keys []K, i int) []K {
		change(&keys[i])
		return keys
	})
}

// Remove writes the file without the key of that name, or returns None.
func (f *Kind[K]) Remove(path, name string) error {
	return f.with(path, name, func(keys []K, i int) []K { return slices.Delete(keys, i, i+1) })
}

func (f *Kind[K]) with(path, name string, change func(keys []K, i int) []K) error {
	keys, err := f.Read(path)
	if err != nil {
		return err
	}
	i := index(keys, name)
	if i < 0 {
		return f.None
	}
	return f.write(path, change(keys, i))
}

func index[K Key](keys []K, name string) int {
	return slices.IndexFunc(keys, func(k K) bool { return k.KeyName() == name })
}
