//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"

	server "github.com/millrace/millrace/integration/postgres"
)

// postgresSettings give PostgreSQL the durability that Millrace is compared at:
// every commit is on disk before it is answered. Vacuum and checkpoints are done
// between measurements, not during them; this favours PostgreSQL. A large WAL keeps
// it from doing more of them.
var postgresSettings = []string{
	"fsync = on",
	"synchronous_commit = on",
	"full_page_writes = on",
	"shared_buffers = 2GB",
	"max_wal_size = 8GB",
	"checkpoint_timeout = 30min",
	"autovacuum = off",
	"work_mem = 64MB",
	"maintenance_work_mem = 512MB",
}

// postgres is the cluster that Millrace is compared with.
type postgres struct {
	dsn string
	// server is nil if it is somebody else's.
	server *server.Server
	// pid is the postmaster's, 0 if it is not on this machine.
	pid int
}

// startPostgres makes a cluster in dir and starts it.
func startPostgres(ctx context.Context, dir string) (*postgres, error) {
	s, err := server.Open(ctx, server.Config{Dir: dir, Settings: postgresSettings})
	if err != nil {
		return nil, err
	}
	return &postgres{dsn: s.DSN(), server: s, pid: s.PID()}, nil
}

// stop stops a cluster of our own.
func (p *postgres) stop(ctx context.Context) error {
	if p == nil || p.server == nil {
		return nil
	}
	// The run may have been interrupted; the cluster must stop all the same.
	return p.server.Stop(context.WithoutCancel(ctx))
}

// connect opens one connection; each concurrent client has its own.
func (p *postgres) connect(ctx context.Context, schema string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(p.dsn)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	if schema != "" {
		cfg.RuntimeParams["search_path"] = schema
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("postgres: connect: %w", err)
	}
	return conn, nil
}

// mode says how PostgreSQL makes writes durable, in its own words.
func (p *postgres) mode(ctx context.Context) (string, error) {
	conn, err := p.connect(ctx, "")
	if err != nil {
		return "", err
	}
	defer closeConn(ctx, conn)
	var parts []string
	for _, name := range []string{
		"server_version", "fsync", "synchronous_commit", "wal_sync_method", "full_page_writes", "shared_buffers", "max_wal_size", "autovacuum",
	} {
		var value string
		if err := conn.QueryRow(ctx, "select current_setting($1)", name).Scan(&value); err != nil {
			return "", fmt.Errorf("postgres: read %s: %w", name, err)
		}
		if name == "server_version" {
			parts = append(parts, "PostgreSQL "+value+" on loopback, by pgx")
			continue
		}
		parts = append(parts, name+"="+value)
	}
	return strings.Join(parts, ", ") + "; vacuum and checkpoint between measurements", nil
}

// closeConn ends a connection whose work is done; there is nothing to be done
// about an error.
func closeConn(ctx context.Context, conn *pgx.Conn) { _ = conn.Close(context.WithoutCancel(ctx)) }

// freePort returns a port of loopback that nobody listens at just now.
func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}
