package reference_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/millrace/millrace/cmd/millrace/internal/reference"
	"github.com/millrace/millrace/integration/storetest"
)

const (
	pageFile     = "../../../../docs/pipelines.md"
	pageTemplate = "testdata/pipelines.md.tmpl"
	samples      = "../../../../configs"
)

// TestPage_IsWhatTheSchemaSays holds docs/pipelines.md equal to the template, the schema
// and the samples; -update writes it anew.
func TestPage_IsWhatTheSchemaSays(t *testing.T) {
	p := &page{t: t, tree: tree(t), told: map[string]bool{}}
	funcs := template.FuncMap{"table": p.table, "keys": p.keys, "sample": p.sample}
	tmpl, err := template.New(filepath.Base(pageTemplate)).Funcs(funcs).ParseFiles(pageTemplate)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := tmpl.Execute(&out, nil); err != nil {
		t.Fatal(err)
	}
	for _, kind := range p.tree.Kinds {
		for k := range kind.All() {
			if len(k.Keys) > 0 && !p.told[k.Path] {
				t.Errorf("the page has no table of the keys of %s", k.Path)
			}
		}
	}
	storetest.Golden(t, pageFile, out.String())
}

// page writes the generated parts.
type page struct {
	t    *testing.T
	tree *reference.Tree
	told map[string]bool // paths whose keys have a table
}

// table is the keys of a path, without what is in them.
func (p *page) table(path string) (string, error) {
	k, err := p.tree.Find(path)
	if err != nil {
		return "", err
	}
	p.told[k.Path] = true
	var b strings.Builder
	b.WriteString("| key | takes | meaning |\n|---|---|---|\n")
	for _, c := range k.Keys {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.Name(), takes(c), meaning(c))
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// keys is table, and those of all that has keys below it, under headings.
func (p *page) keys(path string) (string, error) {
	k, err := p.tree.Find(path)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for one := range k.All() {
		if len(one.Keys) == 0 {
			continue
		}
		table, err := p.table(one.Path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "#### `%s`\n\n", one.Path)
		if len(one.Limits) > 0 {
			fmt.Fprintf(&b, "Takes %s.\n\n", escape(strings.Join(one.Limits, ", ")))
		}
		b.WriteString(table + "\n\n")
	}
	return strings.TrimSuffix(b.String(), "\n\n"), nil
}

// takes is the second cell of a key: its type, and what stands beside it.
func takes(k *reference.Key) string {
	cell := k.Type
	if len(k.Values) > 0 {
		cell = "`" + strings.Join(k.Values, "`, `") + "`"
	}
	for _, limit := range k.Limits {
		if !strings.HasPrefix(limit, "exactly") && !strings.HasPrefix(limit, "at least one") { // said above the keys
			cell += ", " + limit
		}
	}
	switch {
	case k.Required:
		cell += "; **required**"
	case k.Default != "" && !strings.Contains(k.Default, " "):
		cell += "; default `" + k.Default + "`"
	}
	return cell
}

// meaning is the third cell of a key.
func meaning(k *reference.Key) string {
	return "`" + k.Name() + "`" + escape(strings.TrimPrefix(k.Text, k.Name()))
}

// escape keeps Markdown from reading the words of comments.
func escape(text string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "_", `\_`, "<", "&lt;").Replace(text)
}

// sample is a file of configs with a link to it: one of its documents, counted from 1.
func (p *page) sample(name string, document int) (string, error) {
	data, err := os.ReadFile(filepath.Join(samples, filepath.FromSlash(name)))
	if err != nil {
		return "", err
	}
	documents := strings.Split(string(data), "\n---\n")
	if document > len(documents) {
		return "", fmt.Errorf("%s has %d documents", name, len(documents))
	}
	return fmt.Sprintf("[configs/%s](../configs/%[1]s):\n\n```yaml\n%s\n```", name, strings.TrimSpace(documents[document-1])), nil
}
