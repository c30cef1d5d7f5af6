package propose

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/millrace/millrace/pipelines/spec"
)

// nameMax is how long a name may be.
const nameMax = 63

// names gives pipelines names that no other has.
type names map[string]bool

func newNames(there spec.Existing, database string) names {
	n := names{}
	for i := range there.Pipelines {
		if m := there.Pipelines[i].Metadata; m.Database == database {
			n[m.Name] = true
		}
	}
	return n
}

var noName = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// takeFor names a proposal for what it copies and where: category-in-product.
func (n names) takeFor(p *Proposal) string {
	label := p.Source
	if p.sourceValue() != "" {
		label = p.sourceValue()
	}
	name := strings.Trim(noName.ReplaceAllString(label+"-in-"+p.Into, "-"), "-_")
	name = name[:min(len(name), nameMax-4)] // there is room for a number
	one := name
	for i := 2; n[one]; i++ {
		one = name + "-" + strconv.Itoa(i)
	}
	n[one] = true
	return one
}

// sourceValue is the type of the source's items, "" if they have none.
func (p *Proposal) sourceValue() string {
	_, text, _ := strings.Cut(p.SourceWhere, " = ")
	var value string
	if json.Unmarshal([]byte(text), &value) != nil {
		return ""
	}
	return value
}

// yaml writes a proposal as a document, with what was seen as comments.
func (p *Proposal) yaml(database string) string {
	var b strings.Builder
	where, what := p.Into, "items"
	if p.Each != "" {
		where, what = p.Each+" of "+p.Into, "elements"
	}
	source := p.Source
	if p.SourceWhere != "" {
		source += " (" + p.SourceWhere + ")"
	}
	fmt.Fprintf(&b, "# In %s, %s names an item of %s in %s %s that were looked at.\n", where, p.Field, source, p.Names, what)
	for _, c := range p.Set {
		if c.Equal.Of == 0 {
			fmt.Fprintf(&b, "# %s is not there yet; it would be the item's %s.\n", c.Field, c.Source)
			continue
		}
		fmt.Fprintf(&b, "# %s is that item's %s in %s.\n", c.Field, c.Source, c.Equal)
	}
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\n", spec.APIVersion, spec.KindPipeline)
	if database == spec.DatabaseDefault {
		fmt.Fprintf(&b, "metadata: {name: %s}\n", plain(p.Name))
	} else {
		fmt.Fprintf(&b, "metadata: {name: %s, database: %s}\n", plain(p.Name), plain(database))
	}
	fmt.Fprintf(&b, "spec:\n  source:                     # what is copied\n    container: %s\n", plain(p.Source))
	if p.SourceWhere != "" {
		fmt.Fprintf(&b, "    where: %s\n", expression(p.SourceWhere))
	}
	fmt.Fprintf(&b, "  cascade:\n    into: %s\n", plain(p.Into))
	if p.Where != "" {
		fmt.Fprintf(&b, "    where: %s\n", expression(p.Where))
	}
	if p.Each != "" {
		fmt.Fprintf(&b, "    each: %s # the copies are the elements of this array\n", plain(p.Each))
	}
	b.WriteString("    match:                    # field of the copy: field of the source that it equals\n")
	for _, m := range p.Match {
		of := make([]string, len(m.Source))
		for i, s := range m.Source {
			of[i] = plain(s)
		}
		list := strings.Join(of, ", ")
		if len(of) > 1 {
			list = "[" + list + "]"
		}
		fmt.Fprintf(&b, "      %s: %s\n", plain(m.Field), list)
	}
	b.WriteString("    set:                      # field of the copy: field of the source that it gets\n")
	for _, c := range p.Set {
		fmt.Fprintf(&b, "      %s: %s\n", plain(c.Field), plain(c.Source))
	}
	b.WriteString("    onSourceDelete: keep      # or clear, or delete: what becomes of copies without a source\n")
	return b.String()
}

var (
	plainText  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)
	plainWhere = regexp.MustCompile(`^[A-Za-z]+ = "[A-Za-z0-9_ .-]*"$`)
	reserved   = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null)$`)
)

// plain writes a text as YAML reads it: bare where that is the same.
func plain(text string) string {
	if plainText.MatchString(text) && !reserved.MatchString(text) {
		return text
	}
	return quote(text)
}

// expression is plain for expressions.
func expression(text string) string {
	if plainWhere.MatchString(text) {
		return text
	}
	return quote(text)
}

// quote writes a text in double quotes. What JSON escapes, YAML reads.
func quote(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		return strconv.Quote(text)
	}
	return string(data)
}
