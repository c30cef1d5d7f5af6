package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Place is where something stands in a YAML file. Line and Column count from 1,
// columns in characters. The zero Place means that it was not read from a file.
type Place struct {
	File         string
	Line, Column int
}

// String returns file:line:column, or "" for the zero Place.
func (p Place) String() string {
	if p == (Place{}) {
		return ""
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Finding is one thing wrong with a declaration.
type Finding struct {
	Place   Place
	Message string
	// Secret says that what stands there may be a secret, which nobody is to be shown.
	Secret bool
}

func (f Finding) Error() string {
	if f.Place == (Place{}) {
		return f.Message
	}
	return f.Place.String() + ": " + f.Message
}

// Findings is everything that is wrong with a set of declarations, ordered by
// place. As an error it prints one finding a line.
type Findings []Finding

func (f Findings) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Err returns f as an error, nil if there is nothing in it.
func (f Findings) Err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// Add adds a finding.
func (f *Findings) Add(at Place, format string, args ...any) {
	*f = append(*f, Finding{Place: at, Message: fmt.Sprintf(format, args...)})
}

// Sorted returns f ordered by place, what has none last, and each finding once.
func (f Findings) Sorted() Findings {
	slices.SortStableFunc(f, func(a, b Finding) int {
		return cmp.Or(
			-cmp.Compare(min(a.Place.Line, 1), min(b.Place.Line, 1)),
			cmp.Compare(a.Place.File, b.Place.File),
			cmp.Compare(a.Place.Line, b.Place.Line),
			cmp.Compare(a.Place.Column, b.Place.Column),
			strings.Compare(a.Message, b.Message),
		)
	})
	return slices.Compact(f)
}

// Nearest returns the one of names that name was probably meant to be, or "".
func Nearest(name string, names []string) string {
	best, bestAt := "", len(name)/3+2
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return n
		}
		if d := Distance(name, n); d < bestAt {
			best, bestAt = n, d
		}
	}
	return best
}

// didYouMean returns a question that ends a message, or "".
func didYouMean(name string, names []string) string {
	if n := Nearest(name, names); n != "" {
		return "; did you mean " + n + "?"
	}
	return ""
}

// Distance is how many letters must be changed, added, removed or swapped with
// their neighbour to make b of a (optimal string alignment).
func Distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	var before, row []int
	next := make([]int, len(y)+1)
	for j := range next {
		next[j] = j
	}
	for i := 1; i <= len(x); i++ {
		before, row = row, next
		next = make([]int, len(y)+1)
		next[0] = i
		for j := 1; j <= len(y); j++ {
			change := row[j-1]
			if x[i-1] != y[j-1] {
				change++
			}
			next[j] = min(change, row[j]+1, next[j-1]+1)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
	}
	return next[len(y)]
}

// oneOf joins names for a message: a, b or c.
func oneOf(names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}
