package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// streamPrefix begins the names of the streams that hold logs.
	streamPrefix = "MILLRACE_"
	// streamGoneOn and subjectGoneOn end the name and the subject of a stream in which a log
	// has gone on; see Log.BeginMove.
	streamGoneOn  = "_2"
	subjectGoneOn = ".2"
)

// ParseStream returns the partition whose log the stream of a name holds, or is to hold;
// false if it is not the name of a log's stream. A log that goes on in a new stream has two
// for a time.
func ParseStream(name string) (p Partition, ok bool) {
	rest, ok := strings.CutPrefix(name, streamPrefix)
	if !ok {
		return p, false
	}
	container, number, ok := strings.Cut(rest, "_")
	if !ok {
		return p, false
	}
	p, err := ParsePartition(container + "/" + strings.TrimSuffix(number, streamGoneOn))
	places := p.places()
	return p, err == nil && (places[0].stream == name || places[goneOn].stream == name)
}

// ParseStreams returns the partitions whose logs are among streams, each once, in the order
// of their names.
func ParseStreams(names []string) (all []Partition) {
	seen := map[Partition]bool{}
	for _, name := range names {
		if p, isLog := ParseStream(name); isLog && !seen[p] {
			seen[p] = true
			all = append(all, p)
		}
	}
	return all
}

// StreamOf returns the stream that holds a partition's log now. The error is
// jetstream.ErrStreamNotFound if there is none.
func StreamOf(ctx context.Context, js jetstream.JetStream, p Partition) (jetstream.Stream, error) {
	places := p.places()
	stream, err := js.Stream(ctx, places[0].stream)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return stream, err
	}
	next, failed := js.Stream(ctx, places[goneOn].stream)
	switch {
	case errors.Is(failed, jetstream.ErrStreamNotFound):
		return nil, err
	case failed != nil:
		return nil, failed
	}
	if _, complete := LogOf(next.CachedInfo()); !complete {
		return nil, err
	}
	return next, nil
}

// StreamNames returns the names of all streams of a NATS system, as they are at
// one moment if there are no more than 1024.
func StreamNames(ctx context.Context, js jetstream.JetStream) ([]string, error) {
	lister := js.StreamNames(ctx)
	var names []string
	for name := range lister.Name() {
		names = append(names, name)
	}
	if err := lister.Err(); err != nil {
		return nil, fmt.Errorf("list the streams: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

// LogOf returns the identity of the log that a stream holds; false if the stream
// does not tell.
func LogOf(stream *jetstream.StreamInfo) (id LogID, ok bool) {
	id, err := ParseLogID(stream.Config.Metadata[metadataLog])
	return id, err == nil
}
