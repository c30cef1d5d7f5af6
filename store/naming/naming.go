// Package naming says what databases, containers and pipelines may be called, and how such a
// name is written where few characters are taken, as in keys of NATS.
//
// Two rules:
//
//	plain   1 to 63 ASCII letters, digits, - and _, the first a letter or digit: pipelines, and tests of them
//	wide    1 to 255 characters of any kind but control characters, / \ # ? and a space at the end,
//	        and neither . nor ..: databases and containers, as in Azure Cosmos DB
//
// A plain name is a wide one. It is written as it is. Any other is written as = and the base64url of its
// bytes (RFC 4648, section 5, without padding):
//
//	orders      orders
//	日本        =5pel5pys
//	a.b         =YS5i
//
// So two names never have one token, no plain name begins as the others do, and a token holds neither a dot, which
// divides the keys of NATS, nor a wildcard. It has at most 1,361 bytes (255 characters of four bytes each), two of them in a
// key less than the 4,096 that a NATS server takes of a line. Tokens tell upper from lower case, so
// they are no names of files. Names are compared byte by byte, as the service does: neither case nor the forms of
// Unicode's normalization count as equal, so é and e with an accent behind it name two containers.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package naming

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CharactersMax is how many characters, as Unicode counts them, a wide name has at most.
const CharactersMax = 255

// mark begins the token of a name that is not plain.
const mark = "="

var plain = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// IsPlain reports whether a name is plain: earlier releases took no other.
func IsPlain(name string) bool { return plain.MatchString(name) }

// CheckPlain returns an error that tells the rule unless name is plain.
func CheckPlain(name string) error {
	if !IsPlain(name) {
		return errors.New("1 to 63 letters, digits, - and _ are allowed, the first a letter or digit")
	}
	return nil
}

// Check returns an error that tells what is wrong unless name is wide.
func Check(name string) error {
	if IsPlain(name) {
		return nil
	}
	n := utf8.RuneCountInString(name)
	switch at := strings.IndexFunc(name, func(r rune) bool { return unicode.IsControl(r) || strings.ContainsRune(`/\#?`, r) }); {
	case name == "" || n > CharactersMax:
		return fmt.Errorf("it has %d characters; 1 to %d are allowed", n, CharactersMax)
	case !utf8.ValidString(name):
		return errors.New("it is not UTF-8")
	case at >= 0:
		r, _ := utf8.DecodeRuneInString(name[at:])
		return fmt.Errorf("it holds %q; / \\ # ? and control characters are not allowed", r)
	case strings.HasSuffix(name, " "):
		return errors.New("it ends with a space, which is not allowed")
	case name == "." || name == "..":
		return errors.New("a URL drops it from its path, so no client could address what it names")
	}
	return nil
}

// Token returns how a name is written where few characters are taken. It takes any text, also what cannot be a name, for
// who looks for one.
func Token(name string) string {
	if IsPlain(name) {
		return name
	}
	return mark + base64.RawURLEncoding.EncodeToString([]byte(name))
}

// OfToken returns the name that a token stands for. An error says that Token does not return it.
func OfToken(token string) (string, error) {
	if IsPlain(token) {
		return token, nil
	}
	if coded, ok := strings.CutPrefix(token, mark); ok {
		// What decodes may still have been written in another way: trailing bits, line breaks, or a plain name.
		if raw, err := base64.RawURLEncoding.DecodeString(coded); err == nil && Token(string(raw)) == token {
			return string(raw), nil
		}
	}
	return "", fmt.Errorf("%q stands for no name", token)
}
