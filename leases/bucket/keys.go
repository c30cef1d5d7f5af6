// Package bucket adds to JetStream's key-value buckets what their client does not promise: a
// list of keys that lacks none, reads that a lagging replica cannot mislead, and a watch of all
// values together.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Keys returns the keys of a bucket that match a pattern, such as "lease.>", in order. Deleted
// keys may be among them; reading one gives jetstream.ErrKeyNotFound. The error is
// jetstream.ErrBucketNotFound if there is no such bucket.
//
// jetstream.KeyValue.Keys, and the first values of a watch, may lack a key that is written
// at that moment. A watch goes through the bucket in the order of the last writes up to the
// end that it was given, and a key that is written again moves behind that end:
//
//	revisions  4:a 5:b 6:c     the watch begins, its end is 6
//	           5:b 6:c 7:a     a is written: the watch delivers b and c
//
// Keys asks the stream, which knows all its subjects at one moment.
func Keys(ctx context.Context, js jetstream.JetStream, bucket, pattern string) ([]string, error) {
	stream, err := js.Stream(ctx, "KV_"+bucket)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("keys of %s: %w", bucket, jetstream.ErrBucketNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("keys of %s: %w", bucket, err)
	}
	prefix := "$KV." + bucket + "."
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(prefix+pattern))
	if err != nil {
		return nil, fmt.Errorf("keys of %s: %w", bucket, err)
	}
	keys := slices.Sorted(maps.Keys(info.State.Subjects))
	for i, subject := range keys {
		keys[i] = strings.TrimPrefix(subject, prefix)
	}
	return keys, nil
}

// Entries returns the entries of the keys of kv that match a pattern. Each is as of the moment
// when it is read, so they are no snapshot.
func Entries(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, pattern string) ([]jetstream.KeyValueEntry, error) {
	keys, err := Keys(ctx, js, kv.Bucket(), pattern)
	if err != nil {
		return nil, err
	}
	entries := make([]jetstream.KeyValueEntry, 0, len(keys))
	for _, key := range keys {
		e, err := Get(ctx, js, kv, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) { // ErrKeyDeleted too
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", key, kv.Bucket(), err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}
