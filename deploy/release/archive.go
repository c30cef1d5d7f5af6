package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// entry is a file of an archive: that at path, or text.
type entry struct {
	name, path string
	text       []byte
	mode       int64
}

// writeArchive writes entries, in a folder of the archive's name. Nothing of this machine
// gets into it: no user, no time of its own.
func (r *release) writeArchive(path, folder string, entries []entry) error {
	var file bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&file, gzip.BestCompression)
	if err != nil {
		return err
	}
	out := tar.NewWriter(zipped)
	for _, e := range entries {
		text := e.text
		if e.path != "" {
			if text, err = os.ReadFile(e.path); err != nil {
				return err
			}
		}
		header := &tar.Header{Name: folder + "/" + e.name, Mode: e.mode, Size: int64(len(text)), ModTime: r.time, Format: tar.FormatUSTAR}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	if err := zipped.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, file.Bytes(), 0o644)
}

// writeSums writes SHA256SUMS of the files in a directory.
func writeSums(dir string, names []string) error {
	slices.Sort(names)
	var text strings.Builder
	for _, name := range names {
		sum, err := sumOf(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", hex.EncodeToString(sum), name)
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(text.String()), 0o644)
}

// sumOf is the SHA-256 of a file.
func sumOf(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	sum := sha256.Sum256(data)
	return sum[:], err
}

// notices are the files in which a module says how it may be used.
var notices = regexp.MustCompile(`(?i)^(licen[sc]e|copying|notice|patents)([.-].*)?$`)

// licenses are those of the modules in a binary, in one text: most of them ask that their
// text goes with every copy. A module without any is an error.
func (r *release) licenses(ctx context.Context, of *binary) ([]byte, error) {
	args := []string{"list", "-m", "-f", "{{.Path}}\t{{.Dir}}"}
	for _, dep := range of.info.Deps {
		args = append(args, dep.Path)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = r.root, os.Stderr
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	listed, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m: %w", err)
	}
	text := bytes.NewBufferString("The modules that millrace is made of, and how each may be used.\n")
	for line := range strings.Lines(string(listed)) {
		module, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files, err := os.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("module %s: %w; run go mod download", module, err)
		}
		found := false
		for _, f := range files {
			if f.IsDir() || !notices.MatchString(f.Name()) {
				continue
			}
			found = true
			notice, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(text, "\n=== %s, %s\n\n%s\n", module, f.Name(), bytes.TrimSpace(notice))
		}
		if !found {
			return nil, fmt.Errorf("module %s has no license in %s", module, dir)
		}
	}
	return text.Bytes(), nil
}
