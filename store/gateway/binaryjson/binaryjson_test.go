package binaryjson_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/store/gateway/binaryjson"
)

const roomy = 1 << 20

// bytes are those that a text in hexadecimal digits and blanks names.
func bytes(t testing.TB, digits string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, body, want string }{
		{"null", "80 d0", `null`},
		{"false", "80 d1", `false`},
		{"true", "80 d2", `true`},
		{"a number in its byte", "80 1f", `31`},
		{"of a byte", "80 c8 ff", `255`},
		{"of two", "80 c9 feff", `-2`},
		{"of four", "80 ca 00000080", `-2147483648`},
		{"of eight", "80 cb 2000000000000000", `32`},
		{"the smallest of eight", "80 cb 0000000000000080", `-9223372036854775808`},
		{"the largest without a sign", "80 c7 ffffffffffffffff", `18446744073709551615`},
		{"a fraction", "80 cc 9a9999999999b93f", `0.1`},
		{"a fraction that is whole", "80 cc 0000000000000840", `3`},
		{"a large fraction", "80 cc 9c7500883ce4377e", `1e+300`},
		{"an empty string", "80 80", `""`},
		{"a string", "80 85 68656c6c6f", `"hello"`},
		{"what is escaped", "80 84 225c0a01", `"\"\\\n\u0001"`},
		{"a string with a length of one byte", "80 c0 02 c3ab", `"ë"`},
		{"of two", "80 c1 0100 78", `"x"`},
		{"of four", "80 c2 01000000 78", `"x"`},
		{"an empty array", "80 e0", `[]`},
		{"an array of one", "80 e1 d0", `[null]`},
		{"with its bytes", "80 e2 02 01 02", `[1,2]`},
		{"with its bytes in two", "80 e3 0200 01 02", `[1,2]`},
		{"with its bytes in four", "80 e4 02000000 01 02", `[1,2]`},
		{"with bytes and count", "80 e5 02 02 01 02", `[1,2]`},
		{"of none with bytes and count", "80 e5 00 00", `[]`},
		{"with bytes and count in two", "80 e6 0200 0200 01 02", `[1,2]`},
		{"with bytes and count in four", "80 e7 02000000 02000000 01 02", `[1,2]`},
		{"an empty object", "80 e8", `{}`},
		{"an object of one", "80 e9 81 61 01", `{"a":1}`},
		{"an object with its bytes", "80 ea 06 81 61 01 81 62 e0", `{"a":1,"b":[]}`},
		{"an object with bytes and count", "80 ed 06 02 81 61 01 81 62 e8", `{"a":1,"b":{}}`},
		{"an item", "80 ed 0e 02 82 6964 81 31 82 706b e5 03 02 05 81 78", `{"id":"1","pk":[5,"x"]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := binaryjson.Text(bytes(t, c.body), roomy)
			if err != nil || string(got) != c.want {
				t.Errorf("%s, %v; want %s", got, err, c.want)
			}
		})
	}
}

func TestText_Refused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, body, want string }{
		{"nothing", "80", "byte 1"},
		{"more than a value", "80 d0 d0", "byte 2: there is more"},
		{"a string by its number", "80 20", "form 0x20"},
		{"a string by its place", "80 c3 01", "form 0xc3"},
		{"an array of plain numbers", "80 f0 d7 01 01", "form 0xf0"},
		{"a name that is a number", "80 e9 01 01", "a name of the form 0x1"},
		{"a string that is cut", "80 85 68", "byte 2: 5 bytes are expected, and 1 are there"},
		{"a length that is cut", "80 c1 01", "byte 2"},
		{"a string that is not UTF-8", "80 82 c328", "not UTF-8"},
		{"not a number", "80 cc 000000000000f87f", "NaN"},
		{"infinity", "80 cc 000000000000f07f", "Inf"},
		{"an array longer than the body", "80 e2 05 01", "5 bytes are expected"},
		{"an element that ends behind its array", "80 e3 0100 c8 01", "byte 5"},
		{"fewer elements than are told", "80 e5 02 03 01 02", "byte 6"},
		{"more bytes than elements", "80 e5 02 01 01 02", "1 values are not the 2 bytes"},
		{"a count without end", "80 e7 00000000 ffffffff", "byte 10"},
		{"an object that ends in a name", "80 ea 02 81 61", "byte 5"},
		{"too deep", "80" + strings.Repeat("e1", 129) + "d0", "128 deep"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := binaryjson.Text(bytes(t, c.body), roomy)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %v; want an error with %q", got, err, c.want)
			}
		})
	}
}

// A short body cannot make a long text.
func TestText_TooLarge(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"80 85 0101010101", "80 cb 00e1f50500000000", "80 e5 03 03 01 02 03", "80 d1"} {
		if got, err := binaryjson.Text(bytes(t, body), 4); !errors.Is(err, binaryjson.ErrTooLarge) {
			t.Errorf("%s: %s, %v", body, got, err)
		}
	}
	if got, err := binaryjson.Text(bytes(t, "80 d2"), 4); err != nil || string(got) != "true" {
		t.Errorf("%s, %v", got, err)
	}
}

// Whatever comes, the text is JSON or there is an error.
func FuzzText(f *testing.F) {
	for _, s := range []string{"80", "80d0", "80ed0e028269648131826f6be50302058178", "80e70000000000000000", "80cc000000000000f87f", "80c2ffffffff", "80c7ffffffffffffffff"} {
		f.Add(bytes(f, s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if !binaryjson.Is(body) {
			return
		}
		const most = 4096
		text, err := binaryjson.Text(body, most)
		if err == nil && (len(text) > most || !json.Valid(text)) {
			t.Errorf("%x gives %d bytes: %s", body, len(text), text)
		}
	})
}
