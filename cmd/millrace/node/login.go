package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/feed/natsd"
)

// Login is how a process says who it is to a NATS server.
type Login struct {
	// File is where the credentials are from; "" if they are not from a file.
	File string
	// Looked is the file of a node's directory that was looked for and is not
	// there; "" if none was, or if it is.
	Looked string

	credentials natsd.Credentials // User is "" if there are none, or if File is a user's JWT
	jwt         bool
}

// CredentialsError says that a NATS server does not let this process in.
type CredentialsError struct {
	Server string
	Login  Login
	Err    error
}

func (e *CredentialsError) Error() string {
	switch l := e.Login; {
	case l.File != "":
		return fmt.Sprintf("the NATS server at %s does not accept the credentials of %s", e.Server, l.File)
	case l.credentials.User != "":
		return fmt.Sprintf("the NATS server at %s does not accept user %s of connect.user with its password", e.Server, l.credentials.User)
	case l.Looked != "":
		return fmt.Sprintf("the NATS server at %s asks for credentials, and %s is not there", e.Server, l.Looked)
	default:
		return fmt.Sprintf("the NATS server at %s asks for credentials, and none are named", e.Server)
	}
}

// Unwrap returns what the server said.
func (e *CredentialsError) Unwrap() error { return e.Err }

// FindServer makes the server of the node that runs on cfg.Dir the one to connect to, if there
// is one.
func FindServer(cfg *configs.Config) {
	// Who may not read where it listens may not read its credentials either, and FindLogin
	// says so.
	if at, err := natsd.ReadAddress(cfg.NATS.Credentials); err == nil {
		cfg.Server = at
	}
}

// FindLogin finds the credentials of a process that connects to cfg.Server: those
// that cfg.Connect names, else those in the directory of the node, if the server
// is on this machine or is that of the directory. A secret of this machine is not told to
// another.
func FindLogin(cfg *configs.Config) (Login, error) {
	how := cfg.Connect
	if how.User != "" || how.Password != "" {
		return Login{credentials: natsd.Credentials{User: how.User, Password: how.Password}}, nil
	}
	if how.Creds != "" {
		return readLogin(how.Creds)
	}
	if at, err := natsd.ReadAddress(cfg.NATS.Credentials); (err != nil || at != cfg.Server) && !local(cfg.Server) {
		return Login{}, nil
	}
	path := filepath.Join(cfg.NATS.Credentials, natsd.FileAdmin)
	l, err := readLogin(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Login{Looked: path}, nil
	}
	return l, err
}

// readLogin reads a file of either kind.
func readLogin(path string) (Login, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrPermission) {
		return Login{}, fmt.Errorf("read the credentials: %w; run as the user of the node, or name a copy that you may read with --creds", err)
	}
	if err != nil {
		return Login{}, fmt.Errorf("read the credentials: %w", err)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return Login{File: path, jwt: true}, nil
	}
	c, err := natsd.ReadCredentials(path)
	return Login{File: path, credentials: c}, err
}

// local says whether all servers of a list of URLs are on this machine.
func local(servers string) bool {
	for server := range strings.SplitSeq(servers, ",") {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		u, err := url.Parse(server)
		if err != nil {
			return false
		}
		host := u.Hostname()
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}

// ReadOnly says whether the credentials are those of a user who may only read.
func (l *Login) ReadOnly() bool { return l.credentials.User == natsd.UserReadOnly }

// option gives the credentials to a connection. A file is read again for each
// try, so that one that was replaced counts.
func (l *Login) option() nats.Option {
	switch {
	case l.jwt:
		return nats.UserCredentials(l.File)
	case l.File != "":
		return nats.UserInfoHandler(func() (user, password string) {
			if c, err := natsd.ReadCredentials(l.File); err == nil {
				return c.User, c.Password
			}
			return l.credentials.User, l.credentials.Password
		})
	case l.credentials.User != "":
		return nats.UserInfo(l.credentials.User, l.credentials.Password)
	}
	return func(*nats.Options) error { return nil }
}

// refused turns an error of a connection into one that says which credentials
// were not good, if that is the cause.
func (l *Login) refused(server string, err error) error {
	if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) {
		return &CredentialsError{Server: Redacted(server), Login: *l, Err: err}
	}
	return err
}

// Redacted leaves out the passwords and tokens of a list of URLs, in all forms in which the NATS
// client takes them.
func Redacted(servers string) string {
	var all []string
	for server := range strings.SplitSeq(servers, ",") {
		all = append(all, redacted(strings.TrimSpace(server)))
	}
	return strings.Join(all, ",")
}

func redacted(server string) string {
	if !strings.Contains(server, "@") {
		return server
	}
	text := server
	if !strings.Contains(text, "://") {
		text = "nats://" + text // as the client takes it
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.User == nil:
		return "xxxxx" + server[strings.LastIndex(server, "@"):]
	case strings.Contains(u.User.String(), ":"):
		return u.Redacted()
	}
	u.User = url.User("xxxxx") // a user alone is a token
	return u.String()
}

// withoutSecrets takes what is secret out of an error that names a URL.
func withoutSecrets(err error) error {
	if bad, ok := errors.AsType[*url.Error](err); ok {
		bad.URL = Redacted(bad.URL)
	}
	return err
}
