package store

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
)

// Names in the metadata of a log's stream; see CATALOG.md.
const (
	LabelContainer = "millrace.container"
	LabelRange     = "millrace.range"
)

const (
	// labelVersion begins every label.
	labelVersion = 1
	// labelPlainMax is the length above which a label is compressed.
	labelPlainMax = 8 << 10
	// labelBytesMax leaves room for the other metadata of a stream, of which
	// JetStream takes 128 KiB.
	labelBytesMax = 120 << 10
	// labelRecordMax bounds what a compressed label is read as.
	labelRecordMax = 8 << 20
	labelGzip      = "gzip:"
)

// Label is the record of a container as the stream of one of its logs carries it,
// so that the catalog can be made again from the streams.
type Label struct {
	Version int `json:"version"`
	// Written is when the catalog took the record; of two labels of a container the
	// later one holds.
	Written time.Time `json:"written"`
	// Container is the record, byte for byte.
	Container json.RawMessage `json:"container"`
}

// Labels returns what the stream of a container's partition is labelled with.
// record is the container's, as the catalog holds it since written.
func Labels(record []byte, written time.Time, p PartitionInfo) (map[string]string, error) {
	text, err := encodeLabel(record, written)
	if err != nil {
		// What clients declared beyond the spec are the parts that may not fit: scripts, and policies, which have no bound.
		shorter := without(record, "scripts")
		if text, err = encodeLabel(shorter, written); err != nil {
			if text, err = encodeLabel(without(shorter, "policies"), written); err != nil {
				return nil, err
			}
		}
	}
	rng, err := json.Marshal(p.Range)
	if err != nil {
		return nil, fmt.Errorf("label range %s: %w", p.Range, err)
	}
	return map[string]string{LabelContainer: text, LabelRange: string(rng)}, nil
}

// without returns a record without one of its members.
func without(record []byte, member string) []byte {
	var members map[string]json.RawMessage
	if json.Unmarshal(record, &members) != nil {
		return record
	}
	delete(members, member)
	if shorter, err := json.Marshal(members); err == nil {
		return shorter
	}
	return record
}

func encodeLabel(record []byte, written time.Time) (string, error) {
	data, err := json.Marshal(Label{Version: labelVersion, Written: written.UTC(), Container: record})
	if err != nil {
		return "", fmt.Errorf("label: %w", err)
	}
	if len(data) <= labelPlainMax {
		return string(data), nil
	}
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is one of its own
	if _, err := w.Write(data); err != nil {
		return "", fmt.Errorf("label: %w", err)
	}
	if err := w.Close(); err != nil {
		return "", fmt.Errorf("label: %w", err)
	}
	text := labelGzip + base64.StdEncoding.EncodeToString(packed.Bytes())
	if len(text) > labelBytesMax {
		return "", fmt.Errorf("label of %d bytes: a stream's metadata has room for %d", len(text), labelBytesMax)
	}
	return text, nil
}

// LabelHolds says whether a label, as text, carries the record.
func LabelHolds(text string, record []byte) bool {
	label, err := decodeLabel(text)
	return err == nil && bytes.Equal(label.Container, record)
}

// ReadLabel returns the label of a log's stream and the container that it tells of;
// ok is false if the stream has none. An error says that it cannot be read.
func ReadLabel(stream *jetstream.StreamInfo) (label Label, info ContainerInfo, ok bool, err error) {
	text, ok := stream.Config.Metadata[LabelContainer]
	if !ok {
		return label, info, false, nil
	}
	if label, err = decodeLabel(text); err != nil {
		return label, info, true, fmt.Errorf("label of stream %s: %w", stream.Config.Name, err)
	}
	info, err = DecodeContainer(label.Container)
	if err != nil {
		return label, info, true, fmt.Errorf("label of stream %s: %w", stream.Config.Name, err)
	}
	return label, info, true, nil
}

func decodeLabel(text string) (label Label, err error) {
	data := []byte(text)
	if packed, is := strings.CutPrefix(text, labelGzip); is {
		if data, err = unpackLabel(packed); err != nil {
			return label, err
		}
	}
	if err := json.Unmarshal(data, &label); err != nil {
		return label, err
	}
	if label.Version != labelVersion {
		return label, fmt.Errorf("it has version %d; this release knows %d: was it written by a newer one?", label.Version, labelVersion)
	}
	return label, nil
}

func unpackLabel(packed string) ([]byte, error) {
	r, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(packed)))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, labelRecordMax))
}

// DecodeContainer reads the catalog's record of a container. An error says that
// it is not one.
func DecodeContainer(record []byte) (ContainerInfo, error) {
	var info ContainerInfo
	if err := json.Unmarshal(record, &info); err != nil {
		return info, err
	}
	if _, err := feed.ParseResourceID(string(info.ID)); err != nil {
		return info, fmt.Errorf("id: %w", err)
	}
	if info.Database == "" || info.Name == "" || len(info.Partitions) == 0 {
		return info, fmt.Errorf("the record of %s names no database, no container or no partitions", info.ID)
	}
	return info, nil
}
