package bucket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// codeNoMessage is JetStream's code for a subject that has no message.
	codeNoMessage jetstream.ErrorCode = 10037
	// codeNoStream is that for a stream that is not there.
	codeNoStream jetstream.ErrorCode = 10059
	// askTimeout bounds a read whose context has no deadline. It is long enough for the
	// election of a leader, which waits for nine seconds at most.
	askTimeout = 15 * time.Second
	// tryTimeout bounds one request: the server that should answer may be gone.
	tryTimeout = 2 * time.Second
	// pageTimeout bounds one request for keys, of which an answer may hold 100,000.
	pageTimeout = 5 * time.Second
	// lagPause is the pause before a replica that lags is asked again.
	lagPause = 20 * time.Millisecond
)

// Get returns the entry of a key of kv, or jetstream.ErrKeyNotFound.
//
// Any replica answers jetstream.KeyValue.Get. A replica that lags says that there is no such
// key, although its write was acknowledged a moment ago. So only the stream's leader is
// believed when it says so. A replica that lags may also answer with an older value; see
// Newest. A request that gets no answer is made again until ctx ends, for 15 s if ctx has
// no deadline.
func Get(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, key string) (jetstream.KeyValueEntry, error) {
	return ask(ctx, func(ctx context.Context) (jetstream.KeyValueEntry, bool, error) { return get(ctx, js, kv, key) })
}

// ask calls try until try says that it need not be called again, or ctx ends.
func ask[T any](ctx context.Context, try func(context.Context) (answer T, again bool, err error)) (T, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, askTimeout)
		defer cancel()
	}
	began := time.Now()
	for {
		answer, again, err := try(ctx)
		// Nobody may have the subject for a moment, as in a cluster whose servers have just begun. For longer there is no
		// JetStream.
		if !again && (!errors.Is(err, nats.ErrNoResponders) || time.Since(began) > tryTimeout) {
			return answer, err
		}
		select {
		case <-time.After(lagPause):
		case <-ctx.Done():
			return answer, err
		}
	}
}

// get tries once, and returns whether to try again.
func get(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, key string) (_ jetstream.KeyValueEntry, again bool, _ error) {
	try, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	e, err := kv.Get(try, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) { // ErrKeyDeleted too
		last, askErr := leaderRevision(try, js, kv.Bucket(), key)
		switch {
		case askErr != nil:
			err = askErr
		case last > 0:
			return nil, true, fmt.Errorf("no replica of %s has %s, its leader does", kv.Bucket(), key)
		}
	}
	return e, isSilence(err) && ctx.Err() == nil, err
}

// Newest is Get for callers that must not see a value older than the last acknowledged write:
// it asks the stream's leader for the last revision. While there is no leader it waits, as
// Get waits for an answer.
func Newest(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, key string) (jetstream.KeyValueEntry, error) {
	return ask(ctx, func(ctx context.Context) (jetstream.KeyValueEntry, bool, error) {
		try, cancel := context.WithTimeout(ctx, tryTimeout)
		defer cancel()
		last, err := leaderRevision(try, js, kv.Bucket(), key)
		if err != nil {
			return nil, isSilence(err) && ctx.Err() == nil, err
		}
		if last == 0 {
			return nil, false, jetstream.ErrKeyNotFound
		}
		// Any replica may answer this. A replica that lags does not have the revision yet. No
		// replica has it if the key was written again meanwhile. Both are tried again.
		e, err := kv.GetRevision(try, key, last)
		again := errors.Is(err, jetstream.ErrKeyNotFound) || isSilence(err)
		return e, again && ctx.Err() == nil, err
	})
}

func isSilence(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
}

// leaderRevision asks the leader of a bucket's stream for the revision of a key's
// value, 0 if it has none.
func leaderRevision(ctx context.Context, js jetstream.JetStream, bucket, key string) (uint64, error) {
	revision, err := leaderLast(ctx, js, bucket, key)
	if err != nil {
		return 0, fmt.Errorf("ask the leader of %s for %s: %w", bucket, key, err)
	}
	return revision, nil
}

func leaderLast(ctx context.Context, js jetstream.JetStream, bucket, key string) (uint64, error) {
	query, err := json.Marshal(map[string]string{"last_by_subj": "$KV." + bucket + "." + key})
	if err != nil {
		return 0, err
	}
	m, err := js.Conn().RequestWithContext(ctx, apiPrefix(js)+"STREAM.MSG.GET.KV_"+bucket, query)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Sequence uint64 `json:"seq"`
			Header   []byte `json:"hdrs"`
		} `json:"message"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return 0, fmt.Errorf("answer: %w", err)
	}
	if e := answer.Error; e != nil {
		if e.ErrorCode == codeNoMessage {
			return 0, nil
		}
		return 0, e
	}
	header, err := nats.DecodeHeadersMsg(answer.Message.Header)
	if len(answer.Message.Header) > 0 && err != nil {
		return 0, fmt.Errorf("answer: %w", err)
	}
	// A deleted key has a message too, with a header that says so. So has one that a limit
	// of the bucket removed.
	if header.Get("KV-Operation") != "" || header.Get("Nats-Marker-Reason") != "" {
		return 0, nil
	}
	return answer.Message.Sequence, nil
}

// apiPrefix returns the prefix of the subjects on which js asks JetStream.
func apiPrefix(js jetstream.JetStream) string {
	switch o := js.Options(); {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return jetstream.DefaultAPIPrefix
}
