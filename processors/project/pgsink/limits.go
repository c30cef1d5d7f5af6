package pgsink

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/processors/project"
)

const (
	// indexBytesMax bounds the values of one entry of an index. A B-tree takes
	// entries of up to a third of its page, 2704 bytes.
	indexBytesMax = 2680
	// indexValueBytes is what one value of an entry takes at most beside its text.
	indexValueBytes = 8
	// indexFixedBytes is the most that a value takes that is no text: a numeric of
	// 38 digits.
	indexFixedBytes = 32

	// numericBeforeMax and numericBehindMax are the decimal digits that a number in
	// jsonb may have before and behind the point.
	numericBeforeMax = 131_072
	numericBehindMax = 16_383
)

// CannotHold says which value of a row PostgreSQL does not take: text with U+0000,
// JSON with it or with a number of too many digits, keys and indexed values that
// are too long for an index.
func (s *Sink) CannotHold(schema *project.Schema, r *project.Row) (column, reason string) {
	t := &schema.Tables[r.Table]
	for i, v := range r.Values {
		switch v.Kind() {
		case project.Text:
			if strings.IndexByte(v.Text(), 0) >= 0 {
				return t.Columns[i].Name, "holds the character U+0000, which PostgreSQL does not take"
			}
		case project.JSON:
			if reason := jsonRefusal(v.JSON()); reason != "" {
				return t.Columns[i].Name, reason
			}
		default:
		}
	}
	if column, reason := tooLong(t, "the key", t.Key, r.Values); reason != "" {
		return column, reason
	}
	for _, index := range t.Index {
		if column, reason := tooLong(t, "an index", index, r.Values); reason != "" {
			return column, reason
		}
	}
	return "", ""
}

// tooLong says whether the values of some columns are too long for an entry of an
// index; the column is the longest.
func tooLong(t *project.TableSchema, what string, columns []int, values []project.Value) (column, reason string) {
	total, longest, most := 0, 0, -1
	for _, i := range columns {
		size := indexFixedBytes
		if values[i].Kind() == project.Text {
			size = len(values[i].Text()) + indexValueBytes
		}
		if total += size; size > most {
			longest, most = i, size
		}
	}
	if total <= indexBytesMax {
		return "", ""
	}
	return t.Columns[longest].Name, fmt.Sprintf("is too long for %s: PostgreSQL takes about %d bytes in all of its columns", what, indexBytesMax)
}

// jsonRefusal says why jsonb does not take valid JSON; "" if it does.
func jsonRefusal(raw string) string {
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == '"':
			end, zero := skipString(raw, i)
			if zero {
				return "holds the character U+0000, which PostgreSQL does not take"
			}
			i = end
		case c == '-' || '0' <= c && c <= '9':
			end := i + 1
			for end < len(raw) && strings.IndexByte("0123456789+-.eE", raw[end]) >= 0 {
				end++
			}
			if !numberFits(raw[i:end]) {
				return fmt.Sprintf("holds a number of more than %d digits before or %d behind the point, which PostgreSQL does not take",
					numericBeforeMax, numericBehindMax)
			}
			i = end
		default:
			i++
		}
	}
	return ""
}

// skipString returns the index behind the string that begins at i, and whether it
// holds U+0000.
func skipString(raw string, i int) (end int, zero bool) {
	for i++; i < len(raw) && raw[i] != '"'; i++ {
		if raw[i] != '\\' {
			continue
		}
		i++
		zero = zero || strings.HasPrefix(raw[i:], "u0000")
	}
	return i + 1, zero
}

// numberFits says whether the digits of a number, all written out, are within the
// limits.
func numberFits(number string) bool {
	mantissa, exponent := number, 0
	if at := strings.IndexAny(number, "eE"); at >= 0 {
		n, err := strconv.Atoi(number[at+1:])
		if err != nil {
			return false
		}
		mantissa, exponent = number[:at], n
	}
	// An exponent moves the point: 1.5e3 has 1+3 digits before it and 1-3, which is none,
	// behind. PostgreSQL writes them all out.
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	return len(whole)+exponent <= numericBeforeMax && len(fraction)-exponent <= numericBehindMax
}

// Check says which columns PostgreSQL does not index.
func (s *Sink) Check(schema *project.Schema) []project.Problem {
	var problems []project.Problem
	for i := range schema.Tables {
		t := &schema.Tables[i]
		for j, index := range t.Index {
			for _, c := range index {
				if t.Columns[c].Type.Kind == project.KindJSON {
					problems = append(problems, project.Problem{
						Field:   fmt.Sprintf("project.tables.%s.index[%d]", t.Name, j),
						Message: fmt.Sprintf("%q is of type json, which is not compared; index a column of another type", t.Columns[c].Name),
					})
				}
			}
			if slices.ContainsFunc(t.Index[:j], func(other []int) bool { return slices.Equal(other, index) }) {
				problems = append(problems, project.Problem{
					Field: fmt.Sprintf("project.tables.%s.index[%d]", t.Name, j), Message: "is there twice",
				})
			}
		}
	}
	return problems
}
