// Package secrets makes all that the processes of a cluster need so that nobody
// else gets in: the certificates of its NATS servers, and the credentials of its
// users. deploy/ says where each file goes.
package secrets

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/bcrypt"

	"github.com/millrace/millrace/feed/natsd"
)

// The files that Make writes, beside natsd.FileAdmin and natsd.FileReadOnly. What
// NATS servers need, and nothing else, is in the folder nats.
const (
	// FileCA signs the certificate of the servers; clients trust it.
	FileCA    = "nats/ca.pem"
	FileCAKey = "ca-key.pem"
	// FileServer is the certificate of the servers, for clients and each other.
	FileServer    = "nats/server.pem"
	FileServerKey = "nats/server-key.pem"
	// FileUsers is what nats.conf includes: the users with hashes of their passwords.
	FileUsers = "nats/users.conf"
	// FileRoutes is what nats.conf includes in its cluster: who may join, and how.
	FileRoutes = "nats/routes.conf"
	// FileEnv is the environment of Millrace's processes.
	FileEnv = "millrace.env"
)

// routePort is where the servers of the sample find each other.
const routePort = 6222

// Make writes the files into dir for NATS servers of these names. What is there
// already stays; files that follow from it are written anew. It returns the names
// of the files that it wrote.
func Make(dir string, servers []string) (wrote []string, err error) {
	if len(servers) == 0 {
		return nil, errors.New("no servers are named")
	}
	if err := os.MkdirAll(filepath.Join(dir, "nats"), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of secrets: %w", err)
	}
	m := &maker{dir: dir}
	admin := m.credentials(natsd.FileAdmin, natsd.UserAdmin)
	reader := m.credentials(natsd.FileReadOnly, natsd.UserReadOnly)
	m.certificates(servers)
	m.missing(FileUsers, 0o600, func() (string, error) { return users(admin, reader) })
	m.missing(FileRoutes, 0o600, func() (string, error) { return routes(servers), nil })
	m.missing(FileEnv, 0o600, func() (string, error) {
		return fmt.Sprintf("MILLRACE_CONNECT_USER=%s\nMILLRACE_CONNECT_PASSWORD=%s\n", admin.User, admin.Password), nil
	})
	return m.wrote, m.err
}

// maker writes files until one cannot be written.
type maker struct {
	dir   string
	wrote []string
	err   error
}

func (m *maker) path(name string) string { return filepath.Join(m.dir, name) }

// credentials reads those of a user, or makes them.
func (m *maker) credentials(name, user string) natsd.Credentials {
	if m.err != nil {
		return natsd.Credentials{}
	}
	c, made, err := natsd.OpenCredentials(m.path(name), user)
	if made {
		m.wrote = append(m.wrote, name)
		// What follows from the former ones is of no use.
		err = errors.Join(err, remove(m.path(FileUsers)), remove(m.path(FileEnv)))
	}
	m.err = err
	return c
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// missing writes a file that is not there.
func (m *maker) missing(name string, mode os.FileMode, make func() (string, error)) {
	if m.err != nil {
		return
	}
	if _, err := os.Stat(m.path(name)); err == nil || !errors.Is(err, os.ErrNotExist) {
		m.err = err
		return
	}
	text, err := make()
	if err != nil {
		m.err = fmt.Errorf("%s: %w", m.path(name), err)
		return
	}
	m.write(name, mode, []byte(text))
}

func (m *maker) write(name string, mode os.FileMode, data []byte) {
	if m.err != nil {
		return
	}
	if m.err = os.WriteFile(m.path(name), data, mode); m.err == nil {
		m.wrote = append(m.wrote, name)
	}
}

// users are variables of nats.conf. NATS reads hashes, so that who reads its
// configuration has no password.
func users(admin, reader natsd.Credentials) (string, error) {
	var text strings.Builder
	text.WriteString("# Made by millrace credentials new: hashes of the passwords in " + natsd.FileAdmin + " and " + natsd.FileReadOnly + ".\n")
	for _, u := range []struct {
		prefix string
		natsd.Credentials
	}{{"ADMIN", admin}, {"READER", reader}} {
		hash, err := bcrypt.GenerateFromPassword([]byte(u.Password), bcrypt.DefaultCost)
		if err != nil {
			return "", fmt.Errorf("hash a password: %w", err)
		}
		fmt.Fprintf(&text, "%s_USER: %q\n%s_PASSWORD: %q\n", u.prefix, u.User, u.prefix, hash)
	}
	return text.String(), nil
}

// routes say how the servers of a cluster find each other.
func routes(servers []string) string {
	c := natsd.NewCredentials("millrace-route")
	var text strings.Builder
	fmt.Fprintf(&text, "# Made by millrace credentials new.\nauthorization { user: %q, password: %q, timeout: 5 }\nroutes: [\n", c.User, c.Password)
	for _, server := range servers {
		fmt.Fprintf(&text, "  \"nats://%s:%s@%s:%d\"\n", c.User, c.Password, server, routePort)
	}
	text.WriteString("]\n")
	return text.String()
}
