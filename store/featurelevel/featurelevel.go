// Package featurelevel says which releases share the data. It is no API: it is for the
// packages of store, for what registers pipelines, and for millrace upgrade.
//
// The catalog carries a level. A process writes nothing that a release of that level
// cannot read, so as long as the level is not raised, every process may be stopped and
// the release before be started on the same data:
//
//	release of level 2  ──▶  release of level 3        ──▶  millrace upgrade --finish
//	data at level 2          data at level 2, way back       data at level 3, no way back
//
// A new catalog has the newest level as a label of its bucket. One that was there is raised by Raise, once, when
// every process knows the level; Behind names those that do not. A level is never lowered:
// one that was raised is a key of the bucket too.
//
//	1  releases that keep every log whole
//	2  logs are trimmed, and pipelines begin with a snapshot
//	3  commits are compressed
//	4  partitions are split, digests of replicas are compared, and databases have resource ids of their own
//	5  databases, containers and items are named as Azure Cosmos DB takes it, and containers have scripts
//
// What is younger than a release and written at its level all the same is written so that
// it can pass over it: members of records that it does not know, metadata of streams.
//
// All functions may be called concurrently.
package featurelevel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/leases/bucket"
)

// Newest is the level that this release can read.
const Newest = 5

// Trims is the level from which on logs are trimmed.
const Trims = 2

// Compresses is the level from which on commits are compressed.
const Compresses = 3

// Splits is the level from which on partitions are split.
const Splits = 4

// Digests is the level from which on owners have digests of replicas compared.
const Digests = 4

// GivesRIDs is the level from which on databases, and so their containers, get resource ids of their own.
const GivesRIDs = 4

// WideNames is the level from which on databases and containers have other names than earlier releases took.
const WideNames = 5

// Scripts is the level from which on containers have stored procedures, triggers and functions, and owners take guarded
// transactions.
const Scripts = 5

// WideIDs is the level from which on ids of items hold / \ ? and #.
const WideIDs = 5

// label is where the stream of the catalog's bucket tells the level of the data.
const label = "millrace.level"

// catalogBucket is the catalog's bucket; package store, which names it, stands above.
const (
	catalogBucket = "millrace_catalog"
	catalogStream = "KV_" + catalogBucket
)

// levelKey is where the bucket itself tells a level that was raised.
//
// The labels of a stream are changed without compare-and-set, all at once, also by stores
// that note how many replicas there are to be:
//
//	a store                          Raise
//	reads the labels: level 2
//	                                 writes level 3, and reads it back
//	writes its own among those       the level is 2 again, and there may be compressed commits
//
// The key goes up and never down, and comes before the label. So the level is the higher of
// the two; a label alone, which is what a new catalog has, is in all that was ever read.
const levelKey = "level"

// Labels are those of a new catalog's bucket. One that is made again beside logs has
// none of them: it is not known who shares the data, so it keeps to what all can read.
func Labels() map[string]string { return map[string]string{label: strconv.Itoa(Newest)} }

// LaterError says that the data has a level that this release does not know.
type LaterError struct{ Level int }

func (e *LaterError) Error() string {
	return fmt.Sprintf("the data has feature level %d, and this release reads up to %d: a later release has finished its upgrade; use that one", e.Level, Newest)
}

// Read returns the level of the data: 1 where no release has said one. The error is
// *LaterError if it is not known here, jetstream.ErrBucketNotFound if there is no catalog.
func Read(ctx context.Context, js jetstream.JetStream) (int, error) {
	cfg, err := catalogConfig(ctx, js)
	if err != nil {
		return 0, fmt.Errorf("read the feature level: %w", err)
	}
	level, err := levelOf(cfg.Metadata)
	if err != nil {
		return level, err
	}
	// Also where the label tells the newest level: a later release may have raised the key alone.
	raised, _, err := readRaised(ctx, js)
	return max(level, raised), err
}

// readRaised returns what the key says, 1 without it, and its revision.
func readRaised(ctx context.Context, js jetstream.JetStream) (level int, revision uint64, err error) {
	kv, err := js.KeyValue(ctx, catalogBucket)
	if err != nil {
		return 0, 0, fmt.Errorf("read the feature level: %w", err)
	}
	entry, err := bucket.Get(ctx, js, kv, levelKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 1, 0, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read the feature level: %w", err)
	}
	level, err = parse(string(entry.Value()))
	return level, entry.Revision(), err
}

func catalogConfig(ctx context.Context, js jetstream.JetStream) (*jetstream.StreamConfig, error) {
	stream, err := js.Stream(ctx, catalogStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		// Which is what others wait for: a server may not have heard of a bucket yet.
		err = jetstream.ErrBucketNotFound
	}
	if err != nil {
		return nil, err
	}
	return &stream.CachedInfo().Config, nil
}

func levelOf(labels map[string]string) (int, error) {
	text, ok := labels[label]
	if !ok {
		return 1, nil
	}
	return parse(text)
}

func parse(text string) (int, error) {
	level, err := strconv.Atoi(text)
	switch {
	case err != nil || level < 1:
		return 0, fmt.Errorf("the feature level of the data is %q; a number from 1 is expected", text)
	case level > Newest:
		return 0, &LaterError{level}
	}
	return level, nil
}

// Behind returns the processes that do not know the newest level. They must be upgraded
// before Raise. Processes that have just been started and hold nothing yet are among those
// that are asked; ones that are started later are not, so whoever raises the level must
// know that the old release is gone from everywhere.
func Behind(ctx context.Context, js jetstream.JetStream, bucket string) ([]leases.Process, error) {
	all, err := leases.Processes(ctx, js, bucket)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p leases.Process) bool { return p.Level >= Newest }), nil
}

// raiseTries bounds how often Raise writes the level.
const raiseTries = 5

// Raise sets the level of the data to Newest, if it is lower. The caller has asked Behind. It may
// be called again.
func Raise(ctx context.Context, js jetstream.JetStream) error {
	level, err := Read(ctx, js)
	if err != nil {
		return err
	}
	if level < Newest {
		if err := raiseKey(ctx, js); err != nil {
			return fmt.Errorf("raise the feature level: %w", err)
		}
	}
	// A release of level 2 does not read the key where the label tells its own level, so
	// the label follows here also where an earlier attempt, or a store that noted its replicas,
	// has left it behind.
	cfg, err := catalogConfig(ctx, js)
	if err != nil {
		return fmt.Errorf("raise the feature level: %w", err)
	}
	if level, err := levelOf(cfg.Metadata); err != nil || level >= Newest {
		return err
	}
	cfg.Metadata = maps.Clone(cfg.Metadata)
	if cfg.Metadata == nil {
		cfg.Metadata = map[string]string{}
	}
	maps.Copy(cfg.Metadata, Labels())
	if _, err := js.UpdateStream(ctx, *cfg); err != nil {
		return fmt.Errorf("label the catalog with the feature level, which is raised: %w", err)
	}
	return nil
}

// raiseKey writes the key. A later release may do so at the same time.
func raiseKey(ctx context.Context, js jetstream.JetStream) error {
	kv, err := js.KeyValue(ctx, catalogBucket)
	if err != nil {
		return err
	}
	for range raiseTries {
		level, revision, err := readRaised(ctx, js)
		if err != nil || level >= Newest {
			return err
		}
		if _, err = kv.Update(ctx, levelKey, []byte(strconv.Itoa(Newest)), revision); !errors.Is(err, jetstream.ErrKeyExists) && !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return err
		}
	}
	return errors.New("others have changed it again and again")
}
