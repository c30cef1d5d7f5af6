package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// magic begins a frame, as RFC 8878 has it.
const magic = "\x28\xb5\x2f\xfd"

// blockMax is the most content that a block of zstd has.
const blockMax = 128 << 10

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// free is a pace that never ends.
func free() error { return nil }

// noise returns bytes that do not compress.
func noise(size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return b
}

// text returns bytes that compress well.
func text(size int) (b []byte) {
	for i := 0; len(b) < size; i++ {
		b = fmt.Appendf(b, `{"id":"%06d","name":"product %d"}`, i, i*i)
	}
	return b[:size]
}

// sized returns the beginning of a frame without a checksum, which says that its content has size bytes.
func sized(size uint32) []byte {
	return binary.LittleEndian.AppendUint32([]byte(magic+"\x80\x48"), size) // 0x48 is a window of 512 KiB
}

// unsized returns one that does not say it.
func unsized() []byte { return []byte(magic + "\x00\x48") }

// runs appends blocks to a frame, each of so many times the letter x. The last one ends it.
func runs(frame []byte, sizes ...int) []byte {
	for i, size := range sizes {
		head := uint32(size)<<3 | 1<<1
		if i == len(sizes)-1 {
			head |= 1
		}
		frame = append(frame, byte(head), byte(head>>8), byte(head>>16), 'x')
	}
	return frame
}

// openCodec returns what a writer and a reader of parts have.
func openCodec(t testing.TB) (*zstd.Encoder, *zstd.Decoder) {
	t.Helper()
	encoder, err := newEncoder()
	must(t, err)
	t.Cleanup(func() { _ = encoder.Close() }) // it may have been stopped in a frame
	decoder, err := newDecoder()
	must(t, err)
	t.Cleanup(decoder.Close)
	return encoder, decoder
}

// openBefore returns what the releases had that wrote and read a part in one go, by EncodeAll and DecodeAll.
func openBefore(t testing.TB) (*zstd.Encoder, *zstd.Decoder) {
	t.Helper()
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(512<<10),
		zstd.WithLowerEncoderMem(true))
	must(t, err)
	t.Cleanup(func() { must(t, encoder.Close()) })
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(6<<20), zstd.WithDecoderLowmem(true))
	must(t, err)
	t.Cleanup(decoder.Close)
	return encoder, decoder
}

// TestPart_IsReadByOlderReleasesAndTheirsAreRead: what compress writes in pieces DecodeAll reads, and decompress reads
// what EncodeAll wrote. The memory of one part serves the next, as it does in a writer and in a reader.
func TestPart_IsReadByOlderReleasesAndTheirsAreRead(t *testing.T) {
	encoder, decoder := openCodec(t)
	encoderBefore, decoderBefore := openBefore(t)
	var frame, content []byte
	for _, c := range []struct {
		name    string
		content []byte
	}{
		{"several blocks that do not compress", noise(5*blockMax + 1)},
		{"several blocks that compress well", text(5*blockMax + 1)},
		{"nothing", nil},
		{"one byte", []byte("x")},
		{"one piece", text(turnBytes)},
		{"one block", noise(blockMax)},
		{"a full part", slices.Concat(text(partBytes/2), noise(partBytes/2))},
		{"as much as a part may have", slices.Concat(noise(contentMax/2), text(contentMax/2))},
	} {
		t.Run(c.name, func(t *testing.T) {
			var err, damage error
			frame, err = compress(encoder, c.content, frame, &turns{pace: free})
			must(t, err)
			got, err := decoderBefore.DecodeAll(frame, nil)
			if err != nil || !bytes.Equal(got, c.content) {
				t.Errorf("an older release reads %d bytes, %v", len(got), err)
			}
			for by, frame := range map[string][]byte{"compress": frame, "EncodeAll": encoderBefore.EncodeAll(c.content, nil)} {
				content, damage, err = decompress(decoder, frame, content, &turns{pace: free})
				if err != nil || damage != nil || !bytes.Equal(content, c.content) {
					t.Errorf("what %s wrote: %d bytes, damage %v, %v", by, len(content), damage, err)
				}
			}
		})
	}
}

// TestDecompress_TellsDamage reads frames that no writer has written. They are damaged, which is no error of pace; none
// takes more memory than a part may; and the decoder reads the next frame as if nothing had been. Older releases refused
// them too.
func TestDecompress_TellsDamage(t *testing.T) {
	encoder, decoder := openCodec(t)
	_, decoderBefore := openBefore(t)
	want := text(3*blockMax + 1)
	whole, err := compress(encoder, want, nil, &turns{pace: free})
	must(t, err)
	full := slices.Repeat([]int{blockMax}, contentMax/blockMax)
	otherSum := slices.Clone(whole)
	otherSum[len(otherSum)-1] ^= 1
	for _, c := range []struct {
		name  string
		frame []byte
		want  error // nil if any will do
	}{
		{"no frame", []byte("no frame"), zstd.ErrMagicMismatch},
		{"one byte behind a frame", append(slices.Clone(whole), '('), nil},
		{"three bytes behind a frame", append(slices.Clone(whole), magic[:3]...), nil},
		{"others behind a frame", append(slices.Clone(whole), "text"...), zstd.ErrMagicMismatch},
		{"half a frame behind a frame", append(slices.Clone(whole), whole[:len(whole)/2]...), nil},
		{"a frame to skip is cut", append(slices.Clone(whole), "\x50\x2a\x4d\x18\x04\x00\x00\x00abc"...), nil},
		{"another checksum", otherSum, zstd.ErrCRCMismatch},
		{"says one byte more than there is", runs(sized(301), 100, 100, 100), zstd.ErrFrameSizeMismatch},
		{"says one byte less than there is", runs(sized(299), 100, 100, 100), zstd.ErrFrameSizeExceeded},
		{"says less than its first block has", runs(sized(99), 100, 100, 100), zstd.ErrFrameSizeExceeded},
		{"says more than a part may have", runs(sized(contentMax+1), 100), nil},
		{"one byte more than a part may have", runs(unsized(), append(full, 1)...), errContentMax},
		{"one byte more, as it says", runs(sized(contentMax+1), append(full, 1)...), errContentMax},
		{"one byte more in another frame", append(runs(unsized(), full...), runs(unsized(), 1)...), errContentMax},
		{"a GiB", runs(unsized(), slices.Repeat([]int{blockMax}, 1<<30/blockMax)...), errContentMax},
		{"a window larger than a part", runs([]byte(magic+"\x00\x68"), 100), zstd.ErrWindowSizeExceeded}, // 8 MiB
		{"a dictionary", runs([]byte(magic+"\x01\x48\x07"), 100), zstd.ErrUnknownDictionary},
		{"a reserved kind of block", append(unsized(), 7, 0, 0), zstd.ErrReservedBlockType},
	} {
		t.Run(c.name, func(t *testing.T) {
			content, damage, err := decompress(decoder, c.frame, nil, &turns{pace: free})
			must(t, err)
			if damage == nil || c.want != nil && !errors.Is(damage, c.want) {
				t.Errorf("%d bytes were read, damage %v, want %v", len(content), damage, c.want)
			}
			if most := contentMax + turnBytes; len(content) > most {
				t.Errorf("%d bytes were read, want %d at most", len(content), most)
			}
			if got, err := decoderBefore.DecodeAll(c.frame, nil); err == nil {
				t.Errorf("an older release reads %d bytes", len(got))
			}
			checkContent(t, decoder, whole, want)
		})
	}
}

// checkContent reads a frame that is whole.
func checkContent(t *testing.T, decoder *zstd.Decoder, frame, want []byte) {
	t.Helper()
	content, damage, err := decompress(decoder, frame, nil, &turns{pace: free})
	if err != nil || damage != nil || !bytes.Equal(content, want) {
		t.Errorf("%d bytes were read, want %d; damage %v, %v", len(content), len(want), damage, err)
	}
}

// TestDecompress_EachCutIsFound cuts frames behind each of their bytes, so in the header, in a block, between two
// blocks, before the checksum.
func TestDecompress_EachCutIsFound(t *testing.T) {
	encoder, decoder := openCodec(t)
	compressed, err := compress(encoder, text(blockMax+1<<10), nil, &turns{pace: free})
	must(t, err)
	for name, frame := range map[string][]byte{
		"of one byte": encoder.EncodeAll([]byte("x"), nil), "of two blocks": compressed,
		"without a checksum": runs(sized(300), 100, 100, 100), "without checksum and size": runs(unsized(), 100, 100, 100),
	} {
		t.Run(name, func(t *testing.T) {
			var content []byte
			for end := 1; end < len(frame); end++ {
				var damage, err error
				content, damage, err = decompress(decoder, frame[:end], content, &turns{pace: free})
				if damage == nil || err != nil {
					t.Errorf("of %d bytes are left %d: %d bytes were read, damage %v, %v", len(frame), end, len(content), damage, err)
				}
			}
		})
	}
}

// TestDecompress_AFlippedBitChangesNoContent flips each bit of a frame. Most are found. A few mean nothing, as those that a
// header has to spare, and the content is the same then.
func TestDecompress_AFlippedBitChangesNoContent(t *testing.T) {
	encoder, decoder := openCodec(t)
	want := slices.Concat(text(1<<10), noise(100))
	frame, err := compress(encoder, want, nil, &turns{pace: free})
	must(t, err)
	found := 0
	for i := range len(frame) * 8 {
		flipped := slices.Clone(frame)
		flipped[i/8] ^= 1 << (i % 8)
		content, damage, err := decompress(decoder, flipped, nil, &turns{pace: free})
		must(t, err)
		if damage != nil {
			found++
		} else if !bytes.Equal(content, want) {
			t.Errorf("bit %d of byte %d: %d other bytes were read, and no damage", i%8, i/8, len(content))
		}
	}
	if all := len(frame) * 8; found < all*9/10 {
		t.Errorf("%d flipped bits of %d were found", found, all)
	}
}

// TestDecompress_TakesWhatOlderReleasesTook: several frames, and none at all, are no damage, as they were none for DecodeAll,
// and have the content that they had then. No writer has written them either; checkPart and the count of entries find that.
func TestDecompress_TakesWhatOlderReleasesTook(t *testing.T) {
	encoder, decoder := openCodec(t)
	_, decoderBefore := openBefore(t)
	first, second := text(2*blockMax+1), noise(blockMax+1)
	one, err := compress(encoder, first, nil, &turns{pace: free})
	must(t, err)
	other, err := compress(encoder, second, nil, &turns{pace: free})
	must(t, err)
	const skipped = "\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
	full := slices.Repeat([]int{blockMax}, contentMax/blockMax)
	for _, c := range []struct {
		name        string
		frame, want []byte
	}{
		{"two frames", slices.Concat(one, other), slices.Concat(first, second)},
		{"one to skip between two", slices.Concat(one, []byte(skipped), other), slices.Concat(first, second)},
		{"one to skip alone", []byte(skipped), nil},
		{"nothing", nil, nil},
		{"as much as a part may have", runs(unsized(), full...), bytes.Repeat([]byte("x"), contentMax)},
		{"as much, as it says", runs(sized(contentMax), full...), bytes.Repeat([]byte("x"), contentMax)},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkContent(t, decoder, c.frame, c.want)
			if got, err := decoderBefore.DecodeAll(c.frame, nil); err != nil || !bytes.Equal(got, c.want) {
				t.Errorf("an older release reads %d bytes, want %d; %v", len(got), len(c.want), err)
			}
		})
	}
}

// TestPart_AnErrorOfPaceEndsTheWork fails each call of pace in turn: its error is returned, and is no damage, for which a
// snapshot would be given up; nothing is done after it; and the codec serves the next part.
func TestPart_AnErrorOfPaceEndsTheWork(t *testing.T) {
	encoder, decoder := openCodec(t)
	want := slices.Concat(noise(4*blockMax), text(4*blockMax+1))
	whole, err := compress(encoder, want, nil, &turns{pace: free})
	must(t, err)
	stop := errors.New("stop")
	for fail := 1; fail <= len(want)/turnBytes; fail++ {
		calls := 0
		pace := func() error {
			if calls++; calls >= fail {
				return stop
			}
			return nil
		}
		frame, err := compress(encoder, want, nil, &turns{pace: pace})
		if !errors.Is(err, stop) || frame != nil || calls != fail {
			t.Errorf("compress: call %d of pace fails, of %d: a frame of %d bytes, %v", fail, calls, len(frame), err)
		}
		if frame, err := compress(encoder, want, nil, &turns{pace: free}); err != nil || !bytes.Equal(frame, whole) {
			t.Errorf("compress after that: %d bytes, want %d; %v", len(frame), len(whole), err)
		}
		calls = 0
		content, damage, err := decompress(decoder, whole, nil, &turns{pace: pace})
		if !errors.Is(err, stop) || damage != nil || calls != fail || len(content) > fail*turnBytes {
			t.Errorf("decompress: call %d of pace fails, of %d: %d bytes, damage %v, %v", fail, calls, len(content), damage, err)
		}
		checkContent(t, decoder, whole, want)
	}
}
