package spec

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits of what is read.
const (
	FileBytesMax = 4 << 20 // of one YAML file
	FilesMax     = 1000    // of one directory
)

// Load reads files, and of directories the files whose names end in .yaml or
// .yml, in order of name and without those in folders below. A path of - is
// standard input. Documents of kind Test are passed over; see testcase.Load. The error is
// Findings if the files could be read: everything that is wrong with all of them.
// Nothing is looked up anywhere; see Check.
func Load(paths ...string) (*Resources, error) {
	texts, err := ReadTexts(paths...)
	if err != nil {
		return nil, err
	}
	return loaded(texts, strings.Join(paths, ", "))
}

// ReadTexts reads the files that Load reads.
func ReadTexts(paths ...string) ([]Text, error) {
	var files []string
	for _, path := range paths {
		found, err := Expand(path)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	texts := make([]Text, 0, len(files))
	for _, name := range files {
		data, err := ReadFile(name)
		if err != nil {
			return nil, err
		}
		shown := name
		if name == "-" {
			shown = "stdin"
		}
		texts = append(texts, Text{shown, data})
	}
	return texts, nil
}

// Text is a YAML file whose content is at hand.
type Text struct {
	Name string // only used in findings
	Data []byte
}

// LoadTexts is Load of files whose content is at hand.
func LoadTexts(texts []Text) (*Resources, error) {
	names := make([]string, len(texts))
	for i := range texts {
		names[i] = texts[i].Name
	}
	return loaded(texts, strings.Join(names, ", "))
}

// loaded decodes what was read from what.
func loaded(texts []Text, what string) (*Resources, error) {
	all := &Resources{}
	var findings Findings
	for i := range texts {
		findings = append(findings, all.decode(texts[i].Name, texts[i].Data)...)
	}
	findings = append(findings, all.Twice()...)
	if len(findings) == 0 && len(all.Containers)+len(all.Pipelines) == 0 {
		findings.Add(Place{}, "%s: nothing is declared; a document with kind: Container or kind: Pipeline is expected", what)
	}
	return all, findings.Sorted().Err()
}

// Decode reads the documents of one file, whose name is only used in findings.
// The error is Findings: everything that is wrong.
func Decode(file string, data []byte) (*Resources, error) {
	all := &Resources{}
	findings := append(all.decode(file, data), all.Twice()...)
	return all, findings.Sorted().Err()
}

// Expand returns the files that a path stands for.
func Expand(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read declarations: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("read declarations: %w", err)
	}
	var files []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".yaml" || ext == ".yml") {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	switch {
	case len(files) == 0:
		return nil, fmt.Errorf("read declarations: directory %s holds no .yaml files", path)
	case len(files) > FilesMax:
		return nil, fmt.Errorf("read declarations: directory %s holds %d .yaml files; at most %d are read", path, len(files), FilesMax)
	}
	return files, nil
}

// ReadFile reads a file of declarations, - for standard input, up to FileBytesMax.
func ReadFile(name string) (data []byte, err error) {
	in := os.Stdin
	if name != "-" {
		if in, err = os.Open(name); err != nil {
			return nil, fmt.Errorf("read declarations: %w", err)
		}
		defer func() { err = cmp.Or(err, in.Close()) }()
	}
	data, err = io.ReadAll(io.LimitReader(in, FileBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("read declarations: %w", err)
	}
	if len(data) > FileBytesMax {
		return nil, fmt.Errorf("read declarations: %s is larger than %d bytes; is it a YAML file of millrace?", name, FileBytesMax)
	}
	return data, nil
}

// decode adds the documents of one file.
func (r *Resources) decode(file string, data []byte) Findings {
	return r.DecodeBy(&Decoder{File: file}, data)
}

// DecodeBy adds the documents of a file to r and returns what is wrong with them.
func (r *Resources) DecodeBy(d *Decoder, data []byte) Findings {
	d.lines = strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return d.findings
		}
		if err != nil {
			// What follows cannot be told apart from what is broken.
			d.syntax(err)
			return d.findings
		}
		if doc.Kind == yaml.DocumentNode && len(doc.Content) == 1 {
			d.stitch(doc.Content[0])
			d.document(r, doc.Content[0])
		}
	}
}

// The parser knows no more than a line, and says it in words.
var (
	yamlLine   = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)
	yamlParser = regexp.MustCompile(`^did not find expected ([',<]|key|node content)`)
)

// cutExpression is a call with more than one argument.
var cutExpression = regexp.MustCompile(`[A-Za-z]\([^()]*,`)

// syntax reports that a file is not YAML.
func (d *Decoder) syntax(err error) {
	text := err.Error()
	m := yamlLine.FindStringSubmatch(text)
	line, convErr := strconv.Atoi(m[1])
	if convErr != nil {
		line = 1
	}
	message := strings.TrimPrefix(text, m[0])
	if yamlParser.MatchString(message) {
		line++ // these errors count lines from 0
	}
	// A tab is what is wrong most often, and can be pointed at.
	for i := max(line-2, 0); i < min(line+1, len(d.lines)); i++ {
		indent := d.lines[i][:len(d.lines[i])-len(strings.TrimLeft(d.lines[i], " \t"))]
		if tab := strings.IndexByte(indent, '\t'); tab >= 0 {
			d.findings.Add(Place{d.File, i + 1, tab + 1}, "not YAML: a tab; indent with spaces")
			return
		}
	}
	at := min(line, len(d.lines))
	if near := d.lines[max(at-2, 0)] + d.lines[at-1]; strings.Contains(near, "{") && cutExpression.MatchString(near) {
		message += "; inside { } a comma ends a value: put an expression that has one in quotes, or each field in a line of its own"
	}
	d.findings.Add(Place{d.File, at, 1}, "not YAML near this line: %s", message)
}

// Twice finds resources that are declared more than once.
func (r *Resources) Twice() Findings {
	var findings Findings
	first := map[string]Place{}
	see := func(kind string, m Metadata, p places) {
		if m.Name == "" {
			return
		}
		key := kind + " " + m.String()
		if at, ok := first[key]; ok {
			findings.Add(p.at("metadata.name"), "%s is declared twice; the first stands at %s", key, at)
			return
		}
		first[key] = p.at("metadata.name")
	}
	for i := range r.Containers {
		see(KindContainer, r.Containers[i].Metadata, r.Containers[i].places)
	}
	for i := range r.Pipelines {
		see(KindPipeline, r.Pipelines[i].Metadata, r.Pipelines[i].places)
	}
	for i := range r.Tests {
		see(KindTest, r.Tests[i].Metadata, r.Tests[i].places)
	}
	return slices.Clip(findings)
}
