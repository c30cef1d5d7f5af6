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
	// closeMax bounds the orderly end of a connection.
	closeMax = time.Second
	// idleTrustMax is for how long a connection that lies idle is used again without
	// a look at whether it is still there.
	idleTrustMax = time.Second
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

// acquireForWriter returns a connection for a writer, which releases it by releaseByWriter.
// Writers wait for each other here and not in PostgreSQL, which would count each of them
// among its connections.
func (c *conns) acquireForWriter(ctx context.Context) (*conn, error) {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	k, err := c.acquire(ctx)
	if err != nil {
		<-c.slots
	}
	return k, err
}

// releaseByWriter takes a connection back from a writer.
func (c *conns) releaseByWriter(ctx context.Context, k *conn) {
	c.release(ctx, k)
	<-c.slots
}

// acquire returns a connection for a reader, which releases it. Readers need no slot: one
// that reads a large table would keep writers waiting.
func (c *conns) acquire(ctx context.Context) (*conn, error) {
	for {
		k := c.popIdle()
		if k == nil {
			return c.dial(ctx)
		}
		if time.Since(k.since) < idleTrustMax || k.Ping(ctx) == nil {
			return k, nil
		}
		c.discard(ctx, k)
	}
}

func (c *conns) popIdle() *conn {
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

// release takes a connection back and keeps it if it can be used again, and not too many
// lie idle. One with rows unread is closed: to read the rest of a large table could take
// long.
func (c *conns) release(ctx context.Context, k *conn) {
	if k.IsClosed() || k.IsBusy() || k.TxStatus() != 'I' {
		c.discard(ctx, k)
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
		c.discard(ctx, k)
	}
}

// discard closes a connection.
func (c *conns) discard(ctx context.Context, k *conn) {
	c.mu.Lock()
	delete(c.used, k)
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeMax)
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
		c.discard(context.Background(), k)
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
		c.discard(ctx, k)
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
		return &answer{code: refused.Code, message: hideSecret(refused.Message, cfg.Password)}
	}
	// One line for each address.
	return errors.New(strings.ReplaceAll(hideSecret(err.Error(), cfg.Password), "\n\t", " "))
}

func hideSecret(text, secret string) string {
	if secret == "" {
		return text
	}
	return strings.ReplaceAll(text, secret, "xxxxx")
}
