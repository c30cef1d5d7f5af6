//go:build linux

package main

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed postgres.sh
var postgresScript string

// postgres is the cluster that Millrace is compared with.
type postgres struct {
	dsn  string
	dir  string // of a cluster of our own; "" if it is somebody else's
	port int
	// pid is the postmaster's, 0 if it is not on this machine.
	pid int
}

// startPostgres makes a cluster in dir and starts it, by the script.
func startPostgres(ctx context.Context, dir string) (*postgres, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	p := &postgres{dir: dir, port: port}
	out, err := p.script(ctx, "start", dir, strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	p.dsn = strings.TrimSpace(out)
	if data, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid")); err == nil {
		first, _, _ := strings.Cut(string(data), "\n")
		p.pid, _ = strconv.Atoi(first)
	}
	return p, nil
}

// script runs postgres.sh and returns what it printed.
func (p *postgres) script(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", append([]string{"-s", "--"}, args...)...)
	var out strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(postgresScript), &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("postgres.sh %s: %w", strings.Join(args, " "), err)
	}
	return out.String(), nil
}

// stop stops a cluster of our own.
func (p *postgres) stop(ctx context.Context) error {
	if p == nil || p.dir == "" {
		return nil
	}
	// The run may have been interrupted; the cluster must stop all the same.
	_, err := p.script(context.WithoutCancel(ctx), "stop", p.dir)
	return err
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
