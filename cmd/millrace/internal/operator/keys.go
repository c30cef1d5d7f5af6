package operator

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/feed/atomicfile"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/gateway"
	"github.com/millrace/millrace/store/naming"
)

const (
	// KeysMax bounds the keys of operators: what somebody shows is compared with each.
	KeysMax = 64
	// containersMax bounds the containers of one key.
	containersMax = 256
	// keyFileMax bounds the file, in bytes.
	keyFileMax = 4 << 20
	// keyVersion is the version of the file.
	keyVersion = 1
	// secretPrefix begins every key, so that people and programs that look for secrets know one.
	secretPrefix = "millrace_"
	secretBytes  = 32
)

// Mode is what a key allows.
type Mode string

// The modes. Each allows what those before it do.
const (
	ModeStatus   Mode = "status"   // to ask where pipelines stand, and to verify them
	ModeOperator Mode = "operator" // to plan and apply pipelines within the bounds of the key, too
)

// modes are in order.
var modes = []Mode{ModeStatus, ModeOperator}

// allows tells whether a key of mode m may do what asks for least.
func (m Mode) allows(least Mode) bool {
	return slices.Contains(modes, least) && slices.Index(modes, m) >= slices.Index(modes, least)
}

// Key is the key of an operator, without what is secret.
type Key struct {
	// Name is plain, and none of gateway.KeyNames.
	Name string `json:"name"`
	Mode Mode   `json:"mode"`
	// Digest is the SHA-256 of the key, in hexadecimal digits.
	Digest string `json:"digest"`
	// Bounds are of ModeOperator alone.
	Bounds *registry.Bounds `json:"bounds,omitempty"`
	// Created and Expires are in whole seconds; without Expires it holds until it is revoked.
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
}

// Expired tells whether the key holds no longer.
func (k *Key) Expired(now time.Time) bool { return !k.Expires.IsZero() && !now.Before(k.Expires) }

// keysFile is the file.
type keysFile struct {
	Version int   `json:"version"`
	Keys    []Key `json:"keys"`
}

// ErrNoKey says that no key of an operator has a name.
var ErrNoKey = errors.New("there is no key of an operator of this name")

// KeysPath is where the keys of operators are: in the folder of the gateway's key file.
func KeysPath(c *gateway.Config) string {
	return filepath.Join(filepath.Dir(c.KeyPath()), "operator-keys.json")
}

// ReadKeys reads the keys of operators by name. Where there is no file there are none.
func ReadKeys(path string) ([]Key, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the keys of operators: %w", err)
	}
	if len(data) > keyFileMax {
		return nil, fmt.Errorf("key file %s has %d bytes, more than %d", path, len(data), keyFileMax)
	}
	var file keysFile
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields() // a limit of a key that is not known would be no limit
	err = dec.Decode(&file)
	if err == nil && file.Version != keyVersion {
		err = fmt.Errorf("it has version %d, and this release reads %d", file.Version, keyVersion)
	}
	if err == nil {
		err = checkKeys(file.Keys)
	}
	if err != nil {
		return nil, fmt.Errorf("key file %s is not what millrace keys create writes: %w", path, err)
	}
	return file.Keys, nil
}

func checkKeys(keys []Key) error {
	if len(keys) > KeysMax {
		return fmt.Errorf("it has %d keys; at most %d are allowed", len(keys), KeysMax)
	}
	seen := map[string]bool{}
	for i := range keys {
		if err := keys[i].check(); err != nil {
			return err
		}
		if seen[keys[i].Name] {
			return fmt.Errorf("it has two keys of the name %s", keys[i].Name)
		}
		seen[keys[i].Name] = true
	}
	return nil
}

func (k *Key) check() error {
	if err := naming.CheckPlain(k.Name); err != nil {
		return fmt.Errorf("key %.40q: %w", k.Name, err)
	}
	if slices.Contains(gateway.KeyNames, k.Name) {
		return fmt.Errorf("key %s: a master key has this name", k.Name)
	}
	if digest, err := hex.DecodeString(k.Digest); err != nil || len(digest) != sha256.Size {
		return fmt.Errorf("key %s: its digest is not one of SHA-256", k.Name)
	}
	switch {
	case !slices.Contains(modes, k.Mode):
		return fmt.Errorf("key %s: mode %.40q; %s or %s is expected", k.Name, k.Mode, ModeStatus, ModeOperator)
	case k.Mode != ModeOperator && k.Bounds != nil:
		return fmt.Errorf("key %s: a key of mode %s is of no containers", k.Name, k.Mode)
	case k.Mode == ModeOperator && (k.Bounds == nil || len(k.Bounds.Targets) == 0):
		return fmt.Errorf("key %s: a key of mode %s names at least one container that pipelines may write to", k.Name, k.Mode)
	case k.Bounds == nil:
		return nil
	}
	all := slices.Concat(k.Bounds.Targets, k.Bounds.Sources)
	if len(all) > containersMax {
		return fmt.Errorf("key %s: it names %d containers; at most %d are allowed", k.Name, len(all), containersMax)
	}
	for _, m := range all {
		if err := errors.Join(store.CheckDatabaseName(m.Database), store.CheckContainerName(m.Name)); err != nil {
			return fmt.Errorf("key %s: %w", k.Name, err)
		}
		if m.Database == store.SystemDatabase {
			return fmt.Errorf("key %s: no pipeline reads or writes database %s", k.Name, m.Database)
		}
	}
	return nil
}

func writeKeys(path string, keys []Key) error {
	slices.SortFunc(keys, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	if err := checkKeys(keys); err != nil {
		return err
	}
	data, err := json.MarshalIndent(keysFile{keyVersion, keys}, "", "  ")
	if err != nil {
		return fmt.Errorf("write the keys of operators: %w", err)
	}
	return atomicfile.WriteMkdir(path, append(data, '\n'))
}

// newSecret makes a key, and its digest.
func newSecret() (secret, digest string) {
	var raw [secretBytes]byte
	rand.Read(raw[:]) // never returns an error since Go 1.24
	secret = secretPrefix + base64.RawURLEncoding.EncodeToString(raw[:])
	sum := sha256.Sum256([]byte(secret))
	return secret, hex.EncodeToString(sum[:])
}

// CreateKey makes a key as k says, but for its digest and its time, and returns what is secret of it, which is
// known to nobody else from then on. It holds for life, for ever if that is 0. Nothing is changed if there is
// one of its name.
func CreateKey(path string, k Key, life time.Duration) (made Key, secret string, err error) {
	keys, err := ReadKeys(path)
	if err != nil {
		return Key{}, "", err
	}
	if slices.ContainsFunc(keys, func(other Key) bool { return other.Name == k.Name }) {
		return Key{}, "", fmt.Errorf("there is a key %s already", k.Name)
	}
	secret, k.Digest = newSecret()
	k.begin(life)
	if err := writeKeys(path, append(keys, k)); err != nil {
		return Key{}, "", err
	}
	return k, secret, nil
}

// begin sets the times of a key that begins now.
func (k *Key) begin(life time.Duration) {
	k.Created, k.Expires = time.Now().UTC().Truncate(time.Second), time.Time{}
	if life > 0 {
		k.Expires = k.Created.Add(life.Truncate(time.Second))
	}
}

// RotateKey replaces what is secret of a key, which holds for as long as the one before did, or returns ErrNoKey.
func RotateKey(path, name string) (rotated Key, secret string, err error) {
	err = changeKey(path, name, func(keys []Key, i int) []Key {
		life := time.Duration(0)
		if k := &keys[i]; !k.Expires.IsZero() {
			life = k.Expires.Sub(k.Created)
		}
		secret, keys[i].Digest = newSecret()
		keys[i].begin(life)
		rotated = keys[i]
		return keys
	})
	return rotated, secret, err
}

// RevokeKey removes a key, or returns ErrNoKey.
func RevokeKey(path, name string) error {
	return changeKey(path, name, func(keys []Key, i int) []Key { return slices.Delete(keys, i, i+1) })
}

func changeKey(path, name string, change func(keys []Key, i int) []Key) error {
	keys, err := ReadKeys(path)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == name })
	if i < 0 {
		return ErrNoKey
	}
	return writeKeys(path, change(keys, i))
}

// Keys are the keys of operators in force. Safe for concurrent use.
type Keys struct{ file *atomicfile.Follower[[]Key] }

// OpenKeys returns the keys of a file, which is read again when it changes.
func OpenKeys(path string, log *slog.Logger) (*Keys, error) {
	file, err := atomicfile.Follow("keys of operators", path, ReadKeys, log)
	if err != nil {
		return nil, err
	}
	return &Keys{file}, nil
}

// find returns the key that is shown, expired ones too; nil if it is none. What it takes does not depend on which
// one it is, nor on how much of it is right.
func (k *Keys) find(secret string) *Key {
	sum := sha256.Sum256([]byte(secret))
	shown := hex.AppendEncode(nil, sum[:])
	var found *Key
	keys := k.file.Now()
	for i := range keys {
		if subtle.ConstantTimeCompare([]byte(keys[i].Digest), shown) == 1 {
			found = &keys[i]
		}
	}
	return found
}
