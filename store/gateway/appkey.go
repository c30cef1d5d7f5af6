package gateway

import (
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/gateway/keyfile"
)

// ApplicationKeysMax bounds the keys of applications: a signature is compared with each.
const ApplicationKeysMax = keyfile.Max

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

// ErrNoApplicationKey says that no key of an application has a name.
var ErrNoApplicationKey = errors.New("there is no key of an application of this name")

// applicationKeys is what the file holds.
var applicationKeys = &keyfile.Kind[ApplicationKey]{Names: "keys of applications", None: ErrNoApplicationKey}

// ApplicationKeyPath is where the keys of applications are: in the folder of the key file.
func (c *Config) ApplicationKeyPath() string {
	return filepath.Join(filepath.Dir(c.KeyPath()), "application-keys.json")
}

// ReadApplicationKeys reads the keys of applications by name. Where there is no file there are none.
func ReadApplicationKeys(path string) ([]ApplicationKey, error) { return applicationKeys.Read(path) }

// KeyName is the name of the key.
func (k ApplicationKey) KeyName() string { return k.Name }

// Check returns why the key is none; see keyfile.Key.
func (k ApplicationKey) Check() error {
	if slices.Contains(KeyNames, k.Name) {
		return errors.New("a master key has this name")
	}
	if err := errors.Join(store.CheckDatabaseName(k.Database), store.CheckContainerName(k.Container)); err != nil {
		return err
	}
	if k.Database == store.SystemDatabase && k.Writes {
		return fmt.Errorf("nobody writes to the database %s", k.Database)
	}
	if raw, err := base64.StdEncoding.DecodeString(string(k.Key)); err != nil || len(raw) < keyBytesMin {
		return fmt.Errorf("it is not base64 of at least %d bytes", keyBytesMin)
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
		all[i] = secret{raw: raw, access: accessRead, only: &keys[i], macs: new(sync.Pool)}
		if keys[i].Writes {
			all[i].access = accessWrite
		}
	}
	return all, nil
}

// CreateApplicationKey makes a key, as k says but for its key and its time, and returns it. Nothing is changed if there is one of its name.
func CreateApplicationKey(path string, k ApplicationKey) (ApplicationKey, error) {
	k.renew()
	return k, applicationKeys.Add(path, k)
}

// RotateApplicationKey replaces a key by a new one of the same right, or returns ErrNoApplicationKey.
func RotateApplicationKey(path, name string) (rotated ApplicationKey, err error) {
	err = applicationKeys.Change(path, name, func(k *ApplicationKey) {
		k.renew()
		rotated = *k
	})
	return rotated, err
}

// renew makes what is secret of a key.
func (k *ApplicationKey) renew() { k.Key, k.Created = newKey(), time.Now().UTC().Truncate(time.Second) }

// DeleteApplicationKey removes a key, or returns ErrNoApplicationKey.
func DeleteApplicationKey(path, name string) error { return applicationKeys.Remove(path, name) }
