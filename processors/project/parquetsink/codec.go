package parquetsink

import (
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
)

// pageWindow is how far back the compression of a page looks, and what bounds the
// memory that it takes. A page holds 256 KiB of values or little more.
const pageWindow = 512 << 10

// pageCodec compresses pages with Zstandard. Parquet's own has encoders for windows of
// 4 MiB, with 8 MiB of memory each, of which pages use a sixteenth; what it writes is
// read all the same, and reads what this one wrote.
type pageCodec struct{ encoders, decoders sync.Pool }

var codec = &pageCodec{
	encoders: sync.Pool{New: func() any {
		// None of the options can be refused.
		e, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithWindowSize(pageWindow), zstd.WithLowerEncoderMem(true), zstd.WithZeroFrames(true), zstd.WithEncoderCRC(false))
		return e
	}},
	decoders: sync.Pool{New: func() any {
		d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
		return d
	}},
}

// String implements compress.Codec.
func (c *pageCodec) String() string { return "ZSTD" }

// CompressionCodec implements compress.Codec.
func (c *pageCodec) CompressionCodec() format.CompressionCodec { return format.Zstd }

// Encode implements compress.Codec.
func (c *pageCodec) Encode(dst, src []byte) ([]byte, error) {
	e := c.encoders.Get().(*zstd.Encoder)
	defer c.encoders.Put(e)
	return e.EncodeAll(src, dst[:0]), nil
}

// Decode implements compress.Codec.
func (c *pageCodec) Decode(dst, src []byte) ([]byte, error) {
	d := c.decoders.Get().(*zstd.Decoder)
	defer c.decoders.Put(d)
	return d.DecodeAll(src, dst[:0])
}
