package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases/bucket"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/naming"
	"github.com/millrace/millrace/store/spare"
)

// Bucket is the bucket of the pipelines' records.
const Bucket = "millrace_pipelines"

const pipelinePrefix = "pipeline."

// Keys are the keys of the records in Bucket, as a subject.
const Keys = pipelinePrefix + ">"

// NoPipelineError says that a pipeline is not registered.
type NoPipelineError struct {
	Database, Name string
	// Nearest is a registered pipeline that may be meant; "" if none is.
	Nearest string
}

func (e *NoPipelineError) Error() string {
	s := fmt.Sprintf("pipeline %s/%s is not registered", e.Database, e.Name)
	if e.Nearest != "" {
		return s + "; did you mean " + e.Nearest + "?"
	}
	return s + "; millrace get pipelines lists those that are"
}

// Is matches store.ErrNotFound.
func (e *NoPipelineError) Is(target error) bool { return target == error(store.ErrNotFound) }

// Config tunes a Registry.
type Config struct {
	// Replicas of the registry's bucket. Default 1.
	Replicas int
	// Log is the configuration with which the logs of targets are opened.
	Log feed.LogConfig
	// SinkRoot is the first root of this process's own sinks. Below it the files of a
	// directory that is not absolute are looked for beside the workers' roots. Default
	// the working directory.
	SinkRoot string
	// SinkVariables are the variables that sinks may name where this process opens some
	// to plan and to verify: sinks.variables of its configuration.
	SinkVariables []string
	// ReadOnly says that the connection may only read: a bucket that is not there is
	// not made.
	ReadOnly bool
	// WalkLogBytes is how large the log of a source may be to be read whatever its items
	// take. Default 4 MiB.
	WalkLogBytes uint64
}

// Registry is the list of pipelines, a JetStream key-value bucket changed by
// compare-and-set. Safe for concurrent use.
type Registry struct {
	JetStream jetstream.JetStream
	KV        jetstream.KeyValue
	copies    *spare.Copies
	client    *store.Client
	cfg       Config
}

// SinkVariables are the environment variables of this process that sinks may name.
func (r *Registry) SinkVariables() []string { return r.cfg.SinkVariables }

// Open opens the registry of a NATS system. It makes its bucket only where
// there is no log and no copy of a pipeline's record yet; a registry that is missing
// beside them, or that lacks or cannot read a record, is *store.DamageError.
// Containers are found in the client's catalog.
func Open(ctx context.Context, js jetstream.JetStream, client *store.Client, cfg Config) (*Registry, error) {
	exam, err := Examine(ctx, js)
	if err != nil {
		return nil, fmt.Errorf("look at the registry of pipelines: %w", err)
	}
	if err := exam.Err(); err != nil {
		return nil, err
	}
	kv, err := openRegistryBucket(ctx, js, exam.Fresh && !cfg.ReadOnly, max(cfg.Replicas, 1))
	if err != nil {
		return nil, fmt.Errorf("open the registry of pipelines (bucket %s): %w", Bucket, err)
	}
	return &Registry{JetStream: js, KV: kv, copies: spare.New(js, cfg.Replicas), client: client, cfg: cfg}, nil
}

func openRegistryBucket(ctx context.Context, js jetstream.JetStream, create bool, replicas int) (jetstream.KeyValue, error) {
	if create {
		kv, err := js.CreateKeyValue(ctx, BucketConfig(replicas))
		if !errors.Is(err, jetstream.ErrBucketExists) {
			return kv, err
		} // another process was faster
	}
	return js.KeyValue(ctx, Bucket)
}

// BucketConfig is the configuration of the registry's bucket.
func BucketConfig(replicas int) jetstream.KeyValueConfig {
	return jetstream.KeyValueConfig{Bucket: Bucket, Description: "Millrace: pipelines", History: 5, Replicas: replicas}
}

func registryKey(m spec.Metadata) string {
	return pipelinePrefix + naming.Token(m.Database) + "." + naming.Token(m.Name)
}

// copy keeps the second copy of a pipeline's record. One that cannot be written now
// is written by a store before long.
func (r *Registry) copy(ctx context.Context, m spec.Metadata) {
	_ = r.copies.Keep(ctx, RecordSource(), registryKey(m))
}

// Get returns a pipeline, or *NoPipelineError.
func (r *Registry) Get(ctx context.Context, database, name string) (Record, error) {
	m := spec.Metadata{Name: name, Database: database}
	entry, err := bucket.Get(ctx, r.JetStream, r.KV, registryKey(m))
	if errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrInvalidKey) {
		return Record{}, r.NoPipeline(ctx, m)
	}
	if err != nil {
		return Record{}, fmt.Errorf("read pipeline %s: %w", m, err)
	}
	return decodeRecord(entry.Key(), entry.Value(), entry.Revision())
}

// NoPipeline returns the error for a pipeline that is not there.
func (r *Registry) NoPipeline(ctx context.Context, m spec.Metadata) error {
	all, err := r.List(ctx)
	if err != nil {
		return err
	}
	var names []string
	for i := range all {
		if all[i].Database == m.Database {
			names = append(names, all[i].Name)
		}
	}
	return &NoPipelineError{m.Database, m.Name, spec.Nearest(m.Name, names)}
}

// List returns all pipelines, ordered by database and name.
func (r *Registry) List(ctx context.Context) ([]Record, error) {
	entries, err := bucket.Entries(ctx, r.JetStream, r.KV, pipelinePrefix+">")
	if err != nil {
		return nil, fmt.Errorf("list the pipelines: %w", err)
	}
	var records []Record
	for _, entry := range entries {
		record, err := decodeRecord(entry.Key(), entry.Value(), entry.Revision())
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	SortRecords(records)
	return records, nil
}

// SortRecords orders records by database and name.
func SortRecords(records []Record) {
	slices.SortFunc(records, func(a, b Record) int {
		return strings.Compare(a.Metadata().String(), b.Metadata().String())
	})
}

// World returns what declarations are checked against: all containers and
// pipelines.
func (r *Registry) World(ctx context.Context) (World, error) {
	containers, err := r.client.Catalog().List(ctx)
	if err != nil {
		return World{}, err
	}
	records, err := r.List(ctx)
	return World{containers, records}, err
}

// Users returns the pipelines that read or write a container. One that has any
// should not be deleted.
func (r *Registry) Users(ctx context.Context, database, container string) ([]Record, error) {
	records, err := r.List(ctx)
	return slices.DeleteFunc(records, func(rec Record) bool {
		return rec.Database != database || !slices.Contains(rec.Spec.Containers(), container)
	}), err
}

// Pause ends the work of a pipeline until Resume. What changes meanwhile is done
// then. To pause one that is paused does nothing.
func (r *Registry) Pause(ctx context.Context, database, name string) (Record, error) {
	return r.Modify(ctx, spec.Metadata{Name: name, Database: database}, func(rec *Record) { rec.Paused = true })
}

// Resume ends what Pause began.
func (r *Registry) Resume(ctx context.Context, database, name string) (Record, error) {
	return r.Modify(ctx, spec.Metadata{Name: name, Database: database}, func(rec *Record) { rec.Paused = false })
}

// Modify changes a record by compare-and-set, trying again while others win.
func (r *Registry) Modify(ctx context.Context, m spec.Metadata, change func(*Record)) (Record, error) {
	for {
		rec, err := r.Get(ctx, m.Database, m.Name)
		if err != nil {
			return rec, err
		}
		// A change that changes nothing writes nothing: each revision wakes all
		// workers and, where it has waited for a verification, begins it anew.
		before := string(rec.encode())
		change(&rec)
		data := rec.encode()
		if string(data) == before {
			return rec, nil
		}
		rec.Revision, err = r.KV.Update(ctx, registryKey(m), data, rec.Revision)
		if err == nil {
			r.copy(ctx, m)
			return rec, nil
		}
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return rec, fmt.Errorf("change pipeline %s: %w", m, err)
		}
	}
}

// Delete removes a pipeline. The copies, fields and rows that it made stay as
// they are, and are kept equal no longer. The accumulators of an aggregate go.
func (r *Registry) Delete(ctx context.Context, database, name string) error {
	for {
		rec, err := r.Get(ctx, database, name)
		if err != nil {
			return err
		}
		// The record first: a crash behind it leaves a rule that nobody needs, and the
		// reconciler drops it. The other way round the fields would go wrong while the
		// pipeline is still there.
		err = r.KV.Delete(ctx, registryKey(rec.Metadata()), jetstream.LastRevision(rec.Revision))
		if err == nil {
			r.copy(ctx, rec.Metadata())
			r.replaced(ctx, &rec, &Record{})
		}
		switch {
		case err == nil && rec.Spec.Kind() == spec.AggregateKind:
			return r.dropRule(ctx, &rec)
		case err == nil:
			return nil
		case !errors.Is(err, jetstream.ErrKeyRevisionMismatch):
			return fmt.Errorf("delete pipeline %s: %w", rec.Metadata(), err)
		}
	}
}

// Watch calls f with all pipelines, once at first and then after every change,
// until ctx ends. Changes that come close together may be seen as one. Of a record
// that is damaged the former one counts.
func (r *Registry) Watch(ctx context.Context, f func([]Record)) error {
	decode := func(entry jetstream.KeyValueEntry) (Record, bool, error) {
		record, err := decodeRecord(entry.Key(), entry.Value(), entry.Revision())
		// The pipeline goes on as it was: to drop it would end its processors.
		if isDamage(err) {
			return Record{}, false, nil
		}
		return record, true, err
	}
	err := bucket.Watch(ctx, r.KV, Keys, decode, func(all map[string]Record) {
		records := slices.AppendSeq(make([]Record, 0, len(all)), maps.Values(all))
		SortRecords(records)
		f(records)
	})
	if err != nil {
		return fmt.Errorf("watch the pipelines: %w", err)
	}
	return nil
}

// newID returns an id for a pipeline that is registered for the first time.
func newID(name string) string { return name + "-" + string(feed.NewResourceID()) }

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
