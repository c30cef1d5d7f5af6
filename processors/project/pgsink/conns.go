package pgsink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// dialMax bounds the making of a connection, where the connection string says
	// nothing.
	dialMax = 10 * time.Second
	// partMax bounds the orderly end of a connection.
	partMax = time.Second
	// idleTrusted is for how long a connection that lies idle is used again without
	// a look at whether it is still there.
	idleTrusted = time.Second
)

// conns are the connections of a Sink: at most ConnectionsMax for writers, and one
// for each read under way; they are used again. Safe for concurrent use.
type conns struct {
	cfg   Config
	slots chan struct{} // a token for each connection that a writer uses

	mu     sync.Mutex
	idle   []*conn
	used   map[*conn]bool
	closed bool
}

// conn is one connection.
type conn struct {
	*pgconn.PgConn
	since time.Time // when it was used last
}

func newConns(cfg Config) *conns {
	return &conns{cfg: cfg, slots: make(chan struct{}, cfg.ConnectionsMax), used: map[*conn]bool{}}
}

// take returns a connection for a writer, which gives it back.
func (c *conns) take(ctx context.Context) (*conn, error) {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	k, err := c.borrow(ctx)
	if err != nil {
		<-c.slots
	}
	return k, err
}

// give takes a connection back from a writer.
func (c *conns) give(ctx context.Context, k *conn) {
	c.giveBack(ctx, k)
	<-c.slots
}

// borrow returns a connection, for a reader, which gives it back.
func (c *conns) borrow(ctx context.Context) (*conn, error) {
	for {
		k := c.pop()
		if k == nil {
			return c.dial(ctx)
		}
		if time.Since(k.since) < idleTrusted || k.Ping(ctx) == nil {
			return k, nil
		}
		c.end(ctx, k)
	}
}

func (c *conns) pop() *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) == 0 {
		return nil
	}
	k := c.idle[len(c.idle)-1]
	c.idle = c.idle[:len(c.idle)-1]
	c.used[k] = true
	return k
}

// giveBack takes a connection back and keeps it if it can be used again, and not
// too many lie idle.
func (c *conns) giveBack(ctx context.Context, k *conn) {
	if k.IsClosed() || k.IsBusy() || k.TxStatus() != 'I' {
		c.end(ctx, k)
		return
	}
	k.since = time.Now()
	c.mu.Lock()
	keep := !c.closed && len(c.idle) < c.cfg.ConnectionsMax
	if keep {
		delete(c.used, k)
		c.idle = append(c.idle, k)
	}
	c.mu.Unlock()
	if !keep {
		c.end(ctx, k)
	}
}

// end closes a connection.
func (c *conns) end(ctx context.Context, k *conn) {
	c.mu.Lock()
	delete(c.used, k)
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), partMax)
	defer cancel()
	_ = k.Close(ctx) // it is gone either way
}

// close ends all connections, those at work too.
func (c *conns) close() {
	c.mu.Lock()
	idle := c.idle
	c.closed, c.idle = true, nil
	for k := range c.used {
		_ = k.Conn().Close() // who uses it sees an error
	}
	c.mu.Unlock()
	for _, k := range idle {
		c.end(context.Background(), k)
	}
}

var errClosed = errors.New("the sink is closed")

// dial makes a connection. The error says nothing of the connection string.
func (c *conns) dial(ctx context.Context) (*conn, error) {
	dsn := os.Getenv(c.cfg.DSNEnv)
	if dsn == "" {
		return nil, fmt.Errorf("the environment variable %s is empty; set it to the connection string, such as postgres://user:password@host/database",
			c.cfg.DSNEnv)
	}
	cfg, err := pgconn.ParseConfig(dsn)
	if err != nil {
		// The cause would show parts of the string.
		return nil, fmt.Errorf("the environment variable %s holds no connection string that can be read, such as postgres://user:password@host/database; "+
			"special characters in a user or password must be escaped", c.cfg.DSNEnv)
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = dialMax
	}
	cfg.RuntimeParams["client_encoding"] = "UTF8"
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "millrace"
	}
	p, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, withoutSecret(err, cfg)
	}
	k := &conn{PgConn: p, since: time.Now()}
	if err := c.admit(k); err != nil {
		c.end(ctx, k)
		return nil, err
	}
	return k, nil
}

// admit takes a new connection, if it is one that the sink can work with.
func (c *conns) admit(k *conn) error {
	if encoding := k.ParameterStatus("server_encoding"); encoding != "UTF8" {
		return fmt.Errorf("the database is encoded in %s; the sink needs one in UTF8", encoding)
	}
	if k.ParameterStatus("standard_conforming_strings") != "on" {
		return errors.New("standard_conforming_strings is off; the sink needs it on")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	c.used[k] = true
	return nil
}

// withoutSecret keeps what the driver says about a failure to connect, without the
// password, should it ever be in there, and without its configuration.
func withoutSecret(err error, cfg *pgconn.Config) error {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return &answer{code: refused.Code, message: clean(refused.Message, cfg.Password)}
	}
	// One line for each address.
	return errors.New(strings.ReplaceAll(clean(err.Error(), cfg.Password), "\n\t", " "))
}

func clean(text, secret string) string {
	if secret == "" {
		return text
	}
	return strings.ReplaceAll(text, secret, "xxxxx")
}
