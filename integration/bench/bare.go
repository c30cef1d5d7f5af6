//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd"
)

// bareGroupMax bounds the writes of one group, as the owner's commits are bounded.
const bareGroupMax = 4000

// bare is the yardstick for writes: what a log in JetStream with its state in
// Badger costs at least. Each partition is one goroutine that takes all writes
// that wait, appends them as one message, expecting the sequence that the last one
// had, puts them into Badger in one transaction, and answers. It parses nothing,
// looks nothing up, keeps neither versions nor what was replaced.
type bare struct {
	server     *natsd.Server
	nc         *nats.Conn
	db         *badger.DB
	partitions []*barePartition
	stopped    sync.WaitGroup
}

type barePartition struct {
	js      jetstream.JetStream
	db      *badger.DB
	subject string
	last    uint64
	queue   chan bareWrite
	message []byte
}

type bareWrite struct {
	key, body []byte
	answer    chan error
}

// openBare starts a bare loop with n partitions in dir.
func openBare(ctx context.Context, dir string, n int) (*bare, error) {
	server, err := natsd.Open(ctx, natsd.Config{Dir: filepath.Join(dir, "nats"), DontListen: true, Log: quietLog()})
	if err != nil {
		return nil, err
	}
	b := &bare{server: server}
	if err := b.open(ctx, dir, n); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bare) open(ctx context.Context, dir string, n int) (err error) {
	if b.nc, err = b.server.Conn(); err != nil {
		return err
	}
	js, err := jetstream.New(b.nc)
	if err != nil {
		return fmt.Errorf("bare loop: %w", err)
	}
	// As the engine has been tuned: see limits of Badger in its Config.
	b.db, err = badger.Open(badger.DefaultOptions(filepath.Join(dir, "badger")).WithLogger(nil).
		WithCompression(options.None).WithBlockCacheSize(0).WithDetectConflicts(false).WithSyncWrites(false).
		WithNumVersionsToKeep(1).WithMetricsEnabled(false))
	if err != nil {
		return fmt.Errorf("bare loop: open Badger: %w", err)
	}
	for i := range n {
		p := &barePartition{js: js, db: b.db, subject: fmt.Sprintf("bare.%d", i), queue: make(chan bareWrite, bareGroupMax)}
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: fmt.Sprintf("BARE_%d", i), Subjects: []string{p.subject}, Storage: jetstream.FileStorage, DenyDelete: true,
		})
		if err != nil {
			return fmt.Errorf("bare loop: make a stream: %w", err)
		}
		b.partitions = append(b.partitions, p)
		b.stopped.Go(p.run)
	}
	return nil
}

// write stores body under key in partition p and returns when it is durable and
// applied. answer is the writer's own, so that nothing is allocated for it.
func (b *bare) write(p int, key, body []byte, answer chan error) error {
	b.partitions[p].queue <- bareWrite{key, body, answer}
	return <-answer
}

// run commits groups until the queue is closed.
func (p *barePartition) run() {
	group := make([]bareWrite, 0, bareGroupMax)
	for first := range p.queue {
		group = append(group[:0], first)
		for waiting := len(p.queue); waiting > 0 && len(group) < bareGroupMax; waiting-- {
			group = append(group, <-p.queue)
		}
		err := p.commit(group)
		for _, w := range group {
			w.answer <- err
		}
	}
}

// commit appends a group, then applies it.
func (p *barePartition) commit(group []bareWrite) error {
	p.message = p.message[:0]
	for _, w := range group {
		p.message = binary.AppendUvarint(p.message, uint64(len(w.key)))
		p.message = append(p.message, w.key...)
		p.message = binary.AppendUvarint(p.message, uint64(len(w.body)))
		p.message = append(p.message, w.body...)
	}
	// The loop serves until the queue is closed; a publish has its own timeout.
	ack, err := p.js.Publish(context.Background(), p.subject, p.message, jetstream.WithExpectLastSequence(p.last))
	if err != nil {
		return fmt.Errorf("bare loop: append: %w", err)
	}
	p.last = ack.Sequence
	txn := p.db.NewTransaction(true)
	defer txn.Discard()
	for _, w := range group {
		if err := txn.Set(w.key, w.body); err != nil {
			return fmt.Errorf("bare loop: apply: %w", err)
		}
	}
	if err := txn.Commit(); err != nil {
		return fmt.Errorf("bare loop: apply: %w", err)
	}
	return nil
}

// close stops the loop. Nobody may write any more.
func (b *bare) close() error {
	for _, p := range b.partitions {
		close(p.queue)
	}
	b.stopped.Wait()
	var err error
	if b.db != nil {
		err = b.db.Close()
	}
	if b.nc != nil {
		b.nc.Close()
	}
	b.server.Close()
	return err
}
