package pipelines

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// TestsDir is the folder of a directory of declarations whose files LoadTests reads
// too.
const TestsDir = "tests"

// LoadTests reads files and directories as Load does, documents of kind Test too, and
// of each directory the folder TestsDir besides. The error is Findings if the files
// could be read: all that is wrong with them by themselves, and whatever a test names
// that is not declared.
func LoadTests(paths ...string) (*Resources, error) {
	files, err := testFiles(paths)
	if err != nil {
		return nil, err
	}
	all := &Resources{}
	var findings Findings
	for _, name := range files {
		data, err := readFile(name)
		if err != nil {
			return nil, err
		}
		shown := name
		if name == "-" {
			shown = "stdin"
		}
		findings = append(findings, all.decodeBy(&decoder{file: shown, tests: true}, data)...)
	}
	findings = append(findings, all.twice()...)
	if len(findings) == 0 {
		findings = append(findings, all.checkTests()...)
	}
	if len(findings) == 0 && len(all.Tests) == 0 {
		findings.add(Place{}, "%s: no test is declared; a document with kind: Test is expected, in one of the files or in a folder %s beside them",
			strings.Join(paths, ", "), TestsDir)
	}
	return all, findings.sorted().Err()
}

// testFiles returns the files that paths stand for, each once.
func testFiles(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		tests := filepath.Join(path, TestsDir)
		from := []string{path}
		switch {
		case path == "-" || !holdsYAML(tests):
		case holdsYAML(path):
			from = append(from, tests)
		default:
			from = []string{tests}
		}
		for _, path := range from {
			found, err := expand(path)
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
