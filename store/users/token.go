package users

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"time"
)

// tokenVersion is the first byte of what a token says.
const tokenVersion = 1

// tokenBytesMax bounds the text of a token, in bytes: names have at most 1,020 each.
const tokenBytesMax = 4096

// tokenPurpose is what the key of tokens is derived with from a master key, so that no token is the signature of a
// request.
const tokenPurpose = "millrace resource token 1"

// tokenHead is how the text of a token begins.
const tokenHead = "type=resource&ver=1&sig="

// Token is what a resource token says.
type Token struct {
	// Database and User name the user whose permission has the serial.
	Database, User string
	Serial         Serial
	// Expires is when it opens nothing any more, in whole seconds.
	Expires time.Time
}

// Sign returns the text of a token, signed with a master key.
func (t *Token) Sign(master []byte) string {
	said := append(make([]byte, 0, 64+len(t.Database)+len(t.User)), tokenVersion)
	said = binary.BigEndian.AppendUint64(said, uint64(t.Expires.Unix()))
	said = append(said, t.Serial[:]...)
	said = binary.BigEndian.AppendUint16(said, uint16(len(t.Database)))
	said = append(append(said, t.Database...), t.User...)
	encoding := base64.RawURLEncoding
	return tokenHead + encoding.EncodeToString(tokenSum(master, said)) + ";" + encoding.EncodeToString(said) + ";"
}

func tokenSum(master, said []byte) []byte { return sum(sum(master, []byte(tokenPurpose)), said) }

func sum(key, text []byte) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write(text) // a hash takes everything
	return mac.Sum(nil)
}

// Signed is a token as it was received, of which nothing is believed before By has said whose it is.
type Signed struct {
	signature, said []byte
}

// ErrToken says that a text is no token.
var ErrToken = errors.New("it is no resource token: the _token of a permission is expected as it was received")

// ParseToken reads what follows sig= in the text of a token.
func ParseToken(text string) (*Signed, error) {
	parts := strings.Split(text, ";")
	if len(text) > tokenBytesMax || len(parts) < 2 || len(parts) > 3 || len(parts) == 3 && parts[2] != "" {
		return nil, ErrToken
	}
	signature, errSignature := base64.RawURLEncoding.Strict().DecodeString(parts[0])
	said, errSaid := base64.RawURLEncoding.Strict().DecodeString(parts[1])
	if errSignature != nil || errSaid != nil || len(signature) != sha256.Size {
		return nil, ErrToken
	}
	return &Signed{signature, said}, nil
}

// By tells in constant time whether a master key has signed the token.
func (s *Signed) By(master []byte) bool { return hmac.Equal(tokenSum(master, s.said), s.signature) }

// tokenFixed are the bytes of what a token says before the names.
const tokenFixed = 1 + 8 + len(Serial{}) + 2

// Token returns what a token says. Call it only where By is true.
func (s *Signed) Token() (*Token, error) {
	b := s.said
	if len(b) < tokenFixed || b[0] != tokenVersion {
		return nil, ErrToken // of a later release, whose key this is too
	}
	t := &Token{Expires: time.Unix(int64(binary.BigEndian.Uint64(b[1:])), 0)}
	copy(t.Serial[:], b[9:])
	names, n := b[tokenFixed:], int(binary.BigEndian.Uint16(b[tokenFixed-2:]))
	if n > len(names) {
		return nil, ErrToken
	}
	t.Database, t.User = string(names[:n]), string(names[n:])
	return t, nil
}
