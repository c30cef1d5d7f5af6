package document

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/feed/document/scan"
)

// Limits of items, those of Azure Cosmos DB.
const (
	SizeMax  = 2 << 20 // bytes of an item
	DepthMax = 128     // objects and arrays within each other, the item itself counted
	IDMax    = 1023    // bytes of an id
)

// Check reports whether body is an item: one JSON object in UTF-8 with nothing but
// white space around it, at most SizeMax bytes and DepthMax deep, in which no
// object has two members of one name, no string holds half of a surrogate pair,
// and no number has an exponent beyond ExponentMax.
//
// The error is a *SizeError or a *SyntaxError.
func Check(body []byte) error {
	if len(body) > SizeMax {
		return &SizeError{Size: len(body)}
	}
	i := skipJSONSpace(body, 0)
	switch {
	case i == len(body):
		return syntaxError(body, i, "nothing here, want a JSON object")
	case bytes.HasPrefix(body, []byte("\xEF\xBB\xBF")):
		return syntaxError(body, 0, "byte order mark, want a JSON object")
	case body[i] != '{' && utf8.Valid(body):
		return syntaxError(body, i, "an item is a JSON object, not %s", describe(body, i))
	}
	_, err := check(body, 1)
	return err
}

// CheckValue reports whether raw is one JSON value that may stand in an item. The
// error is as of Check.
func CheckValue(raw []byte) error {
	if len(raw) > SizeMax {
		return &SizeError{Size: len(raw)}
	}
	_, err := check(raw, 1)
	return err
}

// CheckID reports whether id may be the id of an item: 1 to IDMax bytes of UTF-8.
// The error says what is wrong.
func CheckID(id string) error { return checkID(id, "") }

// CheckPlainID is CheckID of an id without / \ ? and #, which URLs encode. Earlier releases
// know no others, and Millrace makes no others by itself.
func CheckPlainID(id string) error { return checkID(id, `/\?#`) }

func checkID(id, without string) error {
	switch i := strings.IndexAny(id, without); {
	case id == "":
		return errors.New("an id must not be empty")
	case len(id) > IDMax:
		return fmt.Errorf("the id has %d bytes, more than %d", len(id), IDMax)
	case !utf8.ValidString(id):
		return fmt.Errorf("the id %q is not UTF-8", id)
	case i >= 0:
		return fmt.Errorf("the id %q holds %q, which must not be in an id", id, id[i])
	}
	return nil
}

// CheckNewID reports whether an item may be made with id: CheckID, and it is neither
// . nor .., which every URL library takes out of a path, so that no SDK could read
// or delete the item. CheckID allows them, so that an item of an earlier version
// with such an id can still be reached over NATS.
func CheckNewID(id string) error {
	if id == "." || id == ".." {
		return fmt.Errorf("the id %q is not allowed: a URL drops it from its path, so no SDK could address the item; choose another id", id)
	}
	return CheckID(id)
}

// check checks one value whose outermost object or array is at the given depth,
// and returns how deep it is: 0 for a scalar.
func check(body []byte, depth int) (deep int, err error) {
	// UTF-8 is checked for the whole text at once, so that strings need not be decoded. The
	// loop only finds the position for the error.
	if !utf8.Valid(body) {
		i := 0
		for i < len(body) {
			r, n := utf8.DecodeRune(body[i:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			i += n
		}
		return 0, syntaxError(body, i, "byte 0x%02X is not UTF-8", body[i])
	}
	// Room for the names of open objects, on the stack: an item with few members in each of
	// its objects is checked without allocating.
	var space [32]span
	c := checker{body: body}
	i := skipJSONSpace(body, 0)
	if i = c.value(i, depth, space[:0]); c.err == nil {
		if i = skipJSONSpace(body, i); i < len(body) {
			c.fail(i, "%s after the end of the value", describe(body, i))
		}
	}
	if c.err != nil {
		return 0, c.err
	}
	return max(0, c.deepest-depth+1), nil
}

// checker checks a JSON text. Its methods take the index at which something must begin, and
// return the index behind it, or -1 after they have set err. names is one array for all
// objects that are open, each behind the one that holds it:
//
//	{"a": {"b": 1, "c": 2}}     at 2: names of the outer object  a
//	                                  names of the inner object    b c
type checker struct {
	body    []byte
	err     error
	deepest int
}

// span is the inside of a string in the body.
type span struct{ start, end int }

func (c *checker) fail(i int, format string, args ...any) int {
	if c.err == nil {
		c.err = syntaxError(c.body, i, format, args...)
	}
	return -1
}

func (c *checker) value(i, depth int, names []span) int {
	if i >= len(c.body) {
		return c.fail(i, "the text ends where a value must stand")
	}
	switch b := c.body[i]; {
	case b == '"':
		return c.text(i)
	case b == '{' || b == '[':
		if depth > DepthMax {
			return c.fail(i, "nested more than %d deep", DepthMax)
		}
		c.deepest = max(c.deepest, depth)
		if b == '{' {
			return c.object(i, depth, names[len(names):]) // empty, behind the outer object's names
		}
		return c.array(i, depth, names)
	case b == '-' || b >= '0' && b <= '9':
		return c.number(i)
	case b == 't':
		return c.word(i, "true")
	case b == 'f':
		return c.word(i, "false")
	case b == 'n':
		return c.word(i, "null")
	}
	return c.fail(i, "%s where a value must stand", describe(c.body, i))
}

func (c *checker) object(i, depth int, names []span) int {
	body := c.body
	var seen map[string]struct{} // for objects with many members
	i = skipJSONSpace(body, i+1)
	if i < len(body) && body[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(body) || body[i] != '"' {
			return c.fail(i, "%s where the name of a member must stand", describe(body, i))
		}
		name := i
		if i = c.text(i); i < 0 {
			return -1
		}
		if names, seen = c.member(span{name + 1, i - 1}, names, seen); c.err != nil {
			return -1
		}
		i = skipJSONSpace(body, i)
		if i >= len(body) || body[i] != ':' {
			return c.fail(i, "%s where the colon after a name must stand", describe(body, i))
		}
		if i = c.value(skipJSONSpace(body, i+1), depth+1, names); i < 0 {
			return -1
		}
		i = skipJSONSpace(body, i)
		if i < len(body) && body[i] == '}' {
			return i + 1
		}
		if i >= len(body) || body[i] != ',' {
			return c.fail(i, "%s where a comma or } must stand", describe(body, i))
		}
		i = skipJSONSpace(body, i+1)
	}
}

func (c *checker) array(i, depth int, names []span) int {
	body := c.body
	i = skipJSONSpace(body, i+1)
	if i < len(body) && body[i] == ']' {
		return i + 1
	}
	for {
		if i = c.value(i, depth+1, names); i < 0 {
			return -1
		}
		i = skipJSONSpace(body, i)
		if i < len(body) && body[i] == ']' {
			return i + 1
		}
		if i >= len(body) || body[i] != ',' {
			return c.fail(i, "%s where a comma or ] must stand", describe(body, i))
		}
		i = skipJSONSpace(body, i+1)
	}
}

// member adds a name to those of its object, and refuses a name that is there already. It
// compares with each name while they are few; then it moves them to the map seen.
func (c *checker) member(name span, names []span, seen map[string]struct{}) ([]span, map[string]struct{}) {
	const few = 16
	raw := c.body[name.start:name.end]
	twice := false
	if seen == nil && len(names) == few {
		seen = make(map[string]struct{}, 4*few)
		for _, s := range names {
			seen[string(scan.AppendText(nil, c.body[s.start:s.end]))] = struct{}{}
		}
	}
	if seen != nil {
		text := string(scan.AppendText(nil, raw))
		_, twice = seen[text]
		seen[text] = struct{}{}
	} else {
		for _, s := range names {
			if twice = scan.EqualTexts(c.body[s.start:s.end], raw); twice {
				break
			}
		}
		names = append(names, name)
	}
	if twice {
		c.fail(name.start-1, "the object has a member %q already", scan.AppendText(nil, raw))
	}
	return names, seen
}
