package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases/bucket"
	"github.com/millrace/millrace/store/spare"
)

// CatalogBucket is the bucket of the catalog's records.
const CatalogBucket = "millrace_catalog"

// DamageError says that a bucket of Millrace's is missing, lacks records of what
// is there, or holds records that cannot be read. What it lacks may
// be lost rather than absent, so no caller is told that it does not exist, and nothing
// is declared in its place.
type DamageError struct {
	// What is damaged: the catalog, the registry of pipelines.
	What string
	// Findings say how.
	Findings []string
}

func (e *DamageError) Error() string {
	const shown = 3
	text := strings.Join(e.Findings[:min(len(e.Findings), shown)], "; ")
	if more := len(e.Findings) - shown; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return fmt.Sprintf("%s is damaged: %s; millrace doctor tells all of it, and millrace doctor --fix repairs it", e.What, text)
}

// Is matches ErrUnavailable.
func (e *DamageError) Is(target error) bool { return target == error(ErrUnavailable) }

// EmptyError says that a NATS system has nothing of Millrace's, though the directory of the process that asks
// holds partitions. A catalog that it made there would tell everybody that there are no items.
type EmptyError struct{ Held int }

func (e *EmptyError) Error() string {
	return fmt.Sprintf("NATS has nothing of Millrace's, though this node's engine holds %d partitions: it is another server, its directory is not mounted, or it has lost everything; nothing was changed", e.Held)
}

// BadRecord is a record that cannot be read.
type BadRecord struct{ Key, Reason string }

func (r BadRecord) String() string {
	return fmt.Sprintf("record %s cannot be read (%s)", r.Key, r.Reason)
}

// badRecord is the error for a record of the catalog that cannot be read.
func badRecord(key string, err error) error {
	return &DamageError{What: "the catalog", Findings: []string{BadRecord{key, err.Error()}.String()}}
}

// Exam is what a look at the catalog and at the streams has found.
type Exam struct {
	// Missing says that there is no catalog, Fresh that there is nothing of
	// Millrace's at all.
	Missing, Fresh bool
	Containers     []ContainerInfo
	Bad            []BadRecord
	// Logs are all that are there, Unnamed those of them that no record names, and Left those that are of
	// no use: somebody who was late, and was killed, has made them for a container that was deleted.
	Logs, Unnamed, Left []feed.Partition
	// Streams are the names of those that hold Logs; of one that is moving, the old one's.
	Streams map[feed.Partition]string
	// Databases are those whose records are lost.
	Databases []string
	// Unasked is why it is unknown whether the record of a database is lost: the bucket
	// of copies did not answer. Nil if it did.
	Unasked error
}

// Err returns *DamageError if anything is wrong.
func (e *Exam) Err() error {
	var findings []string
	if e.Missing && !e.Fresh {
		findings = append(findings, fmt.Sprintf("its bucket %s is not there, though %d logs are", CatalogBucket, len(e.Logs)))
	}
	for _, bad := range e.Bad {
		findings = append(findings, bad.String())
	}
	if !e.Missing {
		for _, p := range e.Unnamed {
			findings = append(findings, fmt.Sprintf("log %s (stream %s) belongs to no container that it names", p, e.Streams[p]))
		}
	}
	for _, name := range e.Databases {
		findings = append(findings, fmt.Sprintf("the record of database %s is lost", name))
	}
	if len(findings) == 0 {
		return nil
	}
	return &DamageError{What: "the catalog", Findings: findings}
}

const (
	// examTries bounds how often the catalog is looked at until it names all logs:
	// a replica may lag behind what another process has just declared.
	examTries = 4
	examPause = 250 * time.Millisecond
	// copiesTimeout bounds how long the bucket of copies is asked.
	copiesTimeout = time.Second
)

// Examine compares the catalog with the logs that are there.
func Examine(ctx context.Context, js jetstream.JetStream) (*Exam, error) {
	for try := 1; ; try++ {
		e, err := examine(ctx, js)
		if err != nil || e.Err() == nil || try == examTries {
			return e, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(examPause):
		}
	}
}

// examine looks once. The order matters: a container is in the catalog before its
// logs are made, and until they are gone, so a log that exists before the
// catalog is read, and that the catalog does not name, belongs to no container.
func examine(ctx context.Context, js jetstream.JetStream) (*Exam, error) {
	names, err := feed.StreamNames(ctx, js)
	if err != nil {
		return nil, err
	}
	e := &Exam{Fresh: true, Missing: !slices.Contains(names, "KV_"+CatalogBucket), Streams: map[feed.Partition]string{}}
	e.Logs = feed.ParseStreams(names)
	for _, name := range names {
		if p, isLog := feed.ParseStream(name); isLog && e.Streams[p] == "" {
			e.Streams[p] = name
		}
		e.Fresh = e.Fresh && len(e.Logs) == 0 && !strings.HasPrefix(name, "KV_millrace_")
	}
	if e.Missing {
		e.Unnamed = e.Logs
		return e, nil
	}
	kv, err := js.KeyValue(ctx, CatalogBucket)
	if err != nil {
		return nil, fmt.Errorf("open the catalog (bucket %s): %w", CatalogBucket, err)
	}
	entries, err := bucket.Entries(ctx, js, kv, ">")
	if err != nil {
		return nil, fmt.Errorf("list the catalog: %w", err)
	}
	named := map[feed.Partition]bool{}
	for _, entry := range entries {
		e.addRecord(entry, named)
	}
	for _, p := range e.Logs {
		if !named[p] {
			e.Unnamed = append(e.Unnamed, p)
		}
	}
	if len(e.Unnamed) > 0 {
		if e.Unnamed, err = stillThere(ctx, js, e.Unnamed); err != nil {
			return nil, err
		}
		e.Left = leftOf(ctx, js, kv, e.Unnamed, e.Streams)
		e.Unnamed = slices.DeleteFunc(e.Unnamed, func(p feed.Partition) bool { return slices.Contains(e.Left, p) })
	}
	// The copies tell of databases without containers only. What else the catalog says
	// does not wait for them: their bucket may have no quorum while the catalog has one.
	ask, cancel := context.WithTimeout(ctx, copiesTimeout)
	defer cancel()
	e.Databases, e.Unasked = spare.New(js, 0).Lost(ask, DatabaseRecords())
	return e, nil
}

// addRecord adds a record of the catalog, and to named the logs that it names.
func (e *Exam) addRecord(entry jetstream.KeyValueEntry, named map[feed.Partition]bool) {
	key := entry.Key()
	switch {
	case strings.HasPrefix(key, databasePrefix):
		if _, err := readDatabase(entry); err != nil {
			e.Bad = append(e.Bad, BadRecord{key, err.Error()})
		}
	case strings.HasPrefix(key, containerPrefix):
		info, err := readContainer(entry)
		if err != nil {
			e.Bad = append(e.Bad, BadRecord{key, err.Error()})
			return
		}
		e.Containers = append(e.Containers, info)
		for _, p := range info.Partitions {
			named[feed.Partition{Container: info.ID, Number: p.Number}] = true
		}
	}
}

// stillThere returns the logs that are there now: a container may have been
// deleted since they were listed.
func stillThere(ctx context.Context, js jetstream.JetStream, logs []feed.Partition) ([]feed.Partition, error) {
	names, err := feed.StreamNames(ctx, js)
	if err != nil {
		return nil, err
	}
	there := feed.ParseStreams(names)
	return slices.DeleteFunc(slices.Clone(logs), func(p feed.Partition) bool { return !slices.Contains(there, p) }), nil
}

const (
	// leftTimeout bounds the look at what logs without a record are of.
	leftTimeout = 3 * time.Second
	// leftMax bounds the containers that are looked at. Where there are more, records are lost.
	leftMax = 16
)

// leftOf returns those of some logs, of which no record names any, that are of a container that was deleted:
//
//	record     creating ▶ deleting ▶ removed
//	logs       0 is made ▶ removed
//	a maker                          was late, makes 1, and is killed
//
// A maker that lives removes what it has made; see Catalog.Create. The other maker of a log's stream is an owner
// whose log goes on in a new one. What cannot be found out is not among them: a log whose record was lost must
// stay. streams are the names of the streams.
func leftOf(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, logs []feed.Partition, streams map[feed.Partition]string) (left []feed.Partition) {
	ctx, cancel := context.WithTimeout(ctx, leftTimeout)
	defer cancel()
	deleted := map[feed.ResourceID]bool{}
	for _, p := range logs {
		was, asked := deleted[p.Container]
		if !asked && len(deleted) < leftMax {
			was = wasDeleted(ctx, js, kv, p.Container, streams[p])
			deleted[p.Container] = was
		}
		if was {
			left = append(left, p)
		}
	}
	return left
}

// wasDeleted tells whether the container that a log's stream is labelled with was deleted, and not its record lost: the
// bucket remembers the last values of a record that was removed.
func wasDeleted(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, id feed.ResourceID, name string) bool {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return false
	}
	_, info, labelled, err := ReadLabel(stream.CachedInfo())
	if err != nil || !labelled || info.ID != id {
		return false
	}
	key := catalogKey(info.Database, info.Name)
	history, err := kv.History(ctx, key)
	if err != nil || ctx.Err() != nil { // a history that was cut off looks like a shorter one
		return false
	}
	of := func(entry jetstream.KeyValueEntry) bool {
		is, err := DecodeContainer(entry.Value())
		return err == nil && is.ID == id
	}
	last := -1
	for i, entry := range history { // others may have had the name since
		if of(entry) {
			last = i
		}
	}
	if last < 0 {
		return false
	}
	if is, _ := DecodeContainer(history[last].Value()); is.State != ContainerDeleting {
		return false
	}
	// The history is that of any replica, which may lag behind a record that doctor has entered again.
	now, err := bucket.Newest(ctx, js, kv, key)
	return errors.Is(err, jetstream.ErrKeyNotFound) || err == nil && !of(now)
}

// RemoveLeft removes those of some logs, of which no record names any, that are of a container that was deleted, and returns
// them. streams are the names of the streams that hold them.
func (c *Catalog) RemoveLeft(ctx context.Context, streams map[feed.Partition]string) (removed []feed.Partition, err error) {
	logs := slices.SortedFunc(maps.Keys(streams), func(a, b feed.Partition) int { return strings.Compare(a.String(), b.String()) })
	for _, p := range leftOf(ctx, c.js, c.kv, logs, streams) {
		if err := feed.DeleteLog(ctx, c.js, p); err != nil {
			return removed, err
		}
		removed = append(removed, p)
	}
	return removed, nil
}

// DatabaseRecords are the records of databases, of which there are second copies:
// no log tells of a database without containers.
func DatabaseRecords() spare.Source {
	return spare.Source{Bucket: CatalogBucket, Prefix: databasePrefix, Check: func(_ string, record []byte) error {
		var info DatabaseInfo
		if err := json.Unmarshal(record, &info); err != nil {
			return err
		}
		return CheckName("database", info.Name)
	}}
}

// soundFor is how long the catalog counts as sound after it was examined.
const soundFor = 2 * time.Second

// Sound returns *DamageError if the catalog lacks records of logs that are there, or
// holds some that cannot be read; any other error says that this could not be found
// out. What it finds counts for two seconds.
func (c *Catalog) Sound(ctx context.Context) error {
	c.mu.Lock()
	examined, err := c.examined, c.damage
	c.mu.Unlock()
	if time.Since(examined) < soundFor {
		return err
	}
	// Not under the lock, which would make everybody wait for the requests. Two that look at once find the same.
	e, err := Examine(ctx, c.js)
	if err != nil {
		return fmt.Errorf("compare the catalog with the logs: %w", err)
	}
	err = e.Err()
	// Nothing was found, and not all was asked. That is not kept: the next one asks again.
	if err == nil && e.Unasked != nil {
		return fmt.Errorf("compare the catalog with its copies: %w", e.Unasked)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.examined, c.damage = time.Now(), err
	return err
}

// absent returns err, which says that something is not in the catalog. If the catalog is
// damaged it returns the damage, because the record may be lost.
func (c *Catalog) absent(ctx context.Context, err error) error {
	if damage := c.Sound(ctx); damage != nil {
		return damage
	}
	return err
}
