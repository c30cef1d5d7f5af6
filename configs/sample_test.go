package configs

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write golden files anew")

const sampleHeader = `# millrace.yaml: every key of a Millrace process, with its meaning and its
# default. A key that is left out, or has no value, takes its default.
#
#   millrace up --config millrace.yaml
#
# The environment goes above this file: store.queueMax is MILLRACE_STORE_QUEUE_MAX.
# Flags go above both: --set store.queueMax=1000. Times are written 500ms, 7s or
# 168h, sizes in bytes or as 64MiB.
#
# Generated from the comments of the fields; see sample_test.go.
`

// TestSample_IsWhatTheFieldsSay keeps millrace.yaml equal to the comments in the
// packages.
func TestSample_IsWhatTheFieldsSay(t *testing.T) {
	g := &sampler{t: t, docs: map[string]map[string]fieldDoc{}}
	g.out.WriteString(sampleHeader)
	g.walk(reflect.ValueOf(&Config{}).Elem(), 0)
	if *update {
		if err := os.WriteFile("millrace.yaml", g.out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	sample, err := os.ReadFile("millrace.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(g.out.String(), string(sample)); diff != "" {
		t.Errorf("millrace.yaml is out of date; run: go test ./configs -run Sample -update\n%s", diff)
	}
}

func TestSample_Loads(t *testing.T) {
	if _, err := Load("millrace.yaml", nil, nil); err != nil {
		t.Error(err)
	}
}

// fieldDoc is a field's comment and its place among the fields that share it.
type fieldDoc struct {
	text  string
	place int
}

// sampler writes the sample.
type sampler struct {
	t    *testing.T
	out  bytes.Buffer
	docs map[string]map[string]fieldDoc // package path and type name: field name: comment
}

func (g *sampler) walk(v reflect.Value, depth int) {
	indent := strings.Repeat("  ", depth)
	docs := g.fieldDocs(v.Type())
	first := true
	fields(v, func(key string, field reflect.StructField, value reflect.Value) bool {
		doc := docs[field.Name]
		if doc.text == "" {
			g.t.Errorf("%s.%s has the key %s and no comment", v.Type(), field.Name, key)
		}
		if doc.place == 0 {
			if depth == 0 || !first {
				g.out.WriteString("\n")
			}
			for line := range strings.SplitSeq(strings.TrimSpace(doc.text), "\n") {
				fmt.Fprintf(&g.out, "%s# %s\n", indent, line)
			}
		}
		first = false
		if value.Kind() == reflect.Struct {
			fmt.Fprintf(&g.out, "%s%s:\n", indent, key)
			g.walk(value, depth+1)
			return true
		}
		fmt.Fprintf(&g.out, "%s%s:%s\n", indent, key, defaultOf(doc, value))
		return true
	})
}

// defaultOf returns the default that a comment names, if it can be written.
func defaultOf(doc fieldDoc, v reflect.Value) string {
	m := regexp.MustCompile(`Defaults? (.+?)(?:[.,;:](?:\s|$)| \()`).FindStringSubmatch(strings.ReplaceAll(doc.text, "\n", " ") + " ")
	if m == nil {
		return ""
	}
	text := m[1]
	if shared := strings.Split(text, " and "); doc.place < len(shared) {
		text = shared[doc.place]
	}
	text = strings.Trim(text, `"`)
	if v.CanInt() && v.Type() != durationType {
		text = strings.ReplaceAll(text, ",", "")
	}
	if v.Kind() == reflect.String && strings.Contains(text, " ") {
		return "" // said in words
	}
	if setText(reflect.New(v.Type()).Elem(), text) != nil {
		return ""
	}
	if v.CanInt() {
		text = strings.ReplaceAll(text, " ", "")
	}
	return " " + text
}

// fieldDocs reads the comments of a struct's fields from its source.
func (g *sampler) fieldDocs(typ reflect.Type) map[string]fieldDoc {
	g.t.Helper()
	id := typ.PkgPath() + "." + typ.Name()
	if docs, ok := g.docs[id]; ok {
		return docs
	}
	dir := filepath.Join("..", filepath.FromSlash(strings.TrimPrefix(typ.PkgPath(), "github.com/millrace/millrace")))
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		g.t.Fatal(err)
	}
	docs := map[string]fieldDoc{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			g.t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok {
				return true
			}
			for _, spec := range decl.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok && spec.Name.Name == typ.Name() {
					if s, ok := spec.Type.(*ast.StructType); ok {
						collectDocs(s, fieldDoc{text: decl.Doc.Text()}, docs)
					}
				}
			}
			return false
		})
	}
	g.docs[id] = docs
	return docs
}

// collectDocs takes the comments of s. A field without one shares that of the
// fields right above it, the first ones that of the struct.
func collectDocs(s *ast.StructType, last fieldDoc, docs map[string]fieldDoc) {
	last.place = -1
	for _, field := range s.Fields.List {
		for _, name := range field.Names {
			if text := field.Doc.Text(); text != "" {
				last = fieldDoc{text: text}
			} else {
				last.place++
			}
			docs[name.Name] = last
		}
	}
}
