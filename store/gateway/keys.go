package gateway

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/millrace/millrace/feed/atomicfile"
)

const (
	// keyBytes is the size in bytes of a key that is made here, as the service's keys have it.
	keyBytes = 64
	// keyBytesMin is the least size in bytes of an accepted key.
	keyBytesMin = 16
	// keyFileMax bounds the key file, in bytes.
	keyFileMax = 64 << 10
)

// Key is a master key in base64. It does not print itself.
type Key string

// String returns a mark instead of the key.
func (k Key) String() string {
	if k == "" {
		return ""
	}
	return "(secret)"
}

// LogValue keeps the key out of logs.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// Keys are the master keys of a server. Two of each kind are in force at once, so
// that one can be replaced while clients use the other. An empty one is not in
// force.
type Keys struct {
	// Primary and Secondary read and write, in base64.
	Primary   Key `yaml:"primary" json:"primary"`
	Secondary Key `yaml:"secondary" json:"secondary"`

	// PrimaryReadOnly and SecondaryReadOnly read.
	PrimaryReadOnly   Key `yaml:"primaryReadOnly" json:"primaryReadOnly"`
	SecondaryReadOnly Key `yaml:"secondaryReadOnly" json:"secondaryReadOnly"`
}

// The names of keys, as commands take them.
const (
	KeyPrimary           = "primary"
	KeySecondary         = "secondary"
	KeyPrimaryReadOnly   = "primary-read-only"
	KeySecondaryReadOnly = "secondary-read-only"
)

// KeyNames are the names of all keys.
var KeyNames = []string{KeyPrimary, KeySecondary, KeyPrimaryReadOnly, KeySecondaryReadOnly}

func (k *Keys) named(name string) *Key {
	return []*Key{&k.Primary, &k.Secondary, &k.PrimaryReadOnly, &k.SecondaryReadOnly}[slices.Index(KeyNames, name)]
}

// Named returns a key by its name; "" for a name that is none.
func (k *Keys) Named(name string) Key {
	if !slices.Contains(KeyNames, name) {
		return ""
	}
	return *k.named(name)
}

func (k *Keys) check() error {
	var errs []error
	for _, name := range KeyNames {
		if key := k.Named(name); key != "" {
			if raw, err := base64.StdEncoding.DecodeString(string(key)); err != nil || len(raw) < keyBytesMin {
				errs = append(errs, fmt.Errorf("%s is not base64 of at least %d bytes", name, keyBytesMin))
			}
		}
	}
	return errors.Join(errs...)
}

// NewKeys makes four keys.
func NewKeys() Keys {
	var k Keys
	for _, name := range KeyNames {
		*k.named(name) = newKey()
	}
	return k
}

func newKey() Key {
	var raw [keyBytes]byte
	rand.Read(raw[:]) // never returns an error since Go 1.24
	return Key(base64.StdEncoding.EncodeToString(raw[:]))
}

// KeyPath is where the key file of c is.
func (c *Config) KeyPath() string {
	if c.KeyFile != "" {
		return c.KeyFile
	}
	return filepath.Join(c.Dir, "keys.json")
}

// ReadKeys reads a key file. The error is fs.ErrNotExist if there is none.
func ReadKeys(path string) (Keys, error) {
	var k Keys
	data, err := os.ReadFile(path)
	if err != nil {
		return k, fmt.Errorf("read the keys: %w", err)
	}
	if len(data) > keyFileMax {
		return k, fmt.Errorf("key file %s has %d bytes, more than %d", path, len(data), keyFileMax)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&k); err != nil {
		return Keys{}, fmt.Errorf("key file %s is not what millrace keys rotate writes: %w", path, err)
	}
	if err := k.check(); err != nil {
		return Keys{}, fmt.Errorf("key file %s: %w", path, err)
	}
	if k == (Keys{}) {
		return k, fmt.Errorf("key file %s has no key; delete it, and new ones are made", path)
	}
	return k, nil
}

// WriteKeys replaces a key file at once, readable for its owner alone.
func WriteKeys(path string, k Keys) error {
	data, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return fmt.Errorf("write the keys: %w", err)
	}
	return atomicfile.WriteMkdir(path, append(data, '\n'))
}

// makeKeys makes a key file with new keys, unless there is one. Of several processes that make one file, such as
// the gateways of a shared directory, one makes it. With a rename each would replace the keys of those before,
// which go on with theirs: two files that are written at nearly the same time have the same stamp.
func makeKeys(path string) error {
	keys, whole := NewKeys(), filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"-"+rand.Text())
	if err := WriteKeys(whole, keys); err != nil {
		return err
	}
	linked := os.Link(whole, path)
	err := os.Remove(whole)
	if linked != nil && !errors.Is(linked, fs.ErrExist) {
		err = errors.Join(err, WriteKeys(path, keys)) // a file system without links
	}
	return err
}

// RotateKey replaces one key of a key file by a new one and returns all of them.
func RotateKey(path, name string) (Keys, error) {
	if !slices.Contains(KeyNames, name) {
		return Keys{}, fmt.Errorf("there is no key %s; %s are known", name, strings.Join(KeyNames, ", "))
	}
	k, err := ReadKeys(path)
	if err != nil {
		return k, err
	}
	*k.named(name) = newKey()
	return k, WriteKeys(path, k)
}

// KeyRing holds the keys in force. Safe for concurrent use.
type KeyRing struct {
	master       *atomicfile.Follower[[]secret]
	applications *atomicfile.Follower[[]secret] // keys of one container each
}

// secret is one key that is in force.
type secret struct {
	raw    []byte
	access access
	only   *ApplicationKey // whose key it is; nil of a master key
	macs   *sync.Pool      // of hash.Hash that have the key
}

// OpenKeys returns the keys that c names. A key file that is not there is made.
func OpenKeys(c *Config, log *slog.Logger) (*KeyRing, error) {
	r := &KeyRing{}
	var err error
	if r.applications, err = atomicfile.Follow("keys of applications", c.ApplicationKeyPath(), readApplicationSecrets, log); err != nil {
		return nil, err
	}
	if c.Keys != (Keys{}) {
		if err := c.Keys.check(); err != nil {
			return nil, fmt.Errorf("gateway.keys: %w", err)
		}
		r.master = atomicfile.Fixed(secrets(&c.Keys))
		return r, nil
	}
	path := c.KeyPath()
	r.master, err = atomicfile.Follow(masterKeys, path, readMasterKeys, log)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeKeys(path); err != nil {
			return nil, err
		}
		log.Info("the gateway's keys were made; see them with millrace keys show", slog.String("file", path))
		// What is read counts, and not what was made: another process may have made the file.
		r.master, err = atomicfile.Follow(masterKeys, path, readMasterKeys, log)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// masterKeys names what the key file holds.
const masterKeys = "master keys"

func readMasterKeys(path string) ([]secret, error) {
	keys, err := ReadKeys(path)
	if err != nil {
		return nil, err
	}
	return secrets(&keys), nil
}

func secrets(k *Keys) []secret {
	var all []secret
	for i, name := range KeyNames {
		key := k.Named(name)
		if key == "" {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(string(key))
		if err != nil {
			panic("gateway: a key was not checked") // check has seen it
		}
		right := accessWrite
		if i >= 2 {
			right = accessRead
		}
		all = append(all, secret{raw: raw, access: right, macs: new(sync.Pool)})
	}
	return all
}

// Allows returns what a master key allows, for somebody who shows the key itself instead of signing with
// it, as people do who sign in. Each comparison takes constant time.
func (r *KeyRing) Allows(key string) (read, write bool) {
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(raw) < keyBytesMin {
		return false, false
	}
	for _, known := range r.master.Now() {
		if subtle.ConstantTimeCompare(known.raw, raw) == 1 {
			return true, known.access == accessWrite
		}
	}
	return false, false
}

// writes tells whether one of the master keys in force writes.
func (r *KeyRing) writes() bool {
	return slices.ContainsFunc(r.master.Now(), func(s secret) bool { return s.access == accessWrite })
}

// current returns all keys in force.
func (r *KeyRing) current() []secret {
	master, applications := r.master.Now(), r.applications.Now()
	if len(applications) == 0 {
		return master
	}
	return slices.Concat(master, applications)
}
