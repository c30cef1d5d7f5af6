package main

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/cmd/millrace/internal/operator"
	"github.com/millrace/millrace/cmd/millrace/internal/remote"
	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/backup"
	"github.com/millrace/millrace/store/gateway"
)

// The exit codes.
const (
	codeOK       = 0
	codeBad      = 1 // the answer is bad news
	codeNotAsked = 2 // it could not be asked
)

func isCanceled(err error) bool { return errors.Is(err, context.Canceled) }

// explain returns the exit code of an error, and the text for the operator: what is wrong and
// what to do next. It is the only table from errors to exit codes.
func explain(err error) (code int, text string) {
	code, next := classify(err)
	text = strings.TrimSpace(err.Error())
	if text != "" && !isFindings(err) {
		text = "millrace: " + text
	}
	if next != "" {
		text += "\nnext: " + next
	}
	return code, text
}

func isFindings(err error) bool {
	_, ok := errors.AsType[spec.Findings](err)
	return ok || isType[*registry.RefusedError](err) || isType[*registry.OutsideError](err)
}

func classify(err error) (code int, next string) {
	var dir *leases.DirLockedError
	var payload *node.PayloadError
	// The first case that matches decides, so the more precise errors come first: an error of
	// NATS is within many others.
	switch {
	case errors.Is(err, errTold):
		return codeBad, ""
	case isType[*usageError](err), isType[*remote.ConfigError](err):
		return codeNotAsked, ""
	case isType[*configError](err):
		return codeNotAsked, "every key is explained in configs/millrace.yaml"
	case isType[*registry.RefusedError](err):
		return codeBad, "choose, and apply again; nothing was changed"
	case isType[*registry.OutsideError](err):
		return codeBad, "leave out what is outside, or have a key made for it; nothing was changed"
	case isType[*registry.PlanError](err):
		return codeBad, "millrace plan -f with the same files; nothing was changed"
	case isFindings(err):
		return codeBad, "correct the declarations and apply again; nothing was changed"
	case isType[*natsd.DirLockedError](err):
		return codeNotAsked, "stop the process that uses it, or name another one with --set nats.dir=DIR; nothing was changed"
	case errors.As(err, &dir):
		return codeNotAsked, "name another directory with --dir"
	case errors.As(err, &payload):
		return codeNotAsked, "restart the NATS server with it and try again"
	case isType[*node.AddressError](err):
		return codeNotAsked, "choose another address with --listen, or --listen off"
	case isType[*gateway.AddressError](err):
		return codeNotAsked, "choose another address with --gateway, or --gateway off"
	case isType[*node.StopError](err):
		return codeBad, "start again with the same directory once its disk answers; the log names what did not end"
	case errors.Is(err, natsd.ErrPort):
		return codeNotAsked, "choose another port with --port (-1 takes a free one)"
	case errors.Is(err, jetstream.ErrBucketNotFound):
		return codeNotAsked, "start Millrace with millrace up, or name another server with --server"
	// A write whose outcome is unknown holds the timeout of NATS as its cause. It was sent, so a
	// server is there, and the store's part of the table tells what to do.
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout) && !errors.Is(err, store.ErrUnknown):
		return codeNotAsked, "start Millrace with millrace up, or name a server with --server"
	case isType[*node.CredentialsError](err), errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return codeNotAsked, "name the directory of the server's node with --dir or MILLRACE_DIR, or a file of its directory credentials with --creds"
	case isType[*deniedError](err), errors.Is(err, store.ErrForbidden):
		return codeNotAsked, "name credentials that may write, such as credentials/admin.json of the node's directory, with --creds"
	case isType[*badNews](err):
		return codeBad, ""
	case isType[*remote.UnreachableError](err):
		return codeNotAsked, "start a node with millrace up, or name another endpoint with --endpoint"
	case isType[*remote.TrustError](err):
		return codeNotAsked, "name the authority to trust with --ca; a node keeps its own in DIR/gateway/ca.pem"
	case isType[*remote.KeyError](err):
		return codeNotAsked, "name a key in force with MILLRACE_KEY or --key-file; millrace keys show prints those of a node"
	case isType[*operator.KeyError](err):
		return codeNotAsked, "name the key of an operator in force with " + envOperatorKey + " or --key-file; millrace keys create makes one"
	case isType[*remote.NoContainerError](err):
		return codeBad, "name one that is there, or its database with --database; import makes one with --partition-key"
	}
	return classifyStore(err)
}

// classifyStore is the rest of classify's table: the errors of the store and of its backups. They
// come last, because errors of the way to a server match some of them too: a
// *remote.UnreachableError is a store.ErrUnavailable, but what helps is to start a node or to name
// another endpoint, and not millrace status.
func classifyStore(err error) (code int, next string) {
	switch {
	case isType[*store.DamageError](err):
		return codeNotAsked, "millrace doctor, and where no server runs millrace doctor --dir DIR"
	case isType[*store.EmptyError](err):
		return codeNotAsked, "bring back the server or its directory (nats.dir); if they are lost, millrace restore a backup; to begin with nothing, move the node's directory away"
	case isType[*backup.DamagedError](err):
		return codeNotAsked, "millrace backup verify tells all that is damaged; nothing was changed"
	case isType[*backup.NotWholeError](err):
		return codeBad, "millrace backup verify tells all that is damaged; another backup is named with --backup"
	case isType[*backup.NotEmptyError](err):
		return codeBad, "name an empty directory with --dir, or NATS servers that hold nothing with --server"
	case isType[*backup.OutsideError](err):
		return codeBad, "millrace backup list tells to which times backups can be restored"
	case isType[*store.RestoringError](err):
		return codeNotAsked, "run millrace restore again with this --backup and --at: it goes on; or begin anew with an empty store"
	case isType[*backup.NoBackupsError](err), isType[*backup.NewerError](err), isType[*backup.AnotherStoreError](err), isType[*backup.NoBackupError](err):
		return codeNotAsked, ""
	case errors.Is(err, store.ErrDiskFull):
		return codeNotAsked, "free some space on the store's disk; writing goes on by itself"
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrUnknown):
		return codeNotAsked, "see millrace status, and try again"
	case isType[*store.NoContainerError](err):
		return codeBad, "millrace get containers"
	case isType[*registry.NoPipelineError](err), isType[*store.Error](err):
		return codeBad, ""
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return codeNotAsked, ""
	}
	return codeNotAsked, ""
}

func isType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
