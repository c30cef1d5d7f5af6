package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"

	"github.com/millrace/millrace/store/s3"
)

// bucket is a Store in a bucket. All stores of a cluster find in it what any of them wrote.
type bucket struct {
	*s3.Bucket
	// proven is set when the server has refused to replace what it should not. One that
	// does not compare would let a late owner put an older snapshot in the pointer's place.
	proven atomic.Bool
}

// Bucket returns the store in a bucket. The server must honour If-None-Match and If-Match on
// PUT, as AWS, MinIO and R2 do: Replace finds out, and refuses one that does not.
func Bucket(b *s3.Bucket) Store { return &bucket{Bucket: b} }

func (b *bucket) Get(ctx context.Context, name string) ([]byte, error) {
	data, err := b.Bucket.Get(ctx, name)
	return data, notFound(name, err)
}

func notFound(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s: %w", ErrNotFound, name, err)
	}
	return err
}

func (b *bucket) Look(ctx context.Context, name string) ([]byte, Revision, error) {
	data, etag, err := b.Bucket.Look(ctx, name)
	return data, Revision(etag), notFound(name, err)
}

func (b *bucket) Replace(ctx context.Context, name string, data []byte, seen Revision) error {
	var err error
	if seen == "" {
		err = b.PutExclusive(ctx, name, data)
	} else {
		err = b.PutMatching(ctx, name, data, string(seen))
	}
	if errors.Is(err, s3.ErrChanged) || errors.Is(err, fs.ErrExist) {
		// It may be what was written here, by a request that was sent again because its answer
		// was lost.
		if there, lookErr := b.Get(ctx, name); lookErr != nil || string(there) != string(data) {
			return errors.Join(fmt.Errorf("%w: %w", ErrChanged, err), lookErr)
		}
		err = nil
	}
	if err != nil || b.proven.Load() {
		return err
	}
	if err := b.Prove(ctx, name, data); err != nil {
		return err
	}
	b.proven.Store(true)
	return nil
}

func (b *bucket) List(ctx context.Context, prefix string) ([]string, error) {
	return b.Names(ctx, prefix)
}

func (b *bucket) Remove(ctx context.Context, name string) error {
	if !strings.HasSuffix(name, "/") {
		return b.Delete(ctx, name)
	}
	// All are listed before any is removed: a server need not continue a list whose objects
	// go meanwhile.
	var all []string
	for o, err := range b.Bucket.List(ctx, name, "") {
		if err != nil {
			return err
		}
		all = append(all, o.Name)
	}
	if len(all) == 0 {
		return nil
	}
	return b.Delete(ctx, all...)
}
