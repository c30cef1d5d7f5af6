package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/gateway"
)

// leaderless is a JetStream that makes or removes no stream while it has an error.
type leaderless struct {
	jetstream.JetStream
	create, remove error
}

func (l *leaderless) CreateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) { //nolint:gocritic // the interface's
	if l.create != nil {
		return nil, l.create
	}
	return l.JetStream.CreateStream(ctx, cfg)
}

func (l *leaderless) DeleteStream(ctx context.Context, name string) error {
	if l.remove != nil {
		return l.remove
	}
	return l.JetStream.DeleteStream(ctx, name)
}

// noLeader is what JetStream answers while it elects one.
var noLeader = &jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "JetStream system temporarily unavailable"}

// A declaration or deletion that was begun and could not be ended may go on by itself. It is no refusal: those
// say that nothing was changed.
func TestGateway_WhatWasBegunIsNotRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	js := &leaderless{JetStream: w.js}
	catalog, err := store.OpenCatalog(t.Context(), js, store.CatalogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	w.client = store.NewClient(w.nc, catalog, store.ClientConfig{})
	w.serve(gateway.Config{})
	w.ask("POST", "/dbs", `{"id":"shop"}`).is(201)
	for i, trouble := range []error{noLeader, nats.ErrNoResponders, context.DeadlineExceeded} {
		name := fmt.Sprintf("things%d", i)
		body := strings.Replace(byPK, "{", `{"id":"`+name+`",`, 1)
		js.create = trouble
		w.ask("POST", "/dbs/shop/colls", body).is(http.StatusRequestTimeout)
		js.create = nil
		w.ask("POST", "/dbs/shop/colls", body).is(http.StatusCreated)
		js.remove = trouble
		w.ask("DELETE", "/dbs/shop/colls/"+name, "").is(http.StatusRequestTimeout)
		w.ask("GET", "/dbs/shop/colls/"+name, "").is(http.StatusNotFound)
		js.remove = nil
		w.ask("DELETE", "/dbs/shop/colls/"+name, "").is(http.StatusNoContent)
	}
	w.container("things", byPK)
	js.remove = noLeader
	w.ask("DELETE", "/dbs/shop", "").is(http.StatusRequestTimeout)
	js.remove = nil
	w.ask("DELETE", "/dbs/shop", "").is(http.StatusNoContent)
}
