package users

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/leases/bucket"
	"github.com/millrace/millrace/store/naming"
	"github.com/millrace/millrace/store/rid"
)

// Bucket is the name of the bucket of all users.
const Bucket = "millrace_users"

// ErrNotFound says that there is no such user.
var ErrNotFound = errors.New("there is no such user")

// ErrChanged says that a user is not as it was seen.
var ErrChanged = errors.New("the user was changed meanwhile; read it again")

// TakenError says that a name or resource is another's already.
type TakenError struct{ Reason string }

func (e *TakenError) Error() string { return e.Reason }

// FullError says that as many are there as are allowed.
type FullError struct{ Reason string }

func (e *FullError) Error() string { return e.Reason }

// Book is all users of a NATS system. Safe for concurrent use.
type Book struct {
	js       jetstream.JetStream
	replicas int

	mu     sync.Mutex
	bucket *bucket.Bucket // nil until it was found
	kv     jetstream.KeyValue
}

// New returns the users in a NATS system. Their bucket is made with the first of them.
func New(js jetstream.JetStream, replicas int) *Book {
	return &Book{js: js, replicas: max(replicas, 1)}
}

// open returns the bucket; the error is jetstream.ErrBucketNotFound where there is none and none is to be made.
func (b *Book) open(ctx context.Context, create bool) (*bucket.Bucket, jetstream.KeyValue, error) {
	b.mu.Lock()
	known, kv := b.bucket, b.kv
	b.mu.Unlock()
	if known != nil {
		return known, kv, nil
	}
	if create {
		if _, err := bucket.Open(ctx, b.js, Bucket, "Millrace: users and their permissions", b.replicas); err != nil {
			return nil, nil, err
		}
	}
	kv, err := b.js.KeyValue(ctx, Bucket)
	if err != nil {
		return nil, nil, fmt.Errorf("open bucket %s: %w", Bucket, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bucket, b.kv = bucket.Of(b.js, kv), kv
	return b.bucket, b.kv, nil
}

func key(database, name string) string { return naming.Token(database) + "." + naming.Token(name) }

// Lookup returns a user as the leader of the bucket knows it, or ErrNotFound: also one whose database was deleted,
// where that was cut short. A leader that was cut off from the others may not know yet that it leads no more.
func (b *Book) Lookup(ctx context.Context, database, name string) (User, error) {
	kv, _, err := b.open(ctx, false)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return User{}, ErrNotFound
	}
	if err != nil {
		return User{}, err
	}
	entry, err := kv.Get(ctx, key(database, name))
	if errors.Is(err, bucket.ErrNotFound) {
		return User{}, ErrNotFound
	}
	if err != nil {
		return User{}, fmt.Errorf("read user %s of database %s: %w", name, database, err)
	}
	return decode(entry.Key, entry.Value, entry.Revision)
}

// Get returns a user of a database, or ErrNotFound.
func (b *Book) Get(ctx context.Context, database string, of rid.Database, name string) (User, error) {
	u, err := b.Lookup(ctx, database, name)
	if err == nil && u.DatabaseRID != of.String() {
		return User{}, ErrNotFound
	}
	return u, err
}

func decode(at string, value []byte, revision uint64) (User, error) {
	var u User
	err := json.Unmarshal(value, &u)
	if err == nil && key(u.Database, u.Name) != at {
		err = fmt.Errorf("it is that of user %q of database %q", u.Name, u.Database)
	}
	if err != nil {
		return User{}, fmt.Errorf("record %s of bucket %s cannot be read: %w", at, Bucket, err)
	}
	u.revision = revision
	return u, nil
}

// List returns the users of a database by name.
func (b *Book) List(ctx context.Context, database string, of rid.Database) ([]User, error) {
	_, kv, err := b.open(ctx, false)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := bucket.Entries(ctx, b.js, kv, naming.Token(database)+".*")
	if err != nil {
		return nil, fmt.Errorf("list the users of database %s: %w", database, err)
	}
	var all []User
	for _, e := range entries {
		u, err := decode(e.Key(), e.Value(), e.Revision())
		if err != nil {
			return nil, err
		}
		if u.DatabaseRID == of.String() {
			all = append(all, u)
		}
	}
	slices.SortFunc(all, func(a, b User) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Create makes a user of a database, or returns *TakenError or *FullError.
func (b *Book) Create(ctx context.Context, database string, of rid.Database, name string) (User, error) {
	if _, _, err := b.open(ctx, true); err != nil {
		return User{}, err
	}
	keys, err := bucket.Keys(ctx, b.js, Bucket, naming.Token(database)+".*")
	if err != nil {
		return User{}, err
	}
	if len(keys) >= Max {
		return User{}, &FullError{fmt.Sprintf("database %s has %d users, which is as many as are allowed", database, Max)}
	}
	u := User{
		Database: database, DatabaseRID: of.String(), Name: name, RID: rid.NewUser(of).String(), Tag: newTag(), Modified: now(),
	}
	return u, b.add(ctx, &u)
}

// add writes the record of a user whose name is free, or is that of a user whose database has gone.
func (b *Book) add(ctx context.Context, u *User) error {
	taken := &TakenError{fmt.Sprintf("database %s has a user %s already", u.Database, u.Name)}
	there, err := b.Lookup(ctx, u.Database, u.Name)
	switch {
	case err == nil && there.DatabaseRID == u.DatabaseRID:
		return taken
	case err != nil && !errors.Is(err, ErrNotFound):
		return err
	}
	u.revision = there.revision
	if err := b.write(ctx, u); !errors.Is(err, bucket.ErrMismatch) {
		return err
	}
	return taken
}

// write writes the record of a user that has not changed since it was read; else the error is bucket.ErrMismatch.
func (b *Book) write(ctx context.Context, u *User) error {
	kv, _, err := b.open(ctx, false)
	if err != nil {
		return err
	}
	value, err := json.Marshal(u)
	if err != nil {
		return fmt.Errorf("user %s: %w", u.Name, err)
	}
	if len(value) > recordBytesMax {
		return &FullError{fmt.Sprintf("the permissions of user %s have %d bytes; at most %d are allowed", u.Name, len(value), recordBytesMax)}
	}
	revision, err := kv.Put(ctx, key(u.Database, u.Name), value, u.revision)
	if err != nil {
		return fmt.Errorf("write user %s of database %s: %w", u.Name, u.Database, err)
	}
	u.revision = revision
	return nil
}

// Change changes the permissions of a user by what change does with its record, which it may call again. The error is
// ErrNotFound if there is no such user, or that of change, and then nothing is changed.
func (b *Book) Change(ctx context.Context, database string, of rid.Database, name string, change func(*User) error) error {
	for {
		u, err := b.Get(ctx, database, of, name)
		if err != nil {
			return err
		}
		if err := change(&u); err != nil {
			return err
		}
		if err := b.write(ctx, &u); !errors.Is(err, bucket.ErrMismatch) {
			return err
		}
	}
}

// Rename gives a user another name, or returns *TakenError, or ErrChanged if it is not as it was seen. Its permissions
// stay, and the tokens that were given open nothing any more, because they name the user. Cut short, it may leave the
// user under both names.
func (b *Book) Rename(ctx context.Context, seen *User, name string) (User, error) {
	u := *seen
	u.Tag, u.Modified = newTag(), now()
	if name == seen.Name {
		err := b.write(ctx, &u)
		if errors.Is(err, bucket.ErrMismatch) {
			err = ErrChanged
		}
		return u, err
	}
	u.Name = name
	if err := b.add(ctx, &u); err != nil {
		return u, err
	}
	if err := b.Delete(ctx, seen); err != nil {
		return u, errors.Join(err, b.Delete(ctx, &u))
	}
	return u, nil
}

// Delete removes a user with its permissions, or returns ErrChanged if it is not as it was seen.
func (b *Book) Delete(ctx context.Context, seen *User) error {
	kv, _, err := b.open(ctx, false)
	if err != nil {
		return err
	}
	err = kv.Delete(ctx, key(seen.Database, seen.Name), seen.revision)
	if errors.Is(err, bucket.ErrMismatch) {
		return ErrChanged
	}
	return err
}

// RemoveAll removes the users of a database that is deleted.
func (b *Book) RemoveAll(ctx context.Context, database string, of rid.Database) error {
	for {
		all, err := b.List(ctx, database, of)
		if err != nil || len(all) == 0 {
			return err
		}
		for i := range all {
			if err := b.Delete(ctx, &all[i]); err != nil && !errors.Is(err, ErrChanged) { // one that has changed is in the next list
				return err
			}
		}
	}
}
