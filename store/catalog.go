package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases/bucket"
	"github.com/millrace/millrace/store/featurelevel"
	"github.com/millrace/millrace/store/naming"
	"github.com/millrace/millrace/store/spare"
)

// CatalogConfig tunes a Catalog.
type CatalogConfig struct {
	// Replicas of the catalog's bucket and of new logs. Default 1.
	Replicas int
	// Log is the configuration of new logs.
	Log feed.LogConfig
	// ReadOnly says that the connection may only read: a bucket that is not there is
	// not made.
	ReadOnly bool
	// Held is how many partitions of a store this process's directory holds. Where there are any, a NATS system
	// that has nothing of Millrace's is another one or has lost everything, and is left as it is.
	Held int
	// Await says that another process makes the bucket. Where there is none yet, the error is jetstream.ErrBucketNotFound.
	Await bool
	// Restoring opens a catalog into which a restore has not ended.
	Restoring bool
}

// Catalog is the list of databases and containers, a JetStream key-value bucket
// changed by compare-and-set. It says what is wished; what decides writes is in
// each partition's log. Safe for concurrent use.
type Catalog struct {
	js     jetstream.JetStream
	kv     jetstream.KeyValue
	copies *spare.Copies // of the records of databases
	cfg    CatalogConfig

	// Guarded by mu: what Sound found, and when.
	mu       sync.Mutex
	examined time.Time
	damage   error
}

// OpenCatalog opens the catalog of a NATS system. It makes its bucket only where
// there is nothing of Millrace's yet: beside logs or buckets that are there, a
// catalog that is missing, or that does not name each log, is *DamageError, and where there is
// nothing though cfg.Held says that there was, *EmptyError. It is *RestoringError where a restore has not ended.
func OpenCatalog(ctx context.Context, js jetstream.JetStream, cfg CatalogConfig) (*Catalog, error) {
	cfg.Replicas = max(cfg.Replicas, 1)
	exam, err := Examine(ctx, js)
	if err != nil {
		return nil, fmt.Errorf("compare the catalog with the logs: %w", err)
	}
	if err := exam.Err(); err != nil {
		return nil, err
	}
	if exam.Fresh && cfg.Held > 0 {
		return nil, &EmptyError{cfg.Held}
	}
	kv, err := openCatalogBucket(ctx, js, exam.Fresh && !cfg.ReadOnly && !cfg.Await, cfg.Replicas)
	if err != nil {
		return nil, fmt.Errorf("open the catalog (bucket %s): %w", CatalogBucket, err)
	}
	c := &Catalog{js: js, kv: kv, copies: spare.New(js, cfg.Replicas), cfg: cfg}
	if exam.Unasked == nil {
		c.examined = time.Now()
	}
	if cfg.Restoring {
		return c, nil
	}
	if r, err := c.Restoring(ctx); r != nil || err != nil {
		if err == nil {
			err = &RestoringError{*r}
		}
		return nil, err
	}
	return c, nil
}

// CatalogIdentity returns what tells one catalog, and so one store, from another: when its bucket was made.
func CatalogIdentity(ctx context.Context, js jetstream.JetStream) (string, error) {
	stream, err := js.Stream(ctx, "KV_"+CatalogBucket)
	if err != nil {
		return "", fmt.Errorf("the stream of the catalog: %w", err)
	}
	return stream.CachedInfo().Created.UTC().Format(time.RFC3339Nano), nil
}

func openCatalogBucket(ctx context.Context, js jetstream.JetStream, create bool, replicas int) (jetstream.KeyValue, error) {
	if create {
		cfg := CatalogBucketConfig(replicas)
		// One that is made again beside logs that are there keeps to what any release reads.
		cfg.Metadata = featurelevel.Labels()
		kv, err := js.CreateKeyValue(ctx, cfg)
		if !errors.Is(err, jetstream.ErrBucketExists) {
			return kv, err
		} // another process was faster
	}
	return js.KeyValue(ctx, CatalogBucket)
}

// CatalogBucketConfig is the configuration of the catalog's bucket.
func CatalogBucketConfig(replicas int) jetstream.KeyValueConfig {
	return jetstream.KeyValueConfig{
		Bucket: CatalogBucket, Description: "Millrace: databases and containers", History: 5, Replicas: replicas,
	}
}

const containerPrefix = "container."

// CatalogKey is the key of a container's record in the catalog's bucket.
func CatalogKey(database, name string) string {
	return containerPrefix + naming.Token(database) + "." + naming.Token(name)
}

// Get returns a container. The error is *NoContainerError if there is none, and
// *DamageError if the catalog is damaged: then a container that it lacks may be lost.
func (c *Catalog) Get(ctx context.Context, database, name string) (ContainerInfo, error) {
	entry, err := bucket.Get(ctx, c.js, c.kv, CatalogKey(database, name))
	if errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrInvalidKey) {
		return ContainerInfo{}, c.absent(ctx, &NoContainerError{database, name})
	}
	if err != nil {
		if damage := c.Sound(ctx); damage != nil {
			return ContainerInfo{}, damage
		}
		return ContainerInfo{}, fmt.Errorf("read container %s/%s from the catalog: %w", database, name, err)
	}
	info, err := decodeContainer(entry)
	if err != nil || info.State != ContainerCreating {
		return info, err
	}
	// It may be ready: a replica that lags shows it as it was, also to the one who has
	// just created it.
	return c.Newest(ctx, database, name) // not found: it was deleted at this moment
}

// Newest is Get that asks the leader of the catalog's bucket. A leader that was cut off, and
// does not know it yet, may still answer with an older record; see Confirm.
func (c *Catalog) Newest(ctx context.Context, database, name string) (ContainerInfo, error) {
	entry, err := c.newest(ctx, database, name)
	if err != nil {
		return ContainerInfo{}, err
	}
	return decodeContainer(entry)
}

func (c *Catalog) newest(ctx context.Context, database, name string) (jetstream.KeyValueEntry, error) {
	entry, err := bucket.Newest(ctx, c.js, c.kv, CatalogKey(database, name))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, &NoContainerError{database, name}
	}
	if err != nil {
		return nil, fmt.Errorf("read container %s/%s from the catalog: %w", database, name, err)
	}
	return entry, nil
}

// Confirm returns a container whose record was certainly the newest during the call: it
// writes the record again as it is, by compare-and-set, which only a quorum can take.
func (c *Catalog) Confirm(ctx context.Context, database, name string) (ContainerInfo, error) {
	for {
		entry, err := c.newest(ctx, database, name)
		if err != nil {
			return ContainerInfo{}, err
		}
		info, err := decodeContainer(entry)
		if err != nil {
			return ContainerInfo{}, err
		}
		info.Revision, err = c.kv.Update(ctx, entry.Key(), entry.Value(), entry.Revision())
		if err == nil {
			return info, nil
		}
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return ContainerInfo{}, fmt.Errorf("confirm container %s/%s: %w", database, name, err)
		}
		// Another writer was faster. (A leader that was cut off takes no write: an error above.)
	}
}

func decodeContainer(entry jetstream.KeyValueEntry) (ContainerInfo, error) {
	info, err := readContainer(entry)
	if err != nil {
		return ContainerInfo{}, badRecord(entry.Key(), err)
	}
	return info, nil
}

func readContainer(entry jetstream.KeyValueEntry) (ContainerInfo, error) {
	info, err := DecodeContainer(entry.Value())
	if err == nil && CatalogKey(info.Database, info.Name) != entry.Key() {
		err = fmt.Errorf("it is that of %s/%s", info.Database, info.Name)
	}
	info.Revision = entry.Revision()
	return info, err
}

// List returns all containers, ordered by database and name.
func (c *Catalog) List(ctx context.Context) ([]ContainerInfo, error) {
	entries, err := bucket.Entries(ctx, c.js, c.kv, containerPrefix+">")
	if err != nil {
		return nil, fmt.Errorf("list the catalog: %w", err)
	}
	var infos []ContainerInfo
	for _, entry := range entries {
		info, err := decodeContainer(entry)
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b ContainerInfo) int {
		return strings.Compare(a.Database+"\x00"+a.Name, b.Database+"\x00"+b.Name)
	})
	return infos, nil
}

// Record is the record of a container as it stands in the catalog's bucket.
type Record struct {
	Info ContainerInfo
	// Data is the record itself, Written when the bucket took it.
	Data    []byte
	Written time.Time
}

// Records returns the records of all containers that can be read.
func (c *Catalog) Records(ctx context.Context) ([]Record, error) {
	entries, err := bucket.Entries(ctx, c.js, c.kv, containerPrefix+">")
	if err != nil {
		return nil, fmt.Errorf("list the catalog: %w", err)
	}
	var records []Record
	for _, entry := range entries {
		if info, err := readContainer(entry); err == nil {
			records = append(records, Record{Info: info, Data: entry.Value(), Written: entry.Created()})
		}
	}
	return records, nil
}

// Create declares a container and makes its logs. Called again after a crash it
// finishes what was begun. A container that exists with another spec is 409. In a
// catalog that is damaged nothing is made: *DamageError.
func (c *Catalog) Create(ctx context.Context, database, name string, spec ContainerSpec) (ContainerInfo, error) {
	if err := errors.Join(CheckDatabaseName(database), CheckContainerName(name)); err != nil {
		return ContainerInfo{}, err
	}
	spec.Normalize()
	if err := errors.Join(spec.Check()...); err != nil {
		return ContainerInfo{}, Refuse(StatusBadRequest, "container %s/%s: %v", database, name, err)
	}
	if err := AdmitNames(ctx, c.js, database, name); err != nil {
		return ContainerInfo{}, err
	}
	info := ContainerInfo{
		Database: database, Name: name, ID: feed.NewResourceID(), State: ContainerCreating, Spec: spec, Created: time.Now().UTC(),
	}
	// The identities are drawn here and not where the logs are made: a Create that goes on
	// after a crash finds them in the record, and makes the logs that are missing under them.
	for i, r := range feed.EvenRanges(spec.Partitions) {
		info.Partitions = append(info.Partitions, PartitionInfo{Number: uint32(i), Range: r, Log: feed.NewLogID()})
	}
	// The record before the logs, so that no log is there without a name (see examine). In a
	// damaged catalog the name may be that of a container whose record was lost.
	if err := c.Sound(ctx); err != nil {
		return ContainerInfo{}, err
	}
	if err := c.giveRID(ctx, &info); err != nil {
		return ContainerInfo{}, err
	}
	data, err := json.Marshal(info)
	if err != nil {
		return ContainerInfo{}, fmt.Errorf("container %s/%s: %w", database, name, err)
	}
	_, err = c.kv.Create(ctx, CatalogKey(database, name), data)
	if err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return ContainerInfo{}, fmt.Errorf("declare container %s/%s: %w", database, name, err)
	}
	info, err = c.Get(ctx, database, name)
	if err != nil {
		return ContainerInfo{}, err
	}
	switch {
	case !sameSpec(&info.Spec, &spec):
		return info, Refuse(StatusConflict, "container %s/%s exists with another declaration", database, name)
	case info.State == ContainerDeleting:
		return info, Refuse(StatusConflict, "container %s/%s is being deleted; try again when it is gone", database, name)
	case info.State == ContainerReady:
		return info, nil
	}
	ready, err := c.makeReady(ctx, info)
	if err != nil {
		if left := c.removeUnnamed(ctx, &info); left != nil {
			err = errors.Join(err, left)
		}
		return info, err
	}
	return ready, nil
}

// makeReady makes the logs of a container whose record is there, and then says that it is ready.
func (c *Catalog) makeReady(ctx context.Context, info ContainerInfo) (ContainerInfo, error) {
	if err := c.createLogs(ctx, &info); err != nil {
		return info, err
	}
	return c.modify(ctx, info.Database, info.Name, func(i *ContainerInfo) error {
		if i.ID != info.ID || i.State == ContainerDeleting {
			return Refuse(StatusConflict, "container %s/%s was deleted meanwhile; try again", info.Database, info.Name)
		}
		i.State = ContainerReady
		return nil
	})
}

// sameSpec compares as the catalog would write them.
func sameSpec(a, b *ContainerSpec) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// createLogs makes the logs of a container. Their streams carry its record as it
// will be when all of them are there.
func (c *Catalog) createLogs(ctx context.Context, info *ContainerInfo) error {
	ready := *info
	ready.State = ContainerReady
	record, err := json.Marshal(ready)
	if err != nil {
		return fmt.Errorf("container %s/%s: %w", info.Database, info.Name, err)
	}
	for _, p := range info.Partitions {
		labels, err := Labels(record, info.Created, p)
		if err != nil {
			return fmt.Errorf("container %s/%s: %w", info.Database, info.Name, err)
		}
		if err := c.createLog(ctx, info, p, labels); err != nil {
			return err
		}
	}
	return nil
}

// createLog makes the log of p and its first commit, which names the log and
// carries the settings.
func (c *Catalog) createLog(ctx context.Context, info *ContainerInfo, p PartitionInfo, labels map[string]string) error {
	partition := feed.Partition{Container: info.ID, Number: p.Number}
	cfg := c.cfg.Log
	cfg.Labels = labels
	if err := feed.CreateLog(ctx, c.js, partition, p.Log, cfg); err != nil {
		return fmt.Errorf("create the log of %s: %w", partition, err)
	}
	log, err := feed.OpenLog(ctx, c.js, partition, c.cfg.Log)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", partition, err)
	}
	defer log.Close()
	if _, last, err := log.Bounds(ctx); err != nil || last > 0 {
		return err
	}
	// With the time of the record and not of now, so that whoever is faster begins the log with the same state.
	settings := genesis(info)
	commit := &feed.Commit{
		ID: feed.NewCommitID(), Log: p.Log, Time: info.Created.UnixMilli(), Owner: "catalog",
		Transactions: []feed.Transaction{{Control: &feed.Control{Kind: ControlGenesis, Data: settings.Marshal()}}},
	}
	_, err = log.Append(ctx, 0, commit.ID, feed.AppendCommit(nil, commit))
	if errors.Is(err, feed.ErrFenced) {
		return nil // another creator was faster; its genesis says the same
	}
	if err != nil {
		return fmt.Errorf("begin the log of %s: %w", partition, err)
	}
	return nil
}

// errUnchanged ends a change that finds all as it is to be.
var errUnchanged = errors.New("unchanged")

// encode returns the record as the catalog's bucket holds it.
func (i *ContainerInfo) encode() ([]byte, error) {
	data, err := json.Marshal(i)
	if err != nil {
		return nil, fmt.Errorf("container %s/%s: %w", i.Database, i.Name, err)
	}
	return data, nil
}

// modify changes a record by compare-and-set, trying again while others win.
func (c *Catalog) modify(ctx context.Context, database, name string, change func(*ContainerInfo) error) (ContainerInfo, error) {
	for {
		info, err := c.Get(ctx, database, name)
		if err != nil {
			return info, err
		}
		switch err := change(&info); {
		case errors.Is(err, errUnchanged):
			return info, nil
		case err != nil:
			return info, err
		}
		data, err := info.encode()
		if err != nil {
			return info, err
		}
		info.Revision, err = c.kv.Update(ctx, CatalogKey(database, name), data, info.Revision)
		if err == nil {
			return info, nil
		}
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return info, fmt.Errorf("change container %s/%s: %w", database, name, err)
		}
	}
}

// Update changes what may be changed of a container: indexes, time to live and
// retention. Partition key, partitions and unique keys are fixed at creation:
// 409.
func (c *Catalog) Update(ctx context.Context, database, name string, spec ContainerSpec) (ContainerInfo, error) {
	return c.update(ctx, database, name, spec, func(*ContainerInfo) error { return nil })
}

// Replace is Update that also records policies, as SetPolicies does. With a revision
// other than 0 it is 412 unless that is still the container's.
func (c *Catalog) Replace(ctx context.Context, database, name string, revision uint64, spec ContainerSpec, policies json.RawMessage) (ContainerInfo, error) {
	return c.update(ctx, database, name, spec, func(i *ContainerInfo) error {
		if revision != 0 && i.Revision != revision {
			return Refuse(StatusPreconditionFailed, "container %s/%s has changed; read it again", database, name)
		}
		i.Policies = policies
		return nil
	})
}

func (c *Catalog) update(ctx context.Context, database, name string, spec ContainerSpec, more func(*ContainerInfo) error) (ContainerInfo, error) {
	spec.Normalize()
	if err := errors.Join(spec.Check()...); err != nil {
		return ContainerInfo{}, Refuse(StatusBadRequest, "container %s/%s: %v", database, name, err)
	}
	return c.modify(ctx, database, name, func(i *ContainerInfo) error {
		if fixed := i.Spec.FixedDifference(&spec); fixed != "" {
			return Refuse(StatusConflict, "container %s/%s: %s cannot be changed; declare a new container and copy the items", database, name, fixed)
		}
		i.Spec = spec
		return more(i)
	})
}

// FixedDifference names the first field that differs from other and that cannot
// be changed after creation; "" if there is none.
func (s *ContainerSpec) FixedDifference(other *ContainerSpec) string {
	switch {
	case !slices.Equal(s.PartitionKey, other.PartitionKey):
		return "partitionKey"
	case s.Partitions != other.Partitions:
		return "partitions"
	case !slices.EqualFunc(s.UniqueKeys, other.UniqueKeys, slices.Equal[[]string]):
		return "uniqueKeys"
	}
	return ""
}

// Watch calls f with all containers, once at first and then after every change,
// until ctx ends. Changes that come close together may be seen as one. Of a record
// that cannot be read any more the former one counts; Sound tells of it.
func (c *Catalog) Watch(ctx context.Context, f func([]ContainerInfo)) error {
	decode := func(entry jetstream.KeyValueEntry) (ContainerInfo, bool, error) {
		info, err := decodeContainer(entry)
		return info, err == nil, nil // Sound tells of it
	}
	err := bucket.Watch(ctx, c.kv, containerPrefix+">", decode, func(all map[string]ContainerInfo) { f(sorted(all)) })
	if err != nil {
		return fmt.Errorf("watch the catalog: %w", err)
	}
	return nil
}

func sorted(all map[string]ContainerInfo) []ContainerInfo {
	infos := make([]ContainerInfo, 0, len(all))
	for _, info := range all {
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b ContainerInfo) int {
		return strings.Compare(a.Database+"\x00"+a.Name, b.Database+"\x00"+b.Name)
	})
	return infos
}
