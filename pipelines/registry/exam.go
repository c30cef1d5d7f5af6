package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases/bucket"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/spare"
)

// Exam is what a look at the registry has found.
type Exam struct {
	// Missing says that there is no registry, Fresh that there is no log and no copy
	// of a record either.
	Missing, Fresh bool
	Records        []Record
	Bad            []store.BadRecord
	// Lost are the keys of records of which the registry knows nothing though there
	// are copies of them.
	Lost []string
}

// Err returns *store.DamageError if anything is wrong.
func (e *Exam) Err() error {
	var findings []string
	if e.Missing && !e.Fresh {
		findings = append(findings, fmt.Sprintf("its bucket %s is not there, though logs or copies of its records are", Bucket))
	}
	for _, bad := range e.Bad {
		findings = append(findings, bad.String())
	}
	for _, key := range e.Lost {
		findings = append(findings, fmt.Sprintf("record %s is lost", key))
	}
	if len(findings) == 0 {
		return nil
	}
	return &store.DamageError{What: "the registry of pipelines", Findings: findings}
}

// Sound returns *store.DamageError if the catalog or the registry lacks a record of something that is there, or holds one
// that cannot be read. Who is about to drop what no record names asks first: a bucket that was lost, or that
// is being made again, names nothing.
func (r *Registry) Sound(ctx context.Context) error {
	_, _, err := r.soundWorld(ctx)
	return err
}

// soundWorld returns all containers and all records, if nothing of either is lost.
func (r *Registry) soundWorld(ctx context.Context) ([]store.ContainerInfo, []Record, error) {
	catalog, err := store.Examine(ctx, r.JetStream)
	if err == nil {
		err = errors.Join(catalog.Err(), catalog.Unasked)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("compare the catalog with the logs: %w", err)
	}
	exam, err := Examine(ctx, r.JetStream)
	if err == nil {
		err = exam.Err()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("compare the registry with its copies: %w", err)
	}
	return catalog.Containers, exam.Records, nil
}

// badRecord is the error of whoever needs a record that cannot be read.
func badRecord(key string, err error) error {
	return &store.DamageError{What: "the registry of pipelines", Findings: []string{store.BadRecord{Key: key, Reason: err.Error()}.String()}}
}

func isDamage(err error) bool {
	_, ok := errors.AsType[*store.DamageError](err)
	return ok
}

// RecordSource are the pipelines' records, of which there are second copies.
func RecordSource() spare.Source {
	return spare.Source{Bucket: Bucket, Prefix: pipelinePrefix, Check: func(key string, record []byte) error {
		_, err := decodeRecord(key, record, 0)
		return err
	}}
}

// Examine looks for what the registry has lost.
func Examine(ctx context.Context, js jetstream.JetStream) (*Exam, error) {
	names, err := feed.StreamNames(ctx, js)
	if err != nil {
		return nil, err
	}
	// No log names its pipelines, so only the second copies can tell which records are lost.
	e := &Exam{Missing: !slices.Contains(names, "KV_"+Bucket)}
	source := RecordSource()
	lost, err := spare.New(js, 0).Lost(ctx, source)
	if err != nil {
		return nil, err
	}
	for _, name := range lost {
		e.Lost = append(e.Lost, source.Prefix+name)
	}
	slices.Sort(e.Lost)
	if e.Missing {
		e.Fresh = len(e.Lost) == 0 && !slices.ContainsFunc(names, func(name string) bool {
			_, isLog := feed.ParseStream(name)
			return isLog
		})
		return e, nil
	}
	kv, err := js.KeyValue(ctx, Bucket)
	if err != nil {
		return nil, err
	}
	entries, err := bucket.Entries(ctx, js, kv, pipelinePrefix+">")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		record, err := readRecord(entry.Key(), entry.Value(), entry.Revision())
		if newer, ok := errors.AsType[*newerRecordError](err); ok {
			return nil, newer
		}
		if err != nil {
			e.Bad = append(e.Bad, store.BadRecord{Key: entry.Key(), Reason: err.Error()})
			continue
		}
		e.Records = append(e.Records, record)
	}
	SortRecords(e.Records)
	return e, nil
}
