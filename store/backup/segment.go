package backup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/snapshot"
)

const (
	// segmentBytes bounds the content of a segment that has several commits.
	segmentBytes = 4 << 20
	// segmentMax bounds that of any: no commit is larger than a message of NATS.
	segmentMax = 64 << 20
	// windowBytes bounds what compression looks back at, and the memory that it takes.
	windowBytes = 1 << 20
)

// segmentTarget is segmentBytes, which tests make smaller.
var segmentTarget = segmentBytes

func partsFolder(p feed.Partition) string {
	return fmt.Sprintf("parts/%s/%d/", p.Container, p.Number)
}

// partName is where a part of a snapshot lies: what has its size and checksum is the same.
func partName(p feed.Partition, part *snapshot.Part) string {
	return partsFolder(p) + partFile(part)
}

func partFile(part *snapshot.Part) string {
	return fmt.Sprintf("%016x-%d", uint64(part.Checksum), part.Bytes)
}

func logFolder(p feed.Partition, log feed.LogID) string {
	return fmt.Sprintf("log/%s/%d/%s/", p.Container, p.Number, log)
}

// file is the name of a segment in the folder of its log.
func (s *Segment) file() string {
	return fmt.Sprintf("%020d-%020d-%016x", uint64(s.From), uint64(s.To), uint64(s.Checksum))
}

// parseSegment reads where a segment begins and ends from the name of its file.
func parseSegment(file string) (s Segment, ok bool) {
	fields := strings.Split(file, "-")
	if len(fields) != 3 {
		return s, false
	}
	from, err1 := strconv.ParseUint(fields[0], 10, 64)
	to, err2 := strconv.ParseUint(fields[1], 10, 64)
	sum, err3 := strconv.ParseUint(fields[2], 16, 64)
	s = Segment{From: feed.LSN(from), To: feed.LSN(to), Checksum: snapshot.Sum(sum)}
	return s, errors.Join(err1, err2, err3) == nil && s.file() == file
}

// segmentWriter puts commits together to a segment.
type segmentWriter struct {
	encoder *zstd.Encoder
	content []byte
	segment Segment
}

func newSegmentWriter() (*segmentWriter, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(windowBytes), zstd.WithLowerEncoderMem(true))
	return &segmentWriter{encoder: encoder}, err
}

// full tells whether a message does not go into the segment at hand any more.
func (w *segmentWriter) full(message []byte) bool {
	return len(w.content) > 0 && len(w.content)+len(message)+binary.MaxVarintLen64 > segmentTarget
}

func (w *segmentWriter) add(c *feed.Commit, message []byte) {
	if len(w.content) == 0 {
		w.segment = Segment{From: c.LSN, Prev: snapshot.Sum(c.Prev), Since: c.Time}
	}
	w.content = append(binary.AppendUvarint(w.content, uint64(len(message))), message...)
	w.segment.To, w.segment.Sum, w.segment.Until = c.LSN, snapshot.Sum(c.Sum), c.Time
}

// end returns the segment and its bytes, and begins the next one. There must be a commit.
func (w *segmentWriter) end() (Segment, []byte) {
	data := w.encoder.EncodeAll(w.content, []byte{format})
	s := w.segment
	s.Bytes, s.Checksum = uint64(len(data)), snapshot.Sum(xxhash.Sum64(data))
	w.content = w.content[:0]
	return s, data
}

// readSegment calls f with each commit of a segment. Each is compared with what its
// predecessor was, and all of them with what s says; s.Prev and s.Sum are not looked at if
// both are 0. The error is a text for DamagedError, or that of f.
func readSegment(s *Segment, log feed.LogID, data []byte, f func(*feed.Commit) error) error {
	if sum := snapshot.Sum(xxhash.Sum64(data)); sum != s.Checksum || s.Bytes != 0 && uint64(len(data)) != s.Bytes {
		return fmt.Errorf("has %d bytes with checksum %016x, %d with %016x are expected", len(data), uint64(sum), s.Bytes, uint64(s.Checksum))
	}
	if len(data) == 0 || data[0] != format {
		return errors.New("is no segment of this format")
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(segmentMax))
	if err != nil {
		return err
	}
	defer decoder.Close()
	content, err := decoder.DecodeAll(data[1:], nil)
	if err != nil {
		return fmt.Errorf("cannot be decompressed: %w", err)
	}
	lsn, prev := s.From, s.Prev
	for ; len(content) > 0; lsn++ {
		size, n := binary.Uvarint(content)
		if n <= 0 || size > uint64(len(content)-n) {
			return errors.New("ends inside a commit")
		}
		c, err := feed.DecodeCommit(content[n : n+int(size)])
		if err != nil {
			return fmt.Errorf("LSN %d: %w", lsn, err)
		}
		content = content[n+int(size):]
		// Each commit names the checksum of the one before it. The first one is compared with
		// the manifest, if that is known (Sum is not 0).
		if c.Log != log || lsn > s.From && snapshot.Sum(c.Prev) != prev || lsn == s.From && s.Sum != 0 && snapshot.Sum(c.Prev) != prev {
			return fmt.Errorf("LSN %d does not follow the commit before it", lsn)
		}
		c.LSN, prev = lsn, snapshot.Sum(c.Sum)
		if err := f(c); err != nil {
			return err
		}
	}
	if lsn != s.To+1 || s.Sum != 0 && prev != s.Sum {
		return fmt.Errorf("ends with LSN %d and checksum %016x, LSN %d with %016x is expected", lsn-1, uint64(prev), s.To, uint64(s.Sum))
	}
	return nil
}
