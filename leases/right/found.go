package right

import (
	"context"
	"errors"

	"github.com/millrace/millrace/leases/bucket"
)

// found is a key as it was read, or delivered by a watch.
type found struct {
	bucket.Entry
	rec *record // nil: there is none, or it cannot be read
	err error   // why it cannot be read
}

func (f *found) missing() bool { return f.rec == nil && f.err == nil }

// read decodes an entry.
func read(e bucket.Entry) *found {
	f := &found{Entry: e}
	if !e.Deleted {
		f.rec, f.err = decode(e.Key, e.Value)
	}
	return f
}

// look reads a key. It is missing if the bucket says so.
func look(ctx context.Context, s bucket.Store, key string) (*found, error) {
	e, err := s.Get(ctx, key)
	if errors.Is(err, bucket.ErrNotFound) {
		return &found{Entry: bucket.Entry{Key: key, Deleted: true}}, nil
	}
	if err != nil {
		return nil, err
	}
	e.Key = key
	return read(e), nil
}
