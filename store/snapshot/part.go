package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"

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
