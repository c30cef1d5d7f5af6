package roots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/leases/bucket"
)

const (
	// announceInterval is the time between two announcements of a worker.
	announceInterval = 30 * time.Second
	// announcedMax is after how long a worker that announces nothing counts as gone.
	announcedMax = 2 * time.Minute
	// version is that of the record; see RECORD.md of package registry.
	version = 1
	prefix  = "roots."
)

// Worker is what a worker announces.
type Worker struct {
	Version int `json:"v"`
	// Node is the id of its directory, and Host where it runs.
	Node string `json:"node"`
	Host string `json:"host,omitempty"`
	// Roots are absolute.
	Roots []string `json:"roots"`
}

// String names the worker for an operator.
func (w *Worker) String() string {
	if w.Host == "" {
		return w.Node
	}
	return w.Node + " on " + w.Host
}

// Announce makes w known under kv, for a while.
func Announce(ctx context.Context, kv jetstream.KeyValue, w *Worker) error {
	known := *w
	known.Version = version
	data, err := json.Marshal(known)
	if err == nil {
		_, err = kv.Put(ctx, prefix+w.Node, data)
	}
	if err != nil {
		return fmt.Errorf("announce the roots of sinks: %w", err)
	}
	return nil
}

// KeepAnnounced keeps w known until ctx ends, and then takes it back. What fails is
// tried again at the next interval, and failed is told of it.
func KeepAnnounced(ctx context.Context, kv jetstream.KeyValue, w *Worker, failed func(error)) {
	ticker := time.NewTicker(announceInterval)
	defer ticker.Stop()
	for {
		if err := Announce(ctx, kv, w); err != nil && ctx.Err() == nil {
			failed(err)
		}
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = kv.Delete(last, prefix+w.Node) // it is forgotten by itself otherwise
			return
		case <-ticker.C:
		}
	}
}

// Workers returns the workers that have announced themselves and are not gone, ordered
// by node.
func Workers(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue) ([]Worker, error) {
	status, err := kv.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the roots of workers: %w", err)
	}
	entries, err := bucket.Entries(ctx, js, kv, prefix+">")
	if err != nil {
		return nil, fmt.Errorf("read the roots of workers: %w", err)
	}
	var now time.Time // by the clock that the entries are dated by
	if s, ok := status.(*jetstream.KeyValueBucketStatus); ok {
		now = s.StreamInfo().TimeStamp
	}
	var workers []Worker
	for _, e := range entries {
		if now.Sub(e.Created()) > announcedMax {
			continue
		}
		var w Worker
		if err := json.Unmarshal(e.Value(), &w); err != nil {
			return nil, fmt.Errorf("record %s: %w", e.Key(), err)
		}
		if w.Version > version {
			return nil, errors.New("record " + e.Key() + " was written by a later release; use that one")
		}
		workers = append(workers, w)
	}
	return workers, nil
}
