package natsd

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed/guard"
)

// accountReadOnly is the account of UserReadOnly. It is another than that of
// everybody else, because permissions alone do not hold a reader: a server sends
// answers, and what a consumer pushes, to any subject that the asker names,
// such as that of a log. Out of an account of its own an answer cannot leave.
const accountReadOnly = "MILLRACE_READ"

// opening is how long a client waits for a server that is just starting.
const opening = 5 * time.Second

// readable is what UserReadOnly may ask for.
var readable = []struct {
	subject string
	to      string // "": the same
	many    bool   // there may be several answers to one question
}{
	{subject: "$JS.API.INFO"},
	{subject: "$JS.API.STREAM.NAMES"},
	{subject: "$JS.API.STREAM.LIST"},
	{subject: "$JS.API.STREAM.INFO.*"},
	{subject: "$JS.API.STREAM.MSG.GET.*"},
	{subject: "$JS.API.DIRECT.GET.>", many: true},
	{subject: "$JS.API.CONSUMER.INFO.*.*"},
	{subject: "$JS.API.CONSUMER.MSG.NEXT.*.*", many: true},
	{subject: "$JS.API.CONSUMER.CREATE.>", to: guard.Create + ">"},
	{subject: "$JS.API.CONSUMER.DELETE.*.*", to: guard.Delete + "*.*"},
	{subject: "millrace.read.>"},
}

// access decides who may connect. It stays the same over Reopen.
type access struct {
	log *slog.Logger
	// process is the secret of connections made by Conn, known to this process
	// alone.
	process Credentials
	named   Credentials // of the configuration; User is "" if there are none
	files   []*credentialsFile

	mu   sync.Mutex
	read *server.Account // of the running server
	open chan struct{}   // closed when read is known
}

// credentialsFile is a file of credentials that is read again when it changes.
type credentialsFile struct {
	path     string
	readOnly bool // whatever name is in it

	mu     sync.Mutex
	stamp  fileStamp
	holds  Credentials
	failed bool // it could not be read the last time
}

// fileStamp tells whether a file is another than before.
type fileStamp struct {
	modified time.Time
	size     int64
}

// openAccess reads the credentials, and makes them at the first start.
func openAccess(cfg *Config) (*access, error) {
	a := &access{log: cfg.Log, process: NewCredentials("this process"), open: make(chan struct{})}
	if cfg.User != "" || cfg.Password != "" {
		a.named = Credentials{User: cfg.User, Password: cfg.Password}
	}
	if cfg.DontListen {
		return a, nil
	}
	for _, f := range []struct{ name, user string }{{FileAdmin, UserAdmin}, {FileReadOnly, UserReadOnly}} {
		path := filepath.Join(cfg.Credentials, f.name)
		holds, made, err := OpenCredentials(path, f.user)
		if err != nil {
			return nil, err
		}
		if made {
			cfg.Log.Info("credentials for the embedded NATS server were made", slog.String("user", f.user), slog.String("file", path))
		}
		a.files = append(a.files, &credentialsFile{path: path, readOnly: f.name == FileReadOnly, stamp: stampOf(path), holds: holds})
	}
	return a, nil
}

func stampOf(path string) fileStamp {
	info, err := os.Stat(path)
	if err != nil {
		return fileStamp{}
	}
	return fileStamp{info.ModTime(), info.Size()}
}

// current returns what the file holds now. One that cannot be read leaves what
// was known in force, and is said once; one that is gone ends its credentials.
func (f *credentialsFile) current(log *slog.Logger) Credentials {
	f.mu.Lock()
	defer f.mu.Unlock()
	stamp := stampOf(f.path)
	if stamp == f.stamp {
		return f.holds
	}
	holds, err := ReadCredentials(f.path)
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		f.stamp, f.holds, f.failed = stamp, holds, false
		log.Info("the credentials for the embedded NATS server were read again", slog.String("file", f.path))
	case !f.failed:
		f.failed = true
		log.Error("the credentials for the embedded NATS server cannot be read; those before stay in force", slog.Any("error", err))
	}
	return f.holds
}

// may says what credentials are good for.
func (a *access) may(c Credentials) (allowed, readOnly bool) {
	if c.is(a.process) || c.is(a.named) {
		return true, false
	}
	for _, f := range a.files {
		if c.is(f.current(a.log)) {
			return true, f.readOnly
		}
	}
	return false, false
}

// is compares with credentials that are known, which are none without a password.
func (c Credentials) is(known Credentials) bool {
	return known.Password != "" && same(c.User, known.User) && same(c.Password, known.Password)
}

// same compares in a time that tells nothing.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// Check is asked by the server for each connection of a client. It is there for
// server.Options.
func (a *access) Check(c server.ClientAuthentication) bool {
	told := c.GetOpts()
	allowed, readOnly := a.may(Credentials{User: told.Username, Password: told.Password})
	switch {
	case !allowed:
		return false
	case !readOnly:
		c.RegisterUser(&server.User{Username: told.Username})
		return true
	}
	account := a.account()
	if account == nil {
		return false
	}
	permit := &server.SubjectPermission{}
	for _, r := range readable {
		permit.Allow = append(permit.Allow, r.subject)
	}
	c.RegisterUser(&server.User{
		Username: told.Username, Account: account,
		Permissions: &server.Permissions{Publish: permit, Subscribe: &server.SubjectPermission{Allow: []string{nats.InboxPrefix + ">"}}},
	})
	return true
}

// account waits for the account of readers, which is made when the server has
// just started. It is nil if the server does not come up.
func (a *access) account() *server.Account {
	a.mu.Lock()
	open := a.open
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), opening)
	defer cancel()
	select {
	case <-open:
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.read
}

// close forgets the account of a server that stops.
func (a *access) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read, a.open = nil, make(chan struct{})
}

// admit makes the account of readers in a server that has started. It is not
// among the server's options: with accounts of its own there a server would not
// find its streams, which are in the global one.
func (a *access) admit(n *server.Server) error {
	account, _ := n.LookupOrRegisterAccount(accountReadOnly)
	global := n.GlobalAccount()
	for _, r := range readable {
		to, kind := r.to, server.Singleton
		if to == "" {
			to = r.subject
		}
		if r.many {
			kind = server.Streamed
		}
		if err := global.AddServiceExportWithResponse(to, kind, []*server.Account{account}); err != nil {
			return fmt.Errorf("let readers ask %s: %w", to, err)
		}
		if err := account.AddServiceImport(global, r.subject, to); err != nil {
			return fmt.Errorf("let readers ask %s: %w", r.subject, err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read = account
	close(a.open)
	return nil
}
