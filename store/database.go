package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases/bucket"
	"github.com/millrace/millrace/store/featurelevel"
	"github.com/millrace/millrace/store/naming"
	"github.com/millrace/millrace/store/rid"
	"github.com/millrace/millrace/store/users"
)

// DatabaseInfo is a database as the catalog holds it. A database is there if it
// was created, or if it has a container: a declaration makes containers in
// databases that nobody created.
type DatabaseInfo struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	// GivenRID is the text of RID where a database has one of its own: those that
	// were created below featurelevel.GivesRIDs, and those that containers imply, have none.
	GivenRID string `json:"rid,omitempty"`
	// Policies are what a client of the Azure Cosmos DB protocol declared, such as its
	// throughput, as JSON that the store does not look at. May be empty.
	Policies json.RawMessage `json:"policies,omitempty"`
	// Revision is the catalog's version of the record; 0 if the database has
	// none and is there because of its containers.
	Revision uint64 `json:"-"`
}

// NoDatabaseError says that a database is neither created nor has a container.
type NoDatabaseError struct{ Name string }

func (e *NoDatabaseError) Error() string { return fmt.Sprintf("database %s does not exist", e.Name) }

// Is matches ErrNotFound.
func (e *NoDatabaseError) Is(target error) bool { return target == error(ErrNotFound) }

// Users returns the users of all databases.
func (c *Catalog) Users() *users.Book { return users.New(c.js, c.cfg.Replicas) }

const databasePrefix = "database."

func databaseKey(name string) string { return databasePrefix + naming.Token(name) }

// AdmitNames refuses names that a process of an earlier release cannot read, as long as there may be one; without a
// catalog nobody knows that there is none.
func AdmitNames(ctx context.Context, js jetstream.JetStream, names ...string) error {
	i := slices.IndexFunc(names, func(name string) bool { return !naming.IsPlain(name) })
	if i < 0 {
		return nil
	}
	level, err := featurelevel.Read(ctx, js)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		level, err = 1, nil
	}
	if err != nil || level >= featurelevel.WideNames {
		return err
	}
	return Refuse(StatusBadRequest, "name %q: the data has feature level %d, and other names than of 1 to 63 letters, digits, - and _ are taken from %d on: millrace upgrade --finish, when no process of an earlier release is left",
		names[i], level, featurelevel.WideNames)
}

// SystemDatabase holds what Millrace keeps for itself as items, such as the dead
// letters. Applications may read it; the gateway writes nothing there.
const SystemDatabase = "system"

// CreateDatabase records a database; 409 if it is there.
func (c *Catalog) CreateDatabase(ctx context.Context, name string) (DatabaseInfo, error) {
	return c.CreateDatabaseWith(ctx, name, nil)
}

// CreateDatabaseWith is CreateDatabase with the policies of the database.
func (c *Catalog) CreateDatabaseWith(ctx context.Context, name string, policies json.RawMessage) (DatabaseInfo, error) {
	if err := CheckDatabaseName(name); err != nil {
		return DatabaseInfo{}, err
	}
	if err := AdmitNames(ctx, c.js, name); err != nil {
		return DatabaseInfo{}, err
	}
	exists := Refuse(StatusConflict, "database %s exists already", name)
	if _, err := c.Database(ctx, name); !errors.Is(err, ErrNotFound) {
		if err == nil {
			err = exists
		}
		return DatabaseInfo{}, err
	}
	info := DatabaseInfo{Name: name, Created: time.Now().UTC(), Policies: policies}
	var err error
	if info.GivenRID, err = c.newDatabaseRID(ctx); err != nil {
		return info, err
	}
	data, err := json.Marshal(info)
	if err != nil {
		return info, fmt.Errorf("database %s: %w", name, err)
	}
	info.Revision, err = c.kv.Create(ctx, databaseKey(name), data)
	if errors.Is(err, jetstream.ErrKeyExists) {
		return info, exists
	}
	if err != nil {
		return info, fmt.Errorf("create database %s: %w", name, err)
	}
	c.copy(ctx, name)
	return info, nil
}

// newDatabaseRID returns the text of a resource id that no database has. A database that is
// deleted and made again has another, so a link to the one before does not lead to it. It is ""
// as long as processes of earlier releases may share the data: they drop the resource ids of
// containers where they write their records again.
func (c *Catalog) newDatabaseRID(ctx context.Context) (string, error) {
	if level, err := featurelevel.Read(ctx, c.js); err != nil || level < featurelevel.GivesRIDs {
		return "", err
	}
	all, err := c.Databases(ctx)
	if err != nil {
		return "", err
	}
	for {
		var drawn rid.Database
		rand.Read(drawn[:]) // never returns an error since Go 1.24
		if drawn != (rid.Database{}) && !slices.ContainsFunc(all, func(i DatabaseInfo) bool { return i.RID() == drawn }) {
			return drawn.String(), nil
		}
	}
}

// copy keeps the second copy of a database's record. One that cannot be written now
// is written by a store before long.
func (c *Catalog) copy(ctx context.Context, name string) {
	_ = c.copies.Keep(ctx, DatabaseRecords(), databaseKey(name))
}

// Database returns a database, or *NoDatabaseError.
func (c *Catalog) Database(ctx context.Context, name string) (DatabaseInfo, error) {
	if CheckDatabaseName(name) != nil {
		return DatabaseInfo{}, &NoDatabaseError{name}
	}
	entry, err := c.kv.Get(ctx, databaseKey(name))
	if err == nil {
		return decodeDatabase(entry)
	}
	if !errors.Is(err, jetstream.ErrKeyNotFound) {
		if damage := c.Sound(ctx); damage != nil {
			return DatabaseInfo{}, damage
		}
		return DatabaseInfo{}, fmt.Errorf("read database %s from the catalog: %w", name, err)
	}
	containers, err := c.List(ctx)
	if err != nil {
		return DatabaseInfo{}, err
	}
	if info, ok := implied(containers)[name]; ok {
		return info, nil
	}
	return DatabaseInfo{}, c.absent(ctx, &NoDatabaseError{name})
}

// Databases returns all databases, ordered by name.
func (c *Catalog) Databases(ctx context.Context) ([]DatabaseInfo, error) {
	containers, err := c.List(ctx)
	if err != nil {
		return nil, err
	}
	all := implied(containers)
	entries, err := bucket.Entries(ctx, c.js, c.kv, databasePrefix+">")
	if err != nil {
		return nil, fmt.Errorf("list the catalog: %w", err)
	}
	for _, entry := range entries {
		info, err := decodeDatabase(entry)
		if err != nil {
			return nil, err
		}
		all[info.Name] = info
	}
	infos := make([]DatabaseInfo, 0, len(all))
	for _, info := range all {
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b DatabaseInfo) int { return strings.Compare(a.Name, b.Name) })
	return infos, nil
}

// implied returns the databases that containers are in, as old as their oldest.
func implied(containers []ContainerInfo) map[string]DatabaseInfo {
	all := map[string]DatabaseInfo{}
	for i := range containers {
		name, created := containers[i].Database, containers[i].Created
		if info, ok := all[name]; !ok || created.Before(info.Created) {
			all[name] = DatabaseInfo{Name: name, Created: created, GivenRID: containers[i].RID().Database().String()}
		}
	}
	return all
}

func decodeDatabase(entry jetstream.KeyValueEntry) (DatabaseInfo, error) {
	info, err := readDatabase(entry)
	if err != nil {
		return DatabaseInfo{}, badRecord(entry.Key(), err)
	}
	return info, nil
}

func readDatabase(entry jetstream.KeyValueEntry) (DatabaseInfo, error) {
	var info DatabaseInfo
	err := json.Unmarshal(entry.Value(), &info)
	if err == nil && databaseKey(info.Name) != entry.Key() {
		err = fmt.Errorf("it is that of %q", info.Name)
	}
	info.Revision = entry.Revision()
	return info, err
}

// Delete removes a container, its items and its logs. It may be called again
// after a crash. An error that says so, ErrUnknown, leaves a container that is being
// deleted: a Keeper goes on with it.
func (c *Catalog) Delete(ctx context.Context, database, name string) error {
	return c.deleteOnly(ctx, database, name, "")
}

// DeleteSeen is Delete of the container that was seen, and of no other: one that was made anew under its
// name since stays, and the error is *NoContainerError.
func (c *Catalog) DeleteSeen(ctx context.Context, seen *ContainerInfo) error {
	return c.deleteOnly(ctx, seen.Database, seen.Name, seen.ID)
}

func (c *Catalog) deleteOnly(ctx context.Context, database, name string, id feed.ResourceID) error {
	begun, err := c.delete(ctx, database, name, id)
	if err != nil && begun {
		return goesOn("container "+database+"/"+name, err)
	}
	return err
}

// goesOn returns the error of a deletion that has changed something. It does not wrap err: a
// refusal in it would say that nothing was changed.
func goesOn(what string, err error) error {
	return fmt.Errorf("delete %s, which goes on: %w: %s", what, ErrUnknown, err.Error())
}

// delete deletes the container of an id, or, without one, whichever has the name. begun says that the
// container's record says already that it is being deleted.
func (c *Catalog) delete(ctx context.Context, database, name string, id feed.ResourceID) (begun bool, err error) {
	anew := error(Refuse(StatusConflict, "container %s/%s was made anew meanwhile; try again", database, name))
	if id != "" {
		anew = &NoContainerError{database, name}
	}
	for {
		info, err := c.Get(ctx, database, name)
		gone := isAbsent(err) || err == nil && info.ID != id
		switch {
		case begun && gone:
			return true, nil // another Delete was faster
		case id != "" && gone:
			return false, &NoContainerError{database, name}
		case err == nil && info.State != ContainerDeleting:
			id = info.ID
			info, err = c.modify(ctx, database, name, func(i *ContainerInfo) error {
				if i.ID != id {
					return anew
				}
				i.State = ContainerDeleting
				return nil
			})
		}
		if err != nil {
			return begun, err
		}
		id, begun = info.ID, true
		if removed, err := c.FinishDelete(ctx, &info); removed || err != nil {
			return true, err
		}
	}
}

// FinishDelete ends a deletion that was begun, of the container whose record was read: it removes what is left of
// its logs, and the record. Where the record has changed since, it leaves that, and removed is false: somebody
// has changed another thing of it, or the container has gone, and its name may be another's.
func (c *Catalog) FinishDelete(ctx context.Context, info *ContainerInfo) (removed bool, err error) {
	// The record goes last: a crash before leaves a container that is being deleted, and
	// another Delete goes on with it, or a Keeper of package upkeep.
	if err := c.deleteLogs(ctx, info); err != nil {
		return false, err
	}
	err = c.kv.Delete(ctx, CatalogKey(info.Database, info.Name), jetstream.LastRevision(info.Revision))
	if err != nil && !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return false, fmt.Errorf("remove container %s/%s from the catalog: %w", info.Database, info.Name, err)
	}
	return err == nil, nil
}

// removeUnnamed removes the logs of a container that was deleted while they were made: whoever deleted
// it saw those alone that were there, and one that no record names damages the catalog. Ids are
// not used again, so no other container has such a log.
func (c *Catalog) removeUnnamed(ctx context.Context, info *ContainerInfo) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unnamedMax) // the maker may have gone
	defer cancel()
	// Not by Get: to it a log without a name is a damage, where no record is.
	entry, err := c.newest(ctx, info.Database, info.Name)
	if err == nil {
		now, err := decodeContainer(entry)
		if err != nil || now.ID == info.ID && now.State != ContainerDeleting {
			return err
		}
	} else if !isAbsent(err) {
		return err
	}
	return c.deleteLogs(ctx, info)
}

// unnamedMax bounds the removal of logs whose container was deleted while it was made.
const unnamedMax = 10 * time.Second

func (c *Catalog) deleteLogs(ctx context.Context, info *ContainerInfo) error {
	for _, p := range info.Named() {
		if err := feed.DeleteLog(ctx, c.js, feed.Partition{Container: info.ID, Number: p.Number}); err != nil {
			return fmt.Errorf("delete the log of %s/%d: %w", info.ID, p.Number, err)
		}
	}
	return nil
}

// Unanswered reports whether an error says that nobody has done what NATS was asked for: nobody
// listens, or JetStream has no leader for it now. Behind a timeout it may have been done, so that
// is none.
func Unanswered(err error) bool {
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) {
		return true
	}
	const unavailable = 503 // no server, no leader or no place for the request
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.Code == unavailable
}

func isAbsent(err error) bool {
	_, absent := errors.AsType[*NoContainerError](err)
	return absent
}

// DeleteDatabase removes a database with all its containers, or returns
// *NoDatabaseError. It may be called again after a crash; what is left meanwhile
// is a database with fewer containers, of which ErrUnknown tells.
func (c *Catalog) DeleteDatabase(ctx context.Context, name string) error {
	seen, err := c.Database(ctx, name)
	if err != nil {
		return err
	}
	return c.DeleteDatabaseSeen(ctx, &seen)
}

// DeleteDatabaseSeen is DeleteDatabase of the database that was seen, by its resource id, and of no other:
// one that was created anew under its name since stays, with its containers, and the error is *NoDatabaseError.
func (c *Catalog) DeleteDatabaseSeen(ctx context.Context, seen *DatabaseInfo) error {
	// The list comes first: where the database is the same behind it, the containers of its name in it are its own.
	containers, err := c.List(ctx)
	if err != nil {
		return err
	}
	now, err := c.Database(ctx, seen.Name)
	if err != nil {
		return err
	}
	if now.RID() != seen.RID() {
		return &NoDatabaseError{seen.Name}
	}
	begun := false
	for i := range containers {
		if containers[i].Database != seen.Name {
			continue
		}
		if err := c.DeleteSeen(ctx, &containers[i]); err != nil && !errors.Is(err, ErrNotFound) {
			if begun && !errors.Is(err, ErrUnknown) {
				return goesOn("database "+seen.Name, err)
			}
			return err
		}
		begun = true
	}
	// Behind the containers, for a refusal above must leave them, and before the record, which goes last.
	if err := c.Users().RemoveAll(ctx, seen.Name, seen.RID()); err != nil {
		return goesOn("the users of database "+seen.Name, err)
	}
	if now.Revision == 0 {
		return nil // its containers were all that there was of it
	}
	if err := c.removeDatabase(ctx, &now); err != nil {
		if begun {
			return goesOn("database "+seen.Name, err)
		}
		return err
	}
	return nil
}

// removeDatabase removes the record of a database. One that is another's by now stays: the record
// of this one has gone already.
func (c *Catalog) removeDatabase(ctx context.Context, seen *DatabaseInfo) error {
	for now := *seen; ; {
		err := c.kv.Delete(ctx, databaseKey(seen.Name), jetstream.LastRevision(now.Revision))
		if err == nil {
			c.copy(ctx, seen.Name)
			return nil
		}
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return fmt.Errorf("remove database %s from the catalog: %w", seen.Name, err)
		}
		now, err = c.Database(ctx, seen.Name)
		if errors.Is(err, ErrNotFound) || err == nil && (now.Revision == 0 || now.RID() != seen.RID()) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// SetDatabasePolicies records policies of a database. It is *NoDatabaseError if that has no record, 409 if the
// record has changed since the database was seen.
func (c *Catalog) SetDatabasePolicies(ctx context.Context, seen *DatabaseInfo, policies json.RawMessage) (DatabaseInfo, error) {
	info := *seen
	if info.Revision == 0 { // Update would make a record
		return info, &NoDatabaseError{info.Name}
	}
	info.Policies = policies
	data, err := json.Marshal(info)
	if err != nil {
		return info, fmt.Errorf("database %s: %w", info.Name, err)
	}
	info.Revision, err = c.kv.Update(ctx, databaseKey(info.Name), data, seen.Revision)
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return info, Refuse(StatusConflict, "database %s was changed meanwhile; read it again", info.Name)
	}
	if err != nil {
		return info, fmt.Errorf("change database %s: %w", info.Name, err)
	}
	c.copy(ctx, info.Name)
	return info, nil
}

// SetPolicies records what the maker of a container declared beyond its spec, as
// JSON that the store does not look at. It is 409 if another has recorded theirs
// since the container was seen at revision.
func (c *Catalog) SetPolicies(ctx context.Context, seen *ContainerInfo, policies json.RawMessage) (ContainerInfo, error) {
	return c.modify(ctx, seen.Database, seen.Name, func(i *ContainerInfo) error {
		if i.ID != seen.ID || i.State != ContainerReady || string(i.Policies) != string(seen.Policies) {
			return Refuse(StatusConflict, "container %s/%s was changed meanwhile; read it again", seen.Database, seen.Name)
		}
		i.Policies = policies
		return nil
	})
}

// RID returns the resource id of the database in the Azure Cosmos DB protocol. One that is
// deleted and created again has another.
func (i *DatabaseInfo) RID() rid.Database {
	if given, err := rid.ParseDatabase(i.GivenRID); err == nil {
		return given
	}
	return rid.ImpliedDatabase(i.Name)
}

// giveRID gives a container that is made a resource id, if its database has one of its own.
func (c *Catalog) giveRID(ctx context.Context, info *ContainerInfo) error {
	entry, err := c.kv.Get(ctx, databaseKey(info.Database))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read database %s from the catalog: %w", info.Database, err)
	}
	database, err := decodeDatabase(entry)
	if err != nil {
		return err
	}
	if database.GivenRID != "" {
		info.GivenRID = rid.NewContainer(database.RID(), info.ID).String()
	}
	return nil
}
