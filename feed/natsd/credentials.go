package natsd

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/feed/atomicfile"
)

// The users of a server, and the files of their credentials.
const (
	// UserAdmin may do everything that Millrace does. Stores, which append to logs and trim
	// them, log in with it.
	UserAdmin = "millrace"
	// UserReadOnly may read: see the package's documentation.
	UserReadOnly = "millrace-read-only"

	// FileAdmin and FileReadOnly are in Config.Credentials.
	FileAdmin    = "admin.json"
	FileReadOnly = "read-only.json"
	// FileAddress is there while a server listens that takes those two: its URL.
	FileAddress = "address"
)

// credentialsMax bounds a file of credentials.
const credentialsMax = 64 << 10

// Credentials are the name and the secret of a user. They do not print the
// secret.
type Credentials struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

// String returns the name and a mark instead of the secret.
func (c Credentials) String() string { return c.User + " (secret)" }

// LogValue keeps the secret out of logs.
func (c Credentials) LogValue() slog.Value { return slog.StringValue(c.String()) }

// NewCredentials makes a secret of 130 random bits or more.
func NewCredentials(user string) Credentials {
	return Credentials{User: user, Password: strings.ToLower(rand.Text() + rand.Text())}
}

// ReadCredentials reads a file that WriteCredentials wrote. The error is
// fs.ErrNotExist if there is none, fs.ErrPermission if it may not be read.
func ReadCredentials(path string) (Credentials, error) {
	var c Credentials
	data, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("read the credentials: %w", err)
	}
	if len(data) > credentialsMax {
		return c, fmt.Errorf("credentials %s: %d bytes, more than %d", path, len(data), credentialsMax)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return Credentials{}, fmt.Errorf(`credentials %s: want JSON such as {"user": "...", "password": "..."}: %w`, path, err)
	}
	if c.User == "" || c.Password == "" {
		return Credentials{}, fmt.Errorf("credentials %s: user or password is empty; delete the file, and the server makes another when it starts", path)
	}
	return c, nil
}

// WriteCredentials replaces a file of credentials whole. Its owner alone can
// read it.
func WriteCredentials(path string, c Credentials) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err == nil {
		err = atomicfile.Write(path, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the credentials: %w", err)
	}
	return nil
}

// OpenCredentials reads a file of credentials, or makes it if it is not there.
func OpenCredentials(path, user string) (c Credentials, made bool, err error) {
	c, err = ReadCredentials(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return c, false, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return c, false, fmt.Errorf("make the directory of the credentials: %w", err)
	}
	c = NewCredentials(user)
	return c, true, WriteCredentials(path, c)
}
