package operator

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace/millrace/feed/atomicfile"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/gateway"
	"github.com/millrace/millrace/store/gateway/keyfile"
)

const (
	// containersMax bounds the containers of one key.
	containersMax = 256
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

// ErrNoKey says that no key of an operator has a name.
var ErrNoKey = errors.New("there is no key of an operator of this name")

// keys is what the file holds.
var keys = &keyfile.Kind[Key]{Names: "keys of operators", None: ErrNoKey}

// KeysPath is where the keys of operators are: in the folder of the gateway's key file.
func KeysPath(c *gateway.Config) string {
	return filepath.Join(filepath.Dir(c.KeyPath()), "operator-keys.json")
}

// ReadKeys reads the keys of operators by name. Where there is no file there are none.
func ReadKeys(path string) ([]Key, error) { return keys.Read(path) }

// KeyName is the name of the key.
func (k Key) KeyName() string { return k.Name }

// Check returns why the key is none; see keyfile.Key.
func (k Key) Check() error {
	if slices.Contains(gateway.KeyNames, k.Name) {
		return errors.New("a master key has this name")
	}
	if digest, err := hex.DecodeString(k.Digest); err != nil || len(digest) != sha256.Size {
		return errors.New("its digest is not one of SHA-256")
	}
	switch {
	case !slices.Contains(modes, k.Mode):
		return fmt.Errorf("mode %.40q; %s or %s is expected", k.Mode, ModeStatus, ModeOperator)
	case k.Mode != ModeOperator && k.Bounds != nil:
		return fmt.Errorf("a key of mode %s is of no containers", k.Mode)
	case k.Mode == ModeOperator && (k.Bounds == nil || len(k.Bounds.Targets) == 0):
		return fmt.Errorf("a key of mode %s names at least one container that pipelines may write to", k.Mode)
	case k.Bounds == nil:
		return nil
	}
	all := slices.Concat(k.Bounds.Targets, k.Bounds.Sources)
	if len(all) > containersMax {
		return fmt.Errorf("it names %d containers; at most %d are allowed", len(all), containersMax)
	}
	for _, m := range all {
		if err := errors.Join(store.CheckDatabaseName(m.Database), store.CheckContainerName(m.Name)); err != nil {
			return err
		}
		if m.Database == store.SystemDatabase {
			return fmt.Errorf("no pipeline reads or writes database %s", m.Database)
		}
	}
	return nil
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
	secret, k.Digest = newSecret()
	k.begin(life)
	if err := keys.Add(path, k); err != nil {
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
	err = keys.Change(path, name, func(k *Key) {
		life := time.Duration(0)
		if !k.Expires.IsZero() {
			life = k.Expires.Sub(k.Created)
		}
		secret, k.Digest = newSecret()
		k.begin(life)
		rotated = *k
	})
	return rotated, secret, err
}

// RevokeKey removes a key, or returns ErrNoKey.
func RevokeKey(path, name string) error { return keys.Remove(path, name) }

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
	all := k.file.Now()
	for i := range all {
		if subtle.ConstantTimeCompare([]byte(all[i].Digest), shown) == 1 {
			found = &all[i]
		}
	}
	return found
}
