package queryrun

import (
	"bytes"
	"testing"
)

// FuzzRank: a rank gives its item key back, and the order of ranks is that of the item
// keys, or if it descends the reverse.
func FuzzRank(f *testing.F) {
	f.Add([]byte("a"), []byte("b"))
	f.Add([]byte("a"), []byte("a\x00"))
	f.Add([]byte("a\x00\x00"), []byte("a\x00\xFF"))
	f.Add([]byte{}, []byte{0})
	f.Add([]byte{0xFF}, []byte{0xFF, 0xFF})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		for _, desc := range []bool{false, true} {
			x, y := rankOf(nil, a, desc), rankOf(nil, b, desc)
			if back := itemKeyOf(x, desc); !bytes.Equal(back, a) {
				t.Errorf("desc=%v: %x has the rank %x, which gives back %x", desc, a, x, back)
			}
			want := bytes.Compare(a, b)
			if desc {
				want = -want
			}
			if got := bytes.Compare(x, y); got != want {
				t.Errorf("desc=%v: %x and %x compare as %d, their ranks as %d", desc, a, b, want, got)
			}
		}
	})
}
