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
	// askTimeout bounds a read whose context has no end: long enough for the election
	// of a leader, which waits for nine seconds at most.
	askTimeout = 15 * time.Second
	// tryTimeout is what one question may take: who should answer may be gone.
	tryTimeout = 2 * time.Second
	// lagPause is the pause before a replica that lags is asked again.
	lagPause = 20 * time.Millisecond
)

// Get returns what stands under a key of kv, or jetstream.ErrKeyNotFound.
//
// jetstream.KeyValue.Get is answered by any replica. One that lags says that there is
// no such key though its writing was acknowledged a moment ago; so that word is
// believed only of the stream's leader. A question that gets no answer is asked again
// until ctx ends, for 15 s if it has no end.
func Get(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, key string) (jetstream.KeyValueEntry, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, askTimeout)
		defer cancel()
	}
	for {
		e, again, err := get(ctx, js, kv, key)
		if !again {
			return e, err
		}
		select {
		case <-time.After(lagPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// get tries once, and says whether to try again.
func get(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, key string) (_ jetstream.KeyValueEntry, again bool, _ error) {
	try, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	e, err := kv.Get(try, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) { // ErrKeyDeleted too
		there, askErr := leaderHas(try, js, kv.Bucket(), key)
		switch {
		case askErr != nil:
			err = fmt.Errorf("ask the leader of %s for %s: %w", kv.Bucket(), key, askErr)
		case there:
			return nil, true, fmt.Errorf("no replica of %s has %s, its leader does", kv.Bucket(), key)
		}
	}
	silent := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
	return e, silent && ctx.Err() == nil, err
}

// leaderHas asks the leader of a bucket's stream whether a key has a value.
func leaderHas(ctx context.Context, js jetstream.JetStream, bucket, key string) (bool, error) {
	query, err := json.Marshal(map[string]string{"last_by_subj": "$KV." + bucket + "." + key})
	if err != nil {
		return false, err
	}
	m, err := js.Conn().RequestWithContext(ctx, apiPrefix(js)+"STREAM.MSG.GET.KV_"+bucket, query)
	if err != nil {
		return false, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Header []byte `json:"hdrs"`
		} `json:"message"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return false, fmt.Errorf("answer: %w", err)
	}
	if e := answer.Error; e != nil {
		if e.ErrorCode == codeNoMessage {
			return false, nil
		}
		return false, e
	}
	header, err := nats.DecodeHeadersMsg(answer.Message.Header)
	if len(answer.Message.Header) > 0 && err != nil {
		return false, fmt.Errorf("answer: %w", err)
	}
	// A deletion is a message too, and says so; so is what a limit removed.
	return header.Get("KV-Operation") == "" && header.Get("Nats-Marker-Reason") == "", nil
}

// apiPrefix is where js asks JetStream.
func apiPrefix(js jetstream.JetStream) string {
	switch o := js.Options(); {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return jetstream.DefaultAPIPrefix
}
