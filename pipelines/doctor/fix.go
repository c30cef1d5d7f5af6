package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases/bucket"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/naming"
	"github.com/millrace/millrace/store/spare"
	"github.com/millrace/millrace/store/upkeep"
)

// Name is the name to give to a container whose logs do not tell it.
type Name struct{ Database, Container string }

// ParseName reads RID=DATABASE/CONTAINER.
func ParseName(text string) (feed.ResourceID, Name, error) {
	rid, name, ok := strings.Cut(text, "=")
	database, container, both := strings.Cut(name, "/")
	if !ok || !both {
		return "", Name{}, fmt.Errorf("%q: RID=DATABASE/CONTAINER is expected, such as c7k2x4ab=default/orders", text)
	}
	id, err := feed.ParseResourceID(rid)
	if err := errors.Join(err, store.CheckDatabaseName(database), store.CheckContainerName(container)); err != nil {
		return "", Name{}, fmt.Errorf("%q: %w", text, err)
	}
	return id, Name{database, container}, nil
}

// Fix makes the buckets again, as far as anything tells what stood in them, and
// reports what it did and what is left. names are those to give to containers that
// the catalog does not name; those that an earlier release cannot read are refused as long as one may share the data,
// and nothing is changed then. It may be called again.
func (d *Doctor) Fix(ctx context.Context, names map[feed.ResourceID]Name) (*Report, error) {
	f, err := d.begin(ctx, names)
	if err != nil {
		return nil, err
	}
	return f.run(ctx)
}

// begin looks at what there is.
func (d *Doctor) begin(ctx context.Context, names map[feed.ResourceID]Name) (*fixer, error) {
	for id, name := range names {
		if err := store.AdmitNames(ctx, d.js, name.Database, name.Container); err != nil {
			return nil, fmt.Errorf("container %s: %w", id, err)
		}
	}
	f := &fixer{Doctor: d, names: names, seen: map[string]uint64{}, refused: map[feed.ResourceID]error{}}
	// Before the look: a record that has a revision before it and behind it has been looked at in
	// that revision.
	for _, name := range []string{store.CatalogBucket, registry.Bucket} {
		if err := f.note(ctx, name); err != nil {
			return nil, err
		}
	}
	var err error
	f.p, err = d.look(ctx)
	return f, err
}

// note notes the revisions of the records of a bucket.
func (f *fixer) note(ctx context.Context, name string) error {
	kv, err := f.js.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open bucket %s: %w", name, err)
	}
	entries, err := bucket.Entries(ctx, f.js, kv, ">")
	if err != nil {
		return fmt.Errorf("read bucket %s: %w", name, err)
	}
	for _, entry := range entries {
		f.seen[entry.Key()] = entry.Revision()
	}
	return nil
}

// run makes the buckets again.
func (f *fixer) run(ctx context.Context) (*Report, error) {
	// badRecords comes behind containers: a record that cannot be read may be that of a log without
	// a name, and is removed only when every log has a container. upkeep is last, for it labels logs
	// and makes copies from what the steps before have entered.
	for _, step := range []func(context.Context) error{f.openBuckets, f.containers, f.badRecords, f.databases, f.registry, f.upkeep} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	r, err := f.Examine(ctx)
	if err != nil {
		return nil, err
	}
	r.Done = f.done
	for _, id := range slices.Sorted(maps.Keys(f.refused)) {
		r.add(Unnamed, "container "+string(id), f.refused[id].Error(), "see the reason")
	}
	return r, nil
}

// fixer is one Fix.
type fixer struct {
	*Doctor
	p        *patient
	names    map[feed.ResourceID]Name
	seen     map[string]uint64  // revisions of the records of both buckets, by key
	catalog  jetstream.KeyValue // nil if nothing is there at all
	pipes    jetstream.KeyValue // likewise; opened by registry
	replicas int
	done     []string
	// refused are containers that could not be entered, and why.
	refused map[feed.ResourceID]error
}

func (f *fixer) say(format string, args ...any) {
	f.done = append(f.done, fmt.Sprintf(format, args...))
}

// openBuckets opens the catalog's bucket, and makes it if it is missing beside logs. Buckets get at
// least as many replicas as the logs have: a command does not know the stores' configuration.
func (f *fixer) openBuckets(ctx context.Context) (err error) {
	f.replicas = max(f.cfg.Wish.Replicas, 1)
	for _, stream := range f.p.streams {
		f.replicas = max(f.replicas, stream.Config.Replicas)
	}
	if f.p.exam.Fresh {
		return nil
	}
	f.catalog, err = f.open(ctx, f.p.exam.Missing, store.CatalogBucketConfig(f.replicas))
	return err
}

func (f *fixer) open(ctx context.Context, missing bool, cfg jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	if missing {
		kv, err := f.js.CreateKeyValue(ctx, cfg)
		if err == nil {
			f.say("made bucket %s", cfg.Bucket)
			return kv, nil
		}
		// A store may have made it since the look.
		if !errors.Is(err, jetstream.ErrBucketExists) {
			return nil, fmt.Errorf("make bucket %s: %w", cfg.Bucket, err)
		}
	}
	kv, err := f.js.KeyValue(ctx, cfg.Bucket)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", cfg.Bucket, err)
	}
	return kv, nil
}

// containers enters the containers that the catalog does not name.
func (f *fixer) containers(ctx context.Context) error {
	for _, l := range f.p.unnamed() {
		info, how, err := f.recall(ctx, l)
		if err != nil {
			f.refused[l.id] = err
			continue
		}
		if info == nil {
			continue // it needs a name, and the findings say so
		}
		said := fmt.Sprintf("entered container %s/%s (%s, %s) into the catalog, %s", info.Database, info.Name, info.ID, logsText(l.logs), how)
		entered, err := f.enter(ctx, info, said)
		if err != nil {
			f.refused[l.id] = err
		}
		if entered {
			// Noted, so that the next one cannot get the same name, and badRecords knows it.
			f.p.exam.Containers = append(f.p.exam.Containers, *info)
		}
	}
	return ctx.Err()
}

// recall finds out what the record of a container was; nil if a name is needed.
func (f *fixer) recall(ctx context.Context, l *lost) (info *store.ContainerInfo, how string, err error) {
	name, named := f.names[l.id]
	if l.info != nil {
		is := *l.info
		if named {
			is.Database, is.Name = name.Database, name.Container
		}
		// The record was labelled while the container was being made. If all of its logs are
		// there and begun, only the last write to the catalog was missing.
		if is.State == store.ContainerCreating && f.begun(l, &is) {
			is.State = store.ContainerReady
		}
		return &is, "as its logs tell", nil
	}
	if !named {
		return nil, "", nil
	}
	is, err := f.readLogs(ctx, l)
	if err != nil {
		return nil, "", err
	}
	is.Database, is.Name = name.Database, name.Container
	return is, "under the name that was given, with the settings that are in its logs; they do not tell changeFeed.retention, which is forever now: " +
		"apply the container with the one that it should have", nil
}

// begun says whether all logs of a container are there and hold their first commit.
func (f *fixer) begun(l *lost, info *store.ContainerInfo) bool {
	return len(l.logs) == len(info.Partitions) && !slices.ContainsFunc(l.logs, func(p feed.Partition) bool {
		return f.p.streams[p] == nil || f.p.streams[p].State.LastSeq == 0
	})
}

// enter writes a record where there is none that can be read; see put.
func (f *fixer) enter(ctx context.Context, info *store.ContainerInfo, said string) (done bool, err error) {
	if id := f.p.holder(info.Database, info.Name); id != "" {
		return false, fmt.Errorf("container %s has the name %s/%s: give another with --name %s=DATABASE/CONTAINER", id, info.Database, info.Name, info.ID)
	}
	data, err := json.Marshal(info)
	if err != nil {
		return false, err
	}
	key := store.CatalogKey(info.Database, info.Name)
	return f.put(ctx, f.catalog, key, data, said)
}

// put writes a record in place of what the look has seen, nothing or what cannot be read. It
// tells whether it did, and says so. What somebody has written since is left: it may be right.
func (f *fixer) put(ctx context.Context, kv jetstream.KeyValue, key string, data []byte, said string) (done bool, err error) {
	if f.p.bad(key) {
		// Of one that was made since revisions were noted seen has 0, which no record has.
		_, err = kv.Update(ctx, key, data, f.seen[key])
	} else {
		_, err = kv.Create(ctx, key, data)
	}
	return f.settled(key, err, said)
}

// remove removes a record that cannot be read, unless somebody has written it since the look.
func (f *fixer) remove(ctx context.Context, kv jetstream.KeyValue, key, why string) error {
	var err error = jetstream.ErrKeyRevisionMismatch
	// To Delete 0 is any revision.
	if revision := f.seen[key]; revision > 0 {
		err = kv.Delete(ctx, key, jetstream.LastRevision(revision))
	}
	_, err = f.settled(key, err, fmt.Sprintf("removed record %s, which cannot be read %s", key, why))
	return err
}

// settled says what a write has done with a record that is lost or cannot be read. It is not
// tried again.
func (f *fixer) settled(key string, err error, said string) (done bool, _ error) {
	switch {
	case err == nil:
		done = true
	case errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		said = fmt.Sprintf("left record %s: somebody has changed it meanwhile; see what millrace doctor says now", key)
	default:
		return false, fmt.Errorf("write record %s: %w", key, err)
	}
	f.say("%s", said)
	f.p.forget(key)
	return done, nil
}

// bad tells whether a record cannot be read.
func (p *patient) bad(key string) bool {
	is := func(bad store.BadRecord) bool { return bad.Key == key }
	return slices.ContainsFunc(p.exam.Bad, is) || slices.ContainsFunc(p.registry.Bad, is)
}

// forget takes a record that cannot be read for settled.
func (p *patient) forget(key string) {
	is := func(bad store.BadRecord) bool { return bad.Key == key }
	p.exam.Bad = slices.DeleteFunc(p.exam.Bad, is)
	p.registry.Bad = slices.DeleteFunc(p.registry.Bad, is)
}

// badRecords repairs what is left of the catalog's records that cannot be read.
func (f *fixer) badRecords(ctx context.Context) error {
	copies, err := spare.New(f.js, f.replicas).All(ctx, store.DatabaseRecords().Prefix)
	if err != nil {
		return err
	}
	entered := map[feed.ResourceID]bool{}
	for i := range f.p.exam.Containers {
		entered[f.p.exam.Containers[i].ID] = true
	}
	unentered := slices.ContainsFunc(f.p.exam.Unnamed, func(p feed.Partition) bool { return !entered[p.Container] })
	for _, bad := range slices.Clone(f.p.exam.Bad) {
		name, isDatabase := strings.CutPrefix(bad.Key, store.DatabaseRecords().Prefix)
		switch {
		case isDatabase:
			data := copies[bad.Key]
			if data == nil {
				if data, err = json.Marshal(store.DatabaseInfo{Name: name, Created: time.Now().UTC()}); err != nil {
					return err
				}
			}
			if _, err := f.put(ctx, f.catalog, bad.Key, data, "repaired record "+bad.Key); err != nil {
				return err
			}
		case !unentered:
			// Every log has a container by now, so no log belongs to this record.
			if err := f.remove(ctx, f.catalog, bad.Key, "and to which no log belongs"); err != nil {
				return err
			}
		}
	}
	return nil
}

// databases enters those whose records are lost.
func (f *fixer) databases(ctx context.Context) error {
	source := store.DatabaseRecords()
	if f.catalog == nil {
		return nil
	}
	copies := spare.New(f.js, f.replicas)
	all, err := copies.All(ctx, source.Prefix)
	if err != nil {
		return err
	}
	lost, err := copies.Lost(ctx, source)
	if err != nil {
		return err
	}
	slices.Sort(lost)
	for _, token := range lost {
		name, err := naming.OfToken(token)
		if err != nil {
			name = token
		}
		said := fmt.Sprintf("entered database %s into the catalog, from its copy", name)
		if _, err := f.put(ctx, f.catalog, source.Prefix+token, all[source.Prefix+token], said); err != nil {
			return err
		}
	}
	return nil
}

// registry puts copies in place of records that are lost or cannot be read. Those are read before the bucket is made:
// one that stayed empty would say that there are no pipelines.
func (f *fixer) registry(ctx context.Context) error {
	if f.p.exam.Fresh {
		return nil
	}
	source := registry.RecordSource()
	copies, err := spare.New(f.js, f.replicas).All(ctx, source.Prefix)
	if err != nil {
		return err
	}
	f.pipes, err = f.open(ctx, f.p.registry.Missing && !f.p.registry.Fresh, registry.BucketConfig(f.replicas))
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil // nothing was registered
	}
	if err != nil {
		return err
	}
	for _, key := range f.p.registry.Lost {
		if err := f.fromCopy(ctx, source, key, copies[key]); err != nil {
			return err
		}
	}
	for _, bad := range slices.Clone(f.p.registry.Bad) {
		data, from := copies[bad.Key], "its copy"
		if source.Check(bad.Key, data) != nil {
			data, from = f.before(ctx, source, bad.Key), "what it was before"
		}
		if data == nil {
			if err := f.remove(ctx, f.pipes, bad.Key, "and has no copy; declare the pipeline again with millrace apply"); err != nil {
				return err
			}
			continue
		}
		if _, err := f.put(ctx, f.pipes, bad.Key, data, fmt.Sprintf("repaired record %s, from %s", bad.Key, from)); err != nil {
			return err
		}
	}
	return nil
}

func (f *fixer) fromCopy(ctx context.Context, source spare.Source, key string, data []byte) error {
	if err := source.Check(key, data); err != nil {
		f.say("left record %s out: its copy cannot be read (%v); declare the pipeline again with millrace apply", key, err)
		return nil
	}
	_, err := f.put(ctx, f.pipes, key, data, fmt.Sprintf("entered record %s, from its copy", key))
	return err
}

// before returns the newest earlier revision of a record that can be read; nil if there is none.
// The bucket keeps the last five (registry.BucketConfig).
func (f *fixer) before(ctx context.Context, source spare.Source, key string) []byte {
	history, err := f.pipes.History(ctx, key)
	if err != nil {
		return nil
	}
	for _, entry := range slices.Backward(history) {
		if entry.Operation() == jetstream.KeyValuePut && source.Check(key, entry.Value()) == nil {
			return entry.Value()
		}
	}
	return nil
}

// upkeep labels logs, adds replicas and makes copies, as a store does. What it
// cannot do is among the findings, or done by a store.
func (f *fixer) upkeep(ctx context.Context) error {
	catalog, err := store.OpenCatalog(ctx, f.js, store.CatalogConfig{Replicas: f.replicas, Log: f.cfg.Log})
	if err != nil || f.catalog == nil {
		return nil //nolint:nilerr // the findings tell what keeps it from being opened
	}
	wish := f.cfg.Wish
	wish.Replicas = max(wish.Replicas, 1)
	keeper := upkeep.NewKeeper(f.js, catalog, upkeep.Config{
		Wish: wish, Copies: []spare.Source{store.DatabaseRecords(), registry.RecordSource()}, Logger: slog.New(slog.DiscardHandler),
		LeftMin: -1, // there is one pass, and who asked for it was told what is of no use
	})
	report, err := keeper.Pass(ctx)
	if report != nil {
		for _, log := range report.Removed {
			f.say("log %s is removed: it was made for a container while that was deleted", log)
		}
		for _, name := range report.Deleted {
			f.say("container %s is deleted: somebody had begun to, and was cut off", name)
		}
	}
	if err != nil {
		f.say("not all logs and copies could be brought to what they are to be: %v", err)
	}
	return nil
}
