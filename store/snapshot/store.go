package snapshot

import (
	"context"
	"errors"
)

// Store is where snapshots lie. Names are paths with slashes, as FORMAT.md has them.
type Store interface {
	// Put makes an object, whole and durable or not at all.
	Put(ctx context.Context, name string, data []byte) error
	// Get returns an object. The error is ErrNotFound if it is not there.
	Get(ctx context.Context, name string) ([]byte, error)
	// List returns the names below a prefix that ends with a slash: those of objects, and
	// those of further levels, which end with a slash, as they follow the prefix.
	List(ctx context.Context, prefix string) ([]string, error)
	// Remove removes an object, or all below a name that ends with a slash. What is not
	// there is no error.
	Remove(ctx context.Context, name string) error
	// Look is Get of an object that changes, such as the pointer, with its revision: none if
	// it is not there, or if the store does not compare.
	Look(ctx context.Context, name string) (data []byte, revision Revision, err error)
	// Replace gives an object that changes new content: who gets it sees the old or the new.
	// A store that compares refuses with ErrChanged where the object has another revision
	// than was seen. After another error it may have been replaced.
	Replace(ctx context.Context, name string, data []byte, seen Revision) error
	// String tells an operator where it is.
	String() string
}

// Revision tells one content of an object that changes from the next; the zero one is none.
// Two contents that are equal may have the same: who decided by the one has seen the other.
type Revision string

// ErrNotFound says that an object is not there.
var ErrNotFound = errors.New("snapshot: not found")

// ErrChanged says that an object has another revision than was seen.
var ErrChanged = errors.New("it was changed meanwhile")
