package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/store/engine"
)

const (
	// partBytes bounds the content of a part that has several entries.
	partBytes = 4 << 20
	// contentMax bounds the content of any part: an entry of the engine has less than a
	// MiB, because larger values stand in chunks.
	contentMax = partBytes + 2<<20
	// windowBytes bounds what compression looks back at, and the memory that it takes.
	windowBytes = 512 << 10
)

// partTarget is partBytes, which tests make smaller.
var partTarget = partBytes

// turnBytes is how much is read, compressed, or copied, between two calls of pace: half a millisecond of a processor at
// most. A whole part takes tens of them, and a goroutine that is at work has a processor for 10 ms at a time, for which
// commits waited where two processors were all.
const turnBytes = 64 << 10

// turns calls pace between some work and more of it.
type turns struct {
	pace  func() error
	bytes int // since the last call
}

// worked counts bytes that were worked on.
func (t *turns) worked(bytes int) error {
	if t.bytes += bytes; t.bytes < turnBytes {
		return nil
	}
	t.bytes = 0
	return t.pace()
}

// compress returns content as one frame, in dst's memory.
func compress(encoder *zstd.Encoder, content, dst []byte, t *turns) ([]byte, error) {
	frame := bytes.NewBuffer(dst[:0])
	encoder.ResetContentSize(frame, int64(len(content)))
	for piece := range slices.Chunk(content, turnBytes) {
		if _, err := encoder.Write(piece); err != nil {
			return nil, fmt.Errorf("compress: %w", err)
		}
		if err := t.worked(len(piece)); err != nil {
			return nil, err
		}
	}
	if err := encoder.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return frame.Bytes(), nil
}

// errContentMax is the damage of a part that no writer has written.
var errContentMax = fmt.Errorf("its content has more than %d bytes", contentMax)

// decompress returns the content of a frame, in dst's memory. damage is what is wrong with the frame; err is of pace.
func decompress(decoder *zstd.Decoder, frame, dst []byte, t *turns) (content []byte, damage, err error) {
	content = dst[:0]
	if damage := decoder.Reset(bytes.NewReader(frame)); damage != nil {
		return content, damage, nil
	}
	for {
		content = slices.Grow(content, turnBytes)
		n, damage := decoder.Read(content[len(content) : len(content)+turnBytes])
		content = content[:len(content)+n]
		switch {
		case len(content) > contentMax:
			return content, errContentMax, nil
		case damage == io.EOF: //nolint:errorlint // the decoder's own, as io.Reader has it; one that it wraps is damage
			return content, nil, nil
		case damage != nil:
			return content, damage, nil
		}
		if err := t.worked(n); err != nil {
			return content, nil, err
		}
	}
}

func newEncoder() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(windowBytes),
		zstd.WithLowerEncoderMem(true))
}

func newDecoder() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(contentMax), zstd.WithDecoderLowmem(true))
}

// appendEntry appends an entry to the content of a part.
func appendEntry(dst []byte, e engine.DumpEntry) []byte {
	dst = append(binary.AppendUvarint(dst, uint64(len(e.Key))), e.Key...)
	return append(binary.AppendUvarint(dst, uint64(len(e.Value))), e.Value...)
}

var errContent = errors.New("its content ends inside an entry")

// nextEntry returns the first entry of content, and what follows it.
func nextEntry(content []byte) (e engine.DumpEntry, rest []byte, err error) {
	if e.Key, content, err = nextBytes(content); err != nil {
		return e, nil, err
	}
	e.Value, content, err = nextBytes(content)
	return e, content, err
}

func nextBytes(content []byte) (b, rest []byte, err error) {
	size, n := binary.Uvarint(content)
	if n <= 0 || size > uint64(len(content)-n) {
		return nil, nil, errContent
	}
	return content[n : n+int(size) : n+int(size)], content[n+int(size):], nil
}

// checkPart compares the bytes of a part with what the manifest says of it.
func checkPart(want *Part, data []byte) error {
	if uint64(len(data)) != want.Bytes {
		return fmt.Errorf("has %d bytes, the manifest says %d", len(data), want.Bytes)
	}
	if sum := Sum(xxhash.Sum64(data)); sum != want.Checksum {
		return fmt.Errorf("has checksum %016x, the manifest says %016x", uint64(sum), uint64(want.Checksum))
	}
	return nil
}
