package parquetsink

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/parquet-go/parquet-go/compress/zstd"
)

// TestPageCodec_IsParquets compresses pages of many sizes, also some far larger than the
// window: Parquet's own codec reads what ours wrote, and ours what that wrote.
func TestPageCodec_IsParquets(t *testing.T) {
	theirs := &zstd.Codec{Level: zstd.SpeedFastest}
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, 100, 4 << 10, 256 << 10, pageWindow, pageWindow + 1, 1 << 20} {
		page := make([]byte, size)
		for i := range page {
			page[i] = "abcdefgh"[random.IntN(1+i%8)]
		}
		for _, c := range []struct {
			what           string
			encode, decode func(dst, src []byte) ([]byte, error)
		}{
			{"ours and ours", codec.Encode, codec.Decode},
			{"ours and theirs", codec.Encode, theirs.Decode},
			{"theirs and ours", theirs.Encode, codec.Decode},
		} {
			packed, err := c.encode([]byte("what was here before"), page)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.decode(nil, packed)
			if err != nil || !bytes.Equal(got, page) {
				t.Errorf("%s: %d bytes came back as %d, %v", c.what, size, len(got), err)
			}
		}
	}
	if codec.CompressionCodec() != theirs.CompressionCodec() || codec.String() != theirs.String() {
		t.Error("the codec has another name than Parquet's")
	}
}
