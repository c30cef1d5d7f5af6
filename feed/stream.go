package feed

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// streamPrefix begins the names of the streams that hold logs.
const streamPrefix = "MILLRACE_"

// ParseStream returns the partition whose log the stream of a name holds; false
// if it is not the name of a log's stream.
func ParseStream(name string) (p Partition, ok bool) {
	rest, ok := strings.CutPrefix(name, streamPrefix)
	if !ok {
		return p, false
	}
	container, number, ok := strings.Cut(rest, "_")
	if !ok {
		return p, false
	}
	p, err := ParsePartition(container + "/" + number)
	return p, err == nil && p.Stream() == name
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
