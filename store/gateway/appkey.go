package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/feed/atomicfile"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/naming"
)

// ApplicationKeysMax bounds the keys of applications: a signature is compared with each.
const ApplicationKeysMax = 64

// applicationKeyVersion is the version of the file of applications' keys.
const applicationKeyVersion = 1

// ApplicationKey is a key of one container. Clients sign with it as with a master key. It opens the container's
// description and items, and nothing else: no console, no metrics, and no other container.
type ApplicationKey struct {
	// Name is plain, and none of KeyNames.
	Name string `json:"name"`
	// Key is in base64.
	Key Key `json:"key"`
	// Database and Container are names: a container that is made anew is opened too.
	Database  string `json:"database"`
	Container string `json:"container"`
	// Writes says that items may be written and deleted. The container may not be changed or deleted.
	Writes bool `json:"writes"`
	// Created is when the key was made, in whole seconds.
	Created time.Time `json:"created"`
}

// applicationKeys is the file.
type applicationKeys struct {
	Version int              `json:"version"`
	Keys    []ApplicationKey `json:"keys"`
}

// ErrNoApplicationKey says that no key of an application has a name.
var ErrNoApplicationKey = errors.New("there is no key of an application of this name")

// ApplicationKeyPath is where the keys of applications are: in the folder of the key file.
func (c *Config) ApplicationKeyPath() string {
	return filepath.Join(filepath.Dir(c.KeyPath()), "application-keys.json")
}

// ReadApplicationKeys reads the keys of applications by name. Where there is no file there are none.
func ReadApplicationKeys(path string) ([]ApplicationKey, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the keys of applications: %w", err)
	}
	if len(data) > keyFileMax {
		return nil, fmt.Errorf("key file %s has %d bytes, more than %d", path, len(data), keyFileMax)
	}
	var file applicationKeys
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields() // a limit of a key that is not known would be no limit
	err = dec.Decode(&file)
	if err == nil && file.Version != applicationKeyVersion {
		err = fmt.Errorf("it has version %d, and this release reads %d", file.Version, applicationKeyVersion)
	}
	if err == nil {
		err = checkApplicationKeys(file.Keys)
	}
	if err != nil {
		return nil, fmt.Errorf("key file %s is not what millrace keys create writes: %w", path, err)
	}
	return file.Keys, nil
}

func checkApplicationKeys(keys []ApplicationKey) error {
	if len(keys) > ApplicationKeysMax {
		return fmt.Errorf("it has %d keys; at most %d are allowed", len(keys), ApplicationKeysMax)
	}
	seen := map[string]bool{}
	for i := range keys {
		k := &keys[i]
		if err := k.check(); err != nil {
			return err
		}
		if seen[k.Name] {
			return fmt.Errorf("it has two keys of the name %s", k.Name)
		}
		seen[k.Name] = true
	}
	return nil
}

func (k *ApplicationKey) check() error {
	if err := naming.CheckPlain(k.Name); err != nil {
		return fmt.Errorf("key %.40q: %w", k.Name, err)
	}
	if slices.Contains(KeyNames, k.Name) {
		return fmt.Errorf("key %s: a master key has this name", k.Name)
	}
	if err := errors.Join(store.CheckDatabaseName(k.Database), store.CheckContainerName(k.Container)); err != nil {
		return fmt.Errorf("key %s: %w", k.Name, err)
	}
	if k.Database == store.SystemDatabase && k.Writes {
		return fmt.Errorf("key %s: nobody writes to the database %s", k.Name, k.Database)
	}
	if raw, err := base64.StdEncoding.DecodeString(string(k.Key)); err != nil || len(raw) < keyBytesMin {
		return fmt.Errorf("key %s is not base64 of at least %d bytes", k.Name, keyBytesMin)
	}
	return nil
}

func readApplicationSecrets(path string) ([]secret, error) {
	keys, err := ReadApplicationKeys(path)
	if err != nil {
		return nil, err
	}
	all := make([]secret, len(keys))
	for i := range keys {
		raw, err := base64.StdEncoding.DecodeString(string(keys[i].Key))
		if err != nil {
			return nil, err
		}
		all[i] = secret{raw: raw, access: accessRead, only: &keys[i]}
		if keys[i].Writes {
			all[i].access = accessWrite
		}
	}
	return all, nil
}

func writeApplicationKeys(path string, keys []ApplicationKey) error {
	if err := checkApplicationKeys(keys); err != nil {
		return err
	}
	slices.SortFunc(keys, func(a, b ApplicationKey) int { return strings.Compare(a.Name, b.Name) })
	data, err := json.MarshalIndent(applicationKeys{applicationKeyVersion, keys}, "", "  ")
	if err != nil {
		return fmt.Errorf("write the keys of applications: %w", err)
	}
	return atomicfile.WriteMkdir(path, append(data, '\n'))
}

// CreateApplicationKey makes a key, as k says but for its key and its time, and returns it. Nothing is changed if there is one of its name.
func CreateApplicationKey(path string, k ApplicationKey) (ApplicationKey, error) {
	keys, err := ReadApplicationKeys(path)
	if err != nil {
		return k, err
	}
	if slices.ContainsFunc(keys, func(other ApplicationKey) bool { return other.Name == k.Name }) {
		return k, fmt.Errorf("there is a key %s already; millrace keys rotate %[1]s replaces it, millrace keys delete %[1]s removes it", k.Name)
	}
	k.Key, k.Created = newKey(), time.Now().UTC().Truncate(time.Second)
	return k, writeApplicationKeys(path, append(keys, k))
}

// RotateApplicationKey replaces a key by a new one of the same right, or returns ErrNoApplicationKey.
func RotateApplicationKey(path, name string) (ApplicationKey, error) {
	var rotated ApplicationKey
	err := changeApplicationKey(path, name, func(keys []ApplicationKey, i int) []ApplicationKey {
		keys[i].Key, keys[i].Created = newKey(), time.Now().UTC().Truncate(time.Second)
		rotated = keys[i]
		return keys
	})
	return rotated, err
}

// DeleteApplicationKey removes a key, or returns ErrNoApplicationKey.
func DeleteApplicationKey(path, name string) error {
	return changeApplicationKey(path, name, func(keys []ApplicationKey, i int) []ApplicationKey { return slices.Delete(keys, i, i+1) })
}

func changeApplicationKey(path, name string, change func(keys []ApplicationKey, i int) []ApplicationKey) error {
	keys, err := ReadApplicationKeys(path)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(keys, func(k ApplicationKey) bool { return k.Name == name })
	if i < 0 {
		return ErrNoApplicationKey
	}
	return writeApplicationKeys(path, change(keys, i))
}
