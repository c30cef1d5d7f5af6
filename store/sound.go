package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases/bucket"
	"github.com/millrace/millrace/store/naming"
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
	// copiesTimeout bounds how long Examine asks the bucket of copies.
	copiesTimeout = time.Second
)

// Examine compares the catalog with the logs that are there.
func Examine(ctx context.Context, js jetstream.JetStream) (*Exam, error) {
	return examineFor(ctx, js, copiesTimeout)
}

// examineFor is Examine that asks the bucket of copies for so long.
func examineFor(ctx context.Context, js jetstream.JetStream, copiesMax time.Duration) (*Exam, error) {
	for try := 1; ; try++ {
		e, err := examine(ctx, js, copiesMax)
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
func examine(ctx context.Context, js jetstream.JetStream, copiesMax time.Duration) (*Exam, error) {
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
		e.Left = examineLeft(ctx, js, kv, e.Unnamed)
		e.Unnamed = slices.DeleteFunc(e.Unnamed, func(p feed.Partition) bool { return slices.Contains(e.Left, p) })
	}
	// The copies tell of databases without containers only. What else the catalog says
	// does not wait for them: their bucket may have no quorum while the catalog has one.
	ask, cancel := context.WithTimeout(ctx, copiesMax)
	defer cancel()
	e.Databases, e.Unasked = spare.New(js, 0).Lost(ask, DatabaseRecords())
	for i, token := range e.Databases {
		if name, err := naming.OfToken(token); err == nil {
			e.Databases[i] = name
		}
	}
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
		for _, p := range info.Named() {
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
	// leftMax bounds the logs without a record whose streams are asked for. Where there are more, records are lost.
	leftMax = 64
	// leftAsked is how many questions about them are under way at once, because one that is silent takes all its time.
	leftAsked = 16
)

// ownTime gives a question the time that js waits for any answer, whatever the others of the caller take.
func ownTime(ctx context.Context, js jetstream.JetStream) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, js.Options().DefaultTimeout)
}

// examineLeft is leftOf for who waits for all of the exam: what is not known in time is not among them.
func examineLeft(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, logs []feed.Partition) []feed.Partition {
	ctx, cancel := ownTime(ctx, js)
	defer cancel()
	return leftOf(ctx, js, kv, askStreams(ctx, js, logs))
}

// logStreams are the streams of logs; nil stands for those that did not answer.
type logStreams map[feed.Partition][]*jetstream.StreamInfo

// askStreams asks for the streams of some logs.
func askStreams(ctx context.Context, js jetstream.JetStream, logs []feed.Partition) logStreams {
	answers := make([][]*jetstream.StreamInfo, len(logs))
	var g errgroup.Group
	g.SetLimit(leftAsked)
	for i, p := range logs[:min(len(logs), leftMax)] {
		g.Go(func() error {
			ctx, cancel := ownTime(ctx, js)
			defer cancel()
			answers[i], _ = feed.StreamsOf(ctx, js, p) // nil after an error
			return nil
		})
	}
	_ = g.Wait()
	streams := logStreams{}
	for i, p := range logs {
		streams[p] = answers[i]
	}
	return streams
}

// leftOf returns those of some logs, of which no record names any, that are of a container that was deleted:
//
//	record     creating ▶ deleting ▶ removed
//	logs       0 is made ▶ removed
//	a maker                          was late, makes 1, and is killed
//
// A maker that lives removes what it has made; see Catalog.Create. The other maker of a log's stream is an owner
// whose log goes on in a new one. Neither can leave a log that was written to. Where a container has one, somebody
// has restored its streams, and means to have it back: all its logs stay, whatever was deleted. So does what cannot be
// found out, because a log whose record was lost must stay.
func leftOf(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, streams logStreams) (left []feed.Partition) {
	keys := map[feed.ResourceID]string{} // of records; "" of containers that stay
	for p, of := range streams {
		key := madeFor(p, of)
		if others, ok := keys[p.Container]; ok && others != key {
			key = ""
		}
		keys[p.Container] = key
	}
	var mu sync.Mutex // guards deleted
	deleted := map[feed.ResourceID]bool{}
	var g errgroup.Group
	g.SetLimit(leftAsked)
	for id, key := range keys {
		if key == "" {
			continue
		}
		g.Go(func() error {
			was := wasDeleted(ctx, js, kv, id, key)
			mu.Lock()
			defer mu.Unlock()
			deleted[id] = was
			return nil
		})
	}
	_ = g.Wait()
	for p, of := range streams {
		if deleted[p.Container] || leftBySplit(ctx, js, kv, p, of) {
			left = append(left, p)
		}
	}
	slices.SortFunc(left, func(a, b feed.Partition) int { return strings.Compare(a.String(), b.String()) })
	return left
}

// madeFor returns the key of the record that a log was made for, as each of its streams is labelled, if nobody has
// used it since; "" otherwise.
func madeFor(p feed.Partition, streams []*jetstream.StreamInfo) (key string) {
	for _, stream := range streams {
		if stream == nil || !feed.Untouched(stream) {
			return ""
		}
		_, info, labelled, err := ReadLabel(stream)
		if err != nil || !labelled || info.ID != p.Container {
			return ""
		}
		is := CatalogKey(info.Database, info.Name)
		if key != "" && key != is {
			return ""
		}
		key = is
	}
	return key
}

// wasDeleted tells whether a container was deleted, and not its record, of that key, lost: the bucket remembers the last
// values of a record that was removed.
func wasDeleted(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, id feed.ResourceID, key string) bool {
	ctx, cancel := ownTime(ctx, js)
	defer cancel()
	history, err := kv.History(ctx, key)
	if err != nil || ctx.Err() != nil { // a history that was cut off looks like a shorter one
		return false
	}
	var state ContainerState
	for _, entry := range history { // others may have had the name since
		if is, err := DecodeContainer(entry.Value()); err == nil && is.ID == id {
			state = is.State
		}
	}
	if state != ContainerDeleting {
		return false
	}
	// The history is that of any replica, which may lag behind a record that doctor has entered again.
	now, err := bucket.Newest(ctx, js, kv, key)
	if err != nil {
		return errors.Is(err, jetstream.ErrKeyNotFound)
	}
	is, err := DecodeContainer(now.Value())
	return err == nil && is.ID != id // one that cannot be read may be its record
}

// RemoveLeft removes those of some logs, of which no record names any, that are of a container that was deleted, and returns
// them. streams are those of each log, all that are there, with nil for one that did not answer. An error says which
// could not be removed; the others are.
func (c *Catalog) RemoveLeft(ctx context.Context, streams map[feed.Partition][]*jetstream.StreamInfo) (removed []feed.Partition, err error) {
	var errs []error
	for _, p := range leftOf(ctx, c.js, c.kv, streams) {
		is, err := c.removeLeft(ctx, p)
		if errs = append(errs, err); is {
			removed = append(removed, p)
		}
	}
	return removed, errors.Join(errs...)
}

// removeLeft removes a log that was left, unless it is none any more: streams were listed a while ago, and whoever restores
// a container may have brought back its log since, or entered its record, by another name too.
func (c *Catalog) removeLeft(ctx context.Context, p feed.Partition) (removed bool, err error) {
	looking, cancel := ownTime(ctx, c.js)
	defer cancel()
	streams, err := feed.StreamsOf(looking, c.js, p)
	if err != nil {
		return false, err
	}
	if !leftBySplit(looking, c.js, c.kv, p, streams) {
		if madeFor(p, streams) == "" {
			return false, nil
		}
		if named, err := c.mayName(ctx, p.Container); err != nil || named {
			return false, err
		}
	}
	removing, cancel := ownTime(ctx, c.js)
	defer cancel()
	err = feed.DeleteLog(removing, c.js, p)
	return err == nil, err
}

// mayName reports whether any record is that of a container, or cannot be read and may be.
func (c *Catalog) mayName(ctx context.Context, id feed.ResourceID) (bool, error) {
	keys, err := bucket.Keys(ctx, c.js, CatalogBucket, containerPrefix+">")
	if err != nil {
		return false, fmt.Errorf("list the catalog: %w", err)
	}
	for _, key := range keys {
		// The newest, because a replica that lags may have what stood there before.
		entry, err := bucket.Newest(ctx, c.js, c.kv, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("read record %s of the catalog: %w", key, err)
		}
		if info, err := readContainer(entry); err != nil || info.ID == id {
			return true, nil //nolint:nilerr // what cannot be read may name it
		}
	}
	return false, nil
}

// DatabaseRecords are the records of databases, of which there are second copies:
// no log tells of a database without containers.
func DatabaseRecords() spare.Source {
	return spare.Source{Bucket: CatalogBucket, Prefix: databasePrefix, Check: func(_ string, record []byte) error {
		var info DatabaseInfo
		if err := json.Unmarshal(record, &info); err != nil {
			return err
		}
		return CheckDatabaseName(info.Name)
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
	// The copies are asked for as long as any other question waits: without them there is no answer here.
	e, err := examineFor(ctx, c.js, c.js.Options().DefaultTimeout)
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
