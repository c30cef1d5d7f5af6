package pgsink

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/processors/project"
)

// Config says where a Sink keeps its tables. Zero fields take their defaults.
type Config struct {
	// DSNEnv names the environment variable with the connection string, such as
	// postgres://user:password@host/database. It is read when a connection is made,
	// and never shown.
	DSNEnv string

	// Schema is the PostgreSQL schema of the tables, made if it is missing. Default
	// public.
	Schema string

	// ConnectionsMax bounds the connections that writers of this process use at the
	// same time; readers have their own. Default 8.
	ConnectionsMax int
}

// Limits of a Sink.
const (
	// lockMax is how long a transaction waits for a lock, such as that of a reader
	// on a table that is altered.
	lockMax = 10 * time.Second
	// outOfOrderMax is how long a transaction that others write beside waits for what
	// it does not lock in order. It is well below PostgreSQL's deadlock_timeout, 1s by
	// default, and longer than most transactions take to end.
	outOfOrderMax = 200 * time.Millisecond
	// idleMax is after how long PostgreSQL ends the transaction of a worker that
	// says nothing, so that its successor is not held up.
	idleMax = 10 * time.Second
	// writeMax bounds one transaction of a Write.
	writeMax = time.Minute
	// stepsMax is how long a transaction that goes step by step begins further steps: the one that it
	// is in may take as long again, and more, within writeMax.
	stepsMax = writeMax / 6
	// statementRowsMax and statementBytesMax bound what one statement carries; what
	// PostgreSQL keeps of it meanwhile is to fit into its work_mem.
	statementRowsMax  = 2000
	statementBytesMax = 1 << 20
)

// Sink keeps the rows of a pipeline in PostgreSQL. It implements project.Sink,
// Reader, Swapper, Limiter and Checker.
type Sink struct {
	cfg      Config
	conns    *conns
	stepsMax time.Duration // stepsMax but in tests
}

// New returns a Sink. It connects when it is used first.
func New(cfg Config) (*Sink, error) {
	if cfg.Schema == "" {
		cfg.Schema = "public"
	}
	if cfg.ConnectionsMax == 0 {
		cfg.ConnectionsMax = 8
	}
	switch {
	case cfg.DSNEnv == "":
		return nil, errors.New("pgsink: name the environment variable with the connection string in dsnEnv")
	case strings.ContainsAny(cfg.DSNEnv, ":/ ="):
		// Whoever wrote the connection string itself must not read it in an error.
		return nil, errors.New("pgsink: dsnEnv is the name of an environment variable, not the connection string")
	case len(cfg.Schema) > identifierMax || strings.ContainsRune(cfg.Schema, 0):
		return nil, fmt.Errorf("pgsink: schema %q: PostgreSQL takes names of at most %d bytes", cfg.Schema, identifierMax)
	case cfg.ConnectionsMax < 0:
		return nil, fmt.Errorf("pgsink: %d connections; at least 1 is expected", cfg.ConnectionsMax)
	}
	return &Sink{cfg: cfg, conns: newConns(cfg), stepsMax: stepsMax}, nil
}

// Close closes all connections. Writers and readers that are at work end with an
// error. It may be called twice.
func (s *Sink) Close() error {
	s.conns.close()
	return nil
}

var (
	_ project.Sink    = (*Sink)(nil)
	_ project.Reader  = (*Sink)(nil)
	_ project.Swapper = (*Sink)(nil)
	_ project.Limiter = (*Sink)(nil)
	_ project.Checker = (*Sink)(nil)
)

// ownTable is the name of a table of the sink's own, qualified and quoted.
func (s *Sink) ownTable(table string) string { return s.qualified(ownPrefix + table) }

// qualified is the name of a relation in the sink's schema, quoted.
func (s *Sink) qualified(relation string) string {
	return quoteName(s.cfg.Schema) + "." + quoteName(relation)
}
