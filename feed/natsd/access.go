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

// accountReadOnly is the account of UserReadOnly. All other users share another account.
// Permissions inside one account do not keep a reader from writing: a server sends answers,
// and the messages that a consumer pushes, to any subject that the requester names, such as
// that of a log. An answer cannot leave its account.
const accountReadOnly = "MILLRACE_READ"

// startWait bounds how long a client that connects waits for a server that is just starting. It
// is longer than greetMax, after which the server closes the connection and says that the time
// is over. To refuse the client before that would tell it that its secret is wrong, and a NATS
// client that hears that twice gives up.
const startWait = 2 * greetMax

// readable is what UserReadOnly may ask for. Creating and deleting consumers and direct
// gets go to package guard, which lets through what cannot write or stop writes.
var readable = []struct {
	subject string
	to      string // the subject in the global account; "": the same
	many    bool   // one request may have several answers
}{
	{subject: "$JS.API.INFO"},
	{subject: "$JS.API.STREAM.NAMES"},
	{subject: "$JS.API.STREAM.LIST"},
	{subject: "$JS.API.STREAM.INFO.*"},
	{subject: "$JS.API.STREAM.MSG.GET.*"},
	{subject: "$JS.API.DIRECT.GET.>", to: guard.Get + ">", many: true},
	{subject: "$JS.API.CONSUMER.INFO.*.*"},
	{subject: "$JS.API.CONSUMER.MSG.NEXT.*.*", many: true},
	{subject: "$JS.API.CONSUMER.CREATE.>", to: guard.Create + ">"},
	{subject: "$JS.API.CONSUMER.DELETE.*.*", to: guard.Delete + "*.*"},
	{subject: "millrace.read.>"},
}

// access decides who may connect. A Reopen keeps it.
type access struct {
	// Set once by openAccess.
	log *slog.Logger
	// process is the secret of connections made by Conn. Only this process knows it.
	process Credentials
	named   Credentials // of the configuration; User is "" if there are none
	files   []*credentialsFile

	mu    sync.Mutex
	read  *server.Account // the readers' account in the running server; nil while none runs
	ready chan struct{}   // closed when read is known, or the server ends without it
}

// credentialsFile is a file of credentials that is read again when it changes.
type credentialsFile struct {
	path     string
	readOnly bool // whatever user name is in it

	mu     sync.Mutex
	stamp  fileStamp // of the file as holds was read from it
	holds  Credentials
	failed bool // the last try to read it failed, and was logged
}

// fileStamp is compared to see whether a file has changed.
type fileStamp struct {
	modified time.Time
	size     int64
}

// openAccess reads the credentials, and makes them at the first start.
func openAccess(cfg *Config) (*access, error) {
	a := &access{log: cfg.Log, process: NewCredentials("this process"), ready: make(chan struct{})}
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

// current returns the credentials that the file holds now. If it cannot be read, the last
// known credentials stay in force, and the error is logged once. If the file is gone,
// its credentials end.
func (f *credentialsFile) current(log *slog.Logger) Credentials {
	f.mu.Lock()
	defer f.mu.Unlock()
	// A connection costs one stat of the file, not a reading of it.
	stamp := stampOf(f.path)
	if stamp == f.stamp {
		return f.holds
	}
	holds, err := ReadCredentials(f.path)
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		f.stamp, f.holds, f.failed = stamp, holds, false
		log.Info("the credentials for the embedded NATS server were read again", slog.String("file", f.path))
	// The stamp stays as it was, so every connection tries to read the file again.
	case !f.failed:
		f.failed = true
		log.Error("the credentials for the embedded NATS server cannot be read; those before stay in force", slog.Any("error", err))
	}
	return f.holds
}

// rights reports whether credentials may connect, and whether they may only read.
func (a *access) rights(c Credentials) (allowed, readOnly bool) {
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

// is compares c with known credentials. Known credentials without a password match nothing.
func (c Credentials) is(known Credentials) bool {
	return known.Password != "" && same(c.User, known.User) && same(c.Password, known.Password)
}

// same compares two texts in a time that does not depend on them. Hashing hides their lengths,
// at which ConstantTimeCompare returns early.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// Check decides about one connection of a client. The server calls it, through
// server.Options.CustomClientAuthentication.
func (a *access) Check(c server.ClientAuthentication) bool {
	sent := c.GetOpts()
	allowed, readOnly := a.rights(Credentials{User: sent.Username, Password: sent.Password})
	if !allowed {
		return false
	}
	// Everybody waits, not readers alone. The server listens before restoreStreams has ended,
	// which takes a missing stream for one that the server has lost: a stream that somebody
	// deletes now would come back, and one that somebody makes anew would take the place of
	// the one that is to be restored.
	account := a.account()
	if account == nil {
		return false
	}
	if !readOnly {
		c.RegisterUser(&server.User{Username: sent.Username})
		return true
	}
	// The account keeps messages in. Within it, readers may publish the listed requests and
	// listen to inboxes, nothing else.
	permit := &server.SubjectPermission{}
	for _, r := range readable {
		permit.Allow = append(permit.Allow, r.subject)
	}
	c.RegisterUser(&server.User{
		Username: sent.Username, Account: account,
		Permissions: &server.Permissions{Publish: permit, Subscribe: &server.SubjectPermission{Allow: []string{nats.InboxPrefix + ">"}}},
	})
	return true
}

// account returns the account of readers, which is made when the server has started and its
// streams are restored. It waits startWait for that, and returns nil if the server is not there
// by then, or does not start.
func (a *access) account() *server.Account {
	a.mu.Lock()
	ready := a.ready
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), startWait)
	defer cancel()
	select {
	case <-ready:
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.read
}

// close drops the account of a server that stops, or does not start. It comes before the server's
// shutdown, which waits for the clients that wait here. Those that connect later wait for
// the next server.
func (a *access) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.read == nil {
		close(a.ready)
	}
	a.read, a.ready = nil, make(chan struct{})
}

// admit makes the account of readers in a server that has started. The account is not in the
// server's options: a server with accounts in its options would not find its streams, which
// are in the global account.
func (a *access) admit(n *server.Server) error {
	account, _ := n.LookupOrRegisterAccount(accountReadOnly)
	global := n.GlobalAccount()
	for _, r := range readable {
		// An export without an import answers nobody, and an import without an export is
		// refused, so each request needs both.
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
	close(a.ready)
	return nil
}
