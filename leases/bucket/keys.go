// Package bucket adds to JetStream's key-value buckets what their client does not promise: a
// list of keys that lacks none, reads that a lagging replica cannot mislead, and a watch of all
// values together.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package bucket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
// Keys asks the stream, which knows all its subjects at one moment. A request that gets no answer is
// made again until ctx ends, for 15 s if ctx has no deadline.
func Keys(ctx context.Context, js jetstream.JetStream, bucket, pattern string) ([]string, error) {
	prefix := "$KV." + bucket + "."
	var keys []string
	for {
		page, err := ask(ctx, func(ctx context.Context) (*subjectsPage, bool, error) {
			try, cancel := context.WithTimeout(ctx, pageTimeout)
			defer cancel()
			page, err := pageOfSubjects(try, js, "KV_"+bucket, prefix+pattern, len(keys))
			return page, isSilence(err) && ctx.Err() == nil, err
		})
		if err != nil {
			return nil, fmt.Errorf("keys of %s: %w", bucket, err)
		}
		for subject := range page.State.Subjects {
			keys = append(keys, strings.TrimPrefix(subject, prefix))
		}
		if len(keys) >= page.Total || len(page.State.Subjects) == 0 {
			slices.Sort(keys)
			return slices.Compact(keys), nil
		}
	}
}

// subjectsPage is what a stream tells of its subjects at once, 100,000 at most.
type subjectsPage struct {
	Error *jetstream.APIError `json:"error"`
	Total int                 `json:"total"` // of all pages
	State struct {
		Subjects map[string]uint64 `json:"subjects"`
	} `json:"state"`
}

// pageOfSubjects asks for the subjects of a stream behind the first offset of them. jetstream.Stream does so too, but
// asks whether the stream is there before, which is another request.
func pageOfSubjects(ctx context.Context, js jetstream.JetStream, stream, filter string, offset int) (*subjectsPage, error) {
	query, err := json.Marshal(map[string]any{"subjects_filter": filter, "offset": offset})
	if err != nil {
		return nil, err
	}
	m, err := js.Conn().RequestWithContext(ctx, apiPrefix(js)+"STREAM.INFO."+stream, query)
	if err != nil {
		return nil, err
	}
	page := &subjectsPage{}
	if err := json.Unmarshal(m.Data, page); err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	switch {
	case page.Error == nil:
		return page, nil
	case page.Error.ErrorCode == codeNoStream:
		return nil, jetstream.ErrBucketNotFound
	}
	return nil, page.Error
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
