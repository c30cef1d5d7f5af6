package query

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of a regular expression. Matching a text takes at most the number of its instructions
// times the number of the text's characters.
const (
	// RegexpTextMax bounds its bytes: names of large classes are short and slow to read.
	RegexpTextMax = 4 << 10
	// RegexpInstMax bounds the instructions of its program, so that one character is
	// matched in less than a millisecond. A repetition such as {100} counts as often.
	RegexpInstMax = 10_000
	// regexpsTextMax bounds the bytes of all regular expressions of one text.
	regexpsTextMax = 4 * RegexpTextMax
)

// errRegexp says that a regular expression is beyond its limits.
var errRegexp = errors.New("the regular expression is too large")

// matcher is a regular expression.
type matcher struct {
	re     *regexp.Regexp
	insts  int    // how many instructions it has, nearly
	prefix []byte // every match begins with it, wherever in the text the match is
}

// parseRegexp compiles a regular expression (RE2) with the flags c, i, m and s; c means
// nothing. The matcher is nil if text is not a regular expression or a flag is not known.
// The error is errRegexp if it is beyond the limits.
func parseRegexp(text, flags string) (*matcher, error) {
	if len(text) > RegexpTextMax {
		return nil, fmt.Errorf("%w: it has %d bytes, and %d are allowed", errRegexp, len(text), RegexpTextMax)
	}
	if f := strings.ReplaceAll(flags, "c", ""); f != "" {
		if strings.Trim(f, "ims") != "" {
			return nil, nil
		}
		text = "(?" + f + ")" + text
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		if e, ok := errors.AsType[*syntax.Error](err); ok && e.Code == syntax.ErrLarge {
			return nil, fmt.Errorf("%w: it needs more than %d instructions; shorten its repetitions", errRegexp, RegexpInstMax)
		}
		return nil, nil
	}
	// Measured before it is compiled: {1000} is short, and its program is not.
	insts := instsOf(tree)
	if insts > RegexpInstMax {
		return nil, fmt.Errorf("%w: it needs about %d instructions, and %d are allowed; shorten its repetitions", errRegexp, insts, RegexpInstMax)
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, nil //nolint:nilerr // text is no regular expression, which is undefined and no error
	}
	m := &matcher{re: re, insts: insts}
	// match cuts off the text before the prefix. An anchor means the beginning of the whole
	// text, which that would move.
	if !anchored(tree) {
		prefix, _ := re.LiteralPrefix()
		m.prefix = []byte(prefix)
	}
	return m, nil
}

// anchored reports whether a part of a regular expression matches at the beginning of
// the text only.
func anchored(re *syntax.Regexp) bool {
	return re.Op == syntax.OpBeginText || slices.ContainsFunc(re.Sub, anchored)
}

// instsOf estimates how many instructions a regular expression becomes, rather too many than
// too few. Large classes count by their ranges.
func instsOf(re *syntax.Regexp) int {
	const (
		beyond = 1 << 40 // that products do not overflow
		class  = 16      // ranges that count as an instruction
	)
	n := 0
	for _, sub := range re.Sub {
		n = min(n+instsOf(sub)+1, beyond)
	}
	switch re.Op {
	case syntax.OpLiteral:
		n += len(re.Rune)
	case syntax.OpCharClass:
		n += 1 + len(re.Rune)/2/class
	case syntax.OpRepeat:
		times := max(re.Min, re.Max, 1)
		if re.Max < 0 {
			times = re.Min + 1
		}
		n = min(n*max(times, 1), beyond)
	default:
		n += 2
	}
	return n
}

// newRegexp is parseRegexp of values; nil if there is none.
func (f *frame) newRegexp(re, flags Value) *matcher {
	if re.typ != String || flags.typ != Undefined && flags.typ != String {
		return nil
	}
	if len(re.data) > RegexpTextMax || !f.charge(workRegexp*len(re.data)) {
		return nil
	}
	m, err := parseRegexp(string(re.data), string(flags.data))
	if err != nil {
		return nil
	}
	if f != nil {
		f.checkBudget()
	}
	return m
}

// regexMatch reports whether a string has a match.
func (f *frame) regexMatch(s Value, m *matcher) Value {
	if s.typ != String || m == nil {
		return Value{}
	}
	return boolValue(m.match(s.data, f))
}

// matchAtOnce is the most work of a match that is not interrupted: some milliseconds.
const matchAtOnce = 1 << 22

// match reports whether a text has a match; when the budget is spent, what it returns
// means nothing.
//
// Where work is counted, not timed, all that the match could take is counted first: a
// library that matches faster, or stops elsewhere, must not change what is in a log.
func (m *matcher) match(text []byte, f *frame) bool {
	work := workInst * m.insts * (len(text) + 1)
	switch {
	case f == nil:
		return m.re.Match(text)
	case f.workMax > 0:
		return f.charge(work) && m.re.Match(text)
	case work <= matchAtOnce:
		f.charge(work)
		return m.re.Match(text)
	}
	// A search for the prefix is much faster than a match, and most texts do not have it.
	at := bytes.Index(text, m.prefix)
	f.chargeScan(len(text))
	if at < 0 {
		return false
	}
	text = text[at:]
	return m.re.MatchReader(&counted{text: text, frame: f, work: workInst * m.insts})
}

// counted reads the characters of a text for a match. It counts the work of each, and ends the
// text when the budget is spent: package regexp has no other way to stop a match half-way.
type counted struct {
	text  []byte
	frame *frame
	work  int // of a character
}

func (c *counted) ReadRune() (r rune, size int, err error) {
	if len(c.text) == 0 || !c.frame.charge(c.work) {
		return 0, 0, io.EOF
	}
	r, size = utf8.DecodeRune(c.text)
	c.text = c.text[size:]
	return r, size, nil
}

// checkRegexps returns an error if regular expressions are beyond their limits.
func checkRegexps(root node) error {
	var err error
	size := 0
	visit(root, func(n node) {
		c, ok := n.(*call)
		if !ok || c.name != "REGEXMATCH" || err != nil {
			return
		}
		if re, _, ok := regexpOf(c); ok {
			size += len(re.data)
		}
		switch msg := checkRegexp(c); {
		case msg != "":
			err = errors.New(msg)
		case size > regexpsTextMax:
			err = fmt.Errorf("%w: all of the text have %d bytes together, and %d are allowed", errRegexp, size, regexpsTextMax)
		}
	})
	return err
}

// regexpOf returns the regular expression of a call of REGEXMATCH; ok is false if it,
// or its flags, are not constant.
func regexpOf(n *call) (re, flags Value, ok bool) {
	var values [2]Value
	for i, arg := range n.args[1:] {
		if values[i], ok = constant(arg); !ok {
			return re, flags, false
		}
	}
	return values[0], values[1], true
}

// compileRegexMatch compiles a call of REGEXMATCH whose regular expression is
// constant; it returns nil for every other call.
func compileRegexMatch(n *call) eval {
	re, flags, ok := regexpOf(n)
	if !ok {
		return nil
	}
	s, m := compile(n.args[0]), (*frame)(nil).newRegexp(re, flags)
	return func(item []byte, f *frame) Value { return f.regexMatch(s(item, f), m) }
}

// checkRegexp returns what is wrong with the size of a call's regular expression; "" if nothing
// is, or if it is not constant.
func checkRegexp(n *call) string {
	re, flags, ok := regexpOf(n)
	if !ok || re.typ != String {
		return ""
	}
	if _, err := parseRegexp(string(re.data), string(flags.data)); err != nil {
		return err.Error()
	}
	return ""
}
