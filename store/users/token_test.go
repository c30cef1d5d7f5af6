package users_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/store/users"
)

var token = users.Token{
	Database: "shop", User: "ann; 日本&=", Serial: users.Serial{1, 2, 15: 16}, Expires: time.Unix(1_800_000_000, 0),
}

// golden is what release 1 of the form gives. It is not to change.
const golden = "type=resource&ver=1&sig=rKufmHNqrSLfRyKbXRjU9jlE4MAjvuSZ26LdY21Ijr0;AQAAAABrSdIAAQIAAAAAAAAAAAAAAAAAEAAEc2hvcGFubjsg5pel5pysJj0;"

func parse(t testing.TB, text string) (*users.Signed, error) {
	t.Helper()
	rest, ok := strings.CutPrefix(text, "type=resource&ver=1&sig=")
	if !ok {
		t.Fatalf("%q", text)
	}
	return users.ParseToken(rest)
}

func TestToken_IsReadAsItWasSigned(t *testing.T) {
	t.Parallel()
	key := []byte("a master key")
	text := token.Sign(key)
	if text != golden {
		t.Errorf("the token is %s", text)
	}
	signed, err := parse(t, text)
	if err != nil {
		t.Fatal(err)
	}
	if !signed.By(key) || signed.By([]byte("another key")) || signed.By(nil) {
		t.Error("it is not of the key that has signed it, or of another")
	}
	if got, err := signed.Token(); err != nil || *got != token {
		t.Errorf("it says %+v, %v", got, err)
	}
}

// Whatever is read as a token is one way to write what it says, and only its key has signed it.
func FuzzParseToken(f *testing.F) {
	key := []byte("a master key")
	text := strings.TrimPrefix(token.Sign(key), "type=resource&ver=1&sig=")
	signature, _, _ := strings.Cut(text, ";")
	for _, seed := range []string{
		text, strings.TrimSuffix(text, ";"), "", ";", ";;", signature, signature + ";", signature + ";AQ;", signature + ";" + strings.Repeat("A", 40) + ";", text + ";", strings.Repeat("A", 43) + ";AQ==;",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		signed, err := users.ParseToken(in)
		if err != nil {
			return
		}
		said, err := signed.Token()
		if !signed.By(key) {
			return // what it says counts for nothing, and is read without harm
		}
		if err != nil || *said != token || strings.TrimSuffix(in, ";") != strings.TrimSuffix(text, ";") {
			t.Errorf("%q is signed and says %+v, %v", in, said, err)
		}
	})
}
