package testcase

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/millrace/pipelines/spec"
)

// Dir is the folder of a directory of declarations whose files Load reads too.
const Dir = "tests"

// Load reads files and directories as spec.Load does, documents of kind Test too, and
// of each directory the folder Dir besides. The error is Findings if the files
// could be read: all that is wrong with them by themselves, and whatever a test names
// that is not declared.
func Load(paths ...string) (*spec.Resources, error) {
	files, err := testFiles(paths)
	if err != nil {
		return nil, err
	}
	all := &spec.Resources{}
	var findings spec.Findings
	for _, name := range files {
		data, err := spec.ReadFile(name)
		if err != nil {
			return nil, err
		}
		shown := name
		if name == "-" {
			shown = "stdin"
		}
		findings = append(findings, all.DecodeBy(&spec.Decoder{File: shown, Tests: true}, data)...)
	}
	findings = append(findings, all.Twice()...)
	if len(findings) == 0 {
		findings = append(findings, all.CheckTests()...)
	}
	if len(findings) == 0 && len(all.Tests) == 0 {
		findings.Add(spec.Place{}, "%s: no test is declared; a document with kind: Test is expected, in one of the files or in a folder %s beside them",
			strings.Join(paths, ", "), Dir)
	}
	return all, findings.Sorted().Err()
}

// testFiles returns the files that paths stand for, each once.
func testFiles(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		tests := filepath.Join(path, Dir)
		from := []string{path}
		switch {
		case path == "-" || !holdsYAML(tests):
		case holdsYAML(path):
			from = append(from, tests)
		default:
			from = []string{tests}
		}
		for _, path := range from {
			found, err := spec.Expand(path)
			if err != nil {
				return nil, err
			}
			for _, f := range found {
				if !slices.Contains(files, f) {
					files = append(files, f)
				}
			}
		}
	}
	return files, nil
}

// holdsYAML tells whether a directory is there and has files that Load reads.
func holdsYAML(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		ext := filepath.Ext(e.Name())
		return !e.IsDir() && (ext == ".yaml" || ext == ".yml")
	})
}
