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
	// streamMovedSuffix and subjectMovedSuffix end the name and the subject of a stream to
	// which a log has moved; see Log.BeginMove.
	streamMovedSuffix  = "_2"
	subjectMovedSuffix = ".2"
)

// ParseStream returns the partition whose log the named stream holds, or will hold; ok is
// false if the name is not that of a log's stream. While a log moves to a new stream, two
// names have the same partition.
func ParseStream(name string) (p Partition, ok bool) {
	rest, ok := strings.CutPrefix(name, streamPrefix)
	if !ok {
		return p, false
	}
	container, number, ok := strings.Cut(rest, "_")
	if !ok {
		return p, false
	}
	p, err := ParsePartition(container + "/" + strings.TrimSuffix(number, streamMovedSuffix))
	// TrimSuffix also accepts a name that this code never makes, such as one with two
	// suffixes. Comparing with the two real names refuses it.
	locations := p.locations()
	return p, err == nil && (locations[0].stream == name || locations[movedLocation].stream == name)
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
	locations := p.locations()
	stream, err := js.Stream(ctx, locations[0].stream)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return stream, err
	}
	// The old stream counts while it is there. The new one counts only if it is labelled as
	// the log: without the label it is an unfinished copy, and the log is lost.
	next, failed := js.Stream(ctx, locations[movedLocation].stream)
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

// LogOf returns the identity of the log that a stream holds; ok is false if the stream is
// not labelled as a log.
func LogOf(stream *jetstream.StreamInfo) (id LogID, ok bool) {
	id, err := ParseLogID(stream.Config.Metadata[metadataLog])
	return id, err == nil
}

// StreamsOf returns the streams of a partition's log that are there: that in which it began, and the new one, to which it
// may have moved or is being copied.
func StreamsOf(ctx context.Context, js jetstream.JetStream, p Partition) (there []*jetstream.StreamInfo, err error) {
	for _, at := range p.locations() {
		stream, err := js.Stream(ctx, at.stream)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look at stream %s: %w", at.stream, err)
		}
		there = append(there, stream.CachedInfo())
	}
	return there, nil
}

// Untouched reports whether a log's stream has never held more than its maker puts there before the log is used: of a
// stream in which a log begins the first commit, at LSN 1, of the new stream of one that moves nothing. A stream that was
// trimmed or purged has held more.
//
//	MILLRACE_c7k2x4ab_0      log, last LSN 0 or 1                   untouched
//	                         log, LSN 2 to 9, or empty behind 9     not
//	MILLRACE_c7k2x4ab_4      log, to begin at LSN 800, last LSN 799 or 800   untouched
//	MILLRACE_c7k2x4ab_0_2    copy, to begin at LSN 6, last LSN 5    untouched
//	                         copy of LSN 6 to 9, or the log         not
func Untouched(stream *jetstream.StreamInfo) bool {
	p, isLog := ParseStream(stream.Config.Name)
	if !isLog {
		return false
	}
	_, holds := LogOf(stream)
	if stream.Config.Name == p.Stream() {
		return holds && stream.State.LastSeq <= max(stream.Config.FirstSeq, 1)
	}
	// Who moves a log copies only what he reads from the old stream. Where that has gone he is left with an empty
	// copy; one that has messages may be all that there is of the log.
	return !holds && stream.Config.Metadata[metadataCopy] != "" && stream.State.Msgs == 0 && stream.State.LastSeq < max(stream.Config.FirstSeq, 1)
}
