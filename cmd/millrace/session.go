package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/cmd/millrace/await"
	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/pipelines"
	"github.com/millrace/millrace/store"
)

// session is a connection to a running Millrace.
type session struct {
	cfg      *configs.Config
	nc       *nats.Conn
	js       jetstream.JetStream
	client   *store.Client
	registry *pipelines.Registry
}

// open connects to the server that the command line names. Callers close the
// session.
func (a *app) open(ctx context.Context) (*session, error) {
	cfg, err := a.config()
	if err != nil {
		return nil, err
	}
	if a.logLevel == "" {
		cfg.Log.Level = "warn"
	}
	log := a.logger(cfg)
	var nc *nats.Conn
	err = a.await(ctx, "NATS at "+cfg.Server, func(ctx context.Context) (err error) {
		nc, err = node.Connect(ctx, cfg.Server, "millrace command", cfg.Connect, log)
		return err
	})
	if err != nil {
		return nil, err
	}
	var s *session
	err = a.await(ctx, "JetStream", func(ctx context.Context) (err error) {
		s, err = newSession(ctx, nc, cfg, nil, a)
		return err
	})
	if err != nil {
		nc.Close()
		return nil, err
	}
	return s, nil
}

// await does a step that needs others until it succeeds, for as long as the command
// line says, and says on standard error what it waits for.
func (a *app) await(ctx context.Context, what string, step func(ctx context.Context) error) error {
	if a.wait == 0 {
		return step(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, a.wait)
	defer cancel()
	return await.Until(ctx, func(what string, waited time.Duration, err error) {
		if err != nil {
			fmt.Fprintf(a.err, "waiting for %s since %s: %v\n", what, waited.Round(time.Second), err)
		}
	}, what, step)
}

// newSession opens what commands need over a connection. local finds owners of
// this process and may be nil.
func newSession(ctx context.Context, nc *nats.Conn, cfg *configs.Config, local *store.Local, a *app) (*session, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	if err := node.AdoptReplicas(ctx, js, cfg); err != nil {
		return nil, err
	}
	catalog, err := store.OpenCatalog(ctx, js, store.CatalogConfig{Replicas: cfg.Replicas(), Log: cfg.Feed.Log})
	if err != nil {
		return nil, err
	}
	client := store.NewClient(nc, catalog, store.ClientConfig{Timeout: a.timeout, Local: local})
	registry, err := pipelines.OpenRegistry(ctx, js, client, pipelines.RegistryConfig{
		Replicas: cfg.Replicas(), Log: cfg.Feed.Log, SinkRoot: cfg.Sinks.Roots[0],
	})
	if err != nil {
		return nil, err
	}
	return &session{cfg: cfg, nc: nc, js: js, client: client, registry: registry}, nil
}

func (s *session) Close() { s.nc.Close() }

// monitor returns a monitor of the session's pipelines. Callers close it.
func (s *session) monitor() *pipelines.Monitor {
	return pipelines.NewMonitor(s.js, s.registry, pipelines.MonitorConfig{Bucket: s.cfg.Leases.Bucket, Log: s.cfg.Feed.Log})
}

// with runs f in a session.
func (a *app) with(ctx context.Context, f func(ctx context.Context, s *session) error) error {
	s, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	return f(ctx, s)
}
