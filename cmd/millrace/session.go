package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/cmd/millrace/internal/await"
	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/featurelevel"
)

// session is a connection to a running Millrace.
type session struct {
	cfg      *configs.Config
	nc       *nats.Conn
	js       jetstream.JetStream
	client   *store.Client
	registry *registry.Registry
}

// deniedError says that the user of the connection may not do something.
type deniedError struct {
	login *node.Login
	err   error
}

func (e *deniedError) Error() string {
	if e.login.ReadOnly() {
		return fmt.Sprintf("the credentials of %s are for reading only", cmp.Or(e.login.File, "connect.user"))
	}
	return fmt.Sprintf("the NATS server refuses: %v", e.err)
}

func (e *deniedError) Unwrap() error { return e.err }

// openSession connects to the server that the command line names. Callers close the
// session. refused is called when the server refuses something to its user.
func (a *app) openSession(ctx context.Context, refused context.CancelCauseFunc) (*session, error) {
	cfg, err := a.quietConfig()
	if err != nil {
		return nil, err
	}
	log := a.logger(cfg)
	login, err := node.FindLogin(cfg)
	if err != nil {
		return nil, err
	}
	tell := func(_ *nats.Conn, _ *nats.Subscription, err error) {
		// The server does not answer what it refuses, so nothing else would end the wait.
		if errors.Is(err, nats.ErrPermissionViolation) {
			refused(&deniedError{login: &login, err: err})
			return
		}
		log.Warn("NATS", slog.Any("error", err))
	}
	var nc *nats.Conn
	err = a.await(ctx, "NATS at "+node.Redacted(cfg.Server), func(ctx context.Context) (err error) {
		nc, err = node.Connect(ctx, cfg, &login, "millrace command", log, nats.ErrorHandler(tell))
		return err
	})
	if err != nil {
		return nil, err
	}
	var s *session
	err = a.await(ctx, "JetStream", func(ctx context.Context) (err error) {
		s, err = newSession(ctx, nc, cfg, login.ReadOnly(), a)
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

// newSession opens what commands need over a connection, which may be for reading
// only.
func newSession(ctx context.Context, nc *nats.Conn, cfg *configs.Config, readOnly bool, a *app) (*session, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	if err := node.AdoptReplicas(ctx, js, cfg); err != nil {
		return nil, err
	}
	catalog, err := store.OpenCatalog(ctx, js, store.CatalogConfig{Replicas: cfg.Replicas(), Log: cfg.Feed.Log, ReadOnly: readOnly})
	if err != nil {
		return nil, err
	}
	if _, err := featurelevel.Read(ctx, js); err != nil {
		return nil, err
	}
	client := store.NewClient(nc, catalog, a.clientConfig(readOnly))
	registry, err := registry.Open(ctx, js, client, registry.Config{
		Replicas: cfg.Replicas(), Log: cfg.Feed.Log, SinkRoot: cfg.Sinks.Roots[0], SinkVariables: cfg.Sinks.Variables, ReadOnly: readOnly,
	})
	if err != nil {
		return nil, err
	}
	return &session{cfg: cfg, nc: nc, js: js, client: client, registry: registry}, nil
}

// clientConfig is how commands ask: until --timeout ends, also while an owner says that it gives a partition up, since
// whoever typed the command said how long to wait. What that owner waits for is told then as well.
func (a *app) clientConfig(readOnly bool) store.ClientConfig {
	return store.ClientConfig{Timeout: a.timeout, HandoverWait: a.timeout, ReadOnly: readOnly}
}

func (s *session) Close() { s.nc.Close() }

// monitor returns a monitor of the session's pipelines, which waits so long for one log. Callers close it.
func (s *session) monitor(answerTimeout time.Duration) *status.Monitor {
	return status.NewMonitor(s.js, s.registry, status.MonitorConfig{Bucket: s.cfg.Leases.Bucket, Log: s.cfg.Feed.Log, AnswerTimeout: answerTimeout})
}

// inspector returns what reads how the session's Millrace is. Callers close it.
func (s *session) inspector() *inspect.Inspector {
	return inspect.New(s.inspected())
}

// inspected is the session's Millrace.
func (s *session) inspected() *inspect.Config {
	return &inspect.Config{
		JetStream: s.js, Client: s.client, Registry: s.registry, Replicas: node.ReplicasWish(s.cfg), Log: s.cfg.Feed.Log,
	}
}

// withSession runs f in a session.
func (a *app) withSession(ctx context.Context, f func(ctx context.Context, s *session) error) error {
	ctx, refused := context.WithCancelCause(ctx)
	defer refused(nil)
	s, err := a.openSession(ctx, refused)
	if err == nil {
		defer s.Close()
		err = f(ctx, s)
	}
	// A refused request ends as a timeout or a cancellation, which tell an operator nothing.
	// The refusal came beside it, so it is told in its place.
	if denied, ok := errors.AsType[*deniedError](context.Cause(ctx)); ok && err != nil {
		return denied
	}
	return err
}

// containers returns one container, or all of the database if name is "".
func (s *session) containers(ctx context.Context, database, name string) ([]store.ContainerInfo, error) {
	if name != "" {
		info, err := s.client.Catalog().Get(ctx, database, name)
		return []store.ContainerInfo{info}, err
	}
	all, err := s.client.Catalog().List(ctx)
	return slices.DeleteFunc(all, func(info store.ContainerInfo) bool { return info.Database != database }), err
}

// users returns the names of the pipelines that use a container.
func (s *session) users(ctx context.Context, database, name string) ([]string, error) {
	records, err := s.registry.Users(ctx, database, name)
	names := []string{}
	for i := range records {
		names = append(names, records[i].Name)
	}
	return names, err
}

// pipelines returns one pipeline, or all of the database if name is "".
func (s *session) pipelines(ctx context.Context, database, name string) ([]registry.Record, error) {
	if name != "" {
		rec, err := s.registry.Get(ctx, database, name)
		return []registry.Record{rec}, err
	}
	all, err := s.registry.List(ctx)
	return slices.DeleteFunc(all, func(rec registry.Record) bool { return rec.Database != database }), err
}
