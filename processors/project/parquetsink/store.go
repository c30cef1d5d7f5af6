package parquetsink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"syscall"
	"time"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/s3"
)

// ObjectStore keeps objects by name. Names are paths with slashes. Every method is
// safe for concurrent use, by several processes too.
type ObjectStore interface {
	// Get returns an object; the error is fs.ErrNotExist if there is none.
	Get(ctx context.Context, name string) ([]byte, error)
	// Put makes or replaces an object in one step. It is durable when Put returns.
	Put(ctx context.Context, name string, data []byte) error
	// PutExclusive makes an object, durably and in one step; the error is fs.ErrExist
	// if there is one already. Of several at once one succeeds.
	PutExclusive(ctx context.Context, name string, data []byte) error
	// List yields the objects whose names begin with prefix, which is empty or ends
	// with a slash, and come after the name after, in the order of their names. It
	// sees everything that was made before it began.
	List(ctx context.Context, prefix, after string) iter.Seq2[Object, error]
	// Delete removes objects. One that is not there is no error.
	Delete(ctx context.Context, names ...string) error
}

// Object is one object in a list.
type Object struct {
	Name string
	// Modified is when it was made or replaced, on the store's clock.
	Modified time.Time
}

// Bucket returns the store in a bucket. The server must honour If-None-Match: * on PUT, as
// AWS, MinIO and R2 do; a Sink finds out and refuses one that does not.
func Bucket(b *s3.Bucket) ObjectStore { return bucket{b} }

type bucket struct{ *s3.Bucket }

func (b bucket) List(ctx context.Context, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for o, err := range b.Bucket.List(ctx, prefix, after) {
			if !yield(Object{Name: o.Name, Modified: o.Modified}, err) {
				return
			}
		}
	}
}

// tidier is a store in which crashes and earlier releases leave what is no object.
type tidier interface {
	// Tidy removes what crashes have left, once grace has passed.
	Tidy(ctx context.Context, grace time.Duration) error
	// RemoveViews removes the hard links by which earlier releases showed the live files. It
	// says whether there were any.
	RemoveViews(ctx context.Context) (bool, error)
}

// unreachable marks an error of a store so that it is tried again without end: no
// row is at fault. An error of a context that has ended is not marked.
func unreachable(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrDiskFull):
		return fmt.Errorf("%s: %w", what, err)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%s: %w: %w", what, err, store.ErrDiskFull)
	}
	return fmt.Errorf("%s: %w: %w", what, err, store.ErrUnavailable)
}

// missing and exists recognize the two answers of a store that are not failures.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
func exists(err error) bool  { return errors.Is(err, fs.ErrExist) }
