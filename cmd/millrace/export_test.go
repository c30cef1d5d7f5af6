package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/internal/remote"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// cutReader gives one page of items, and then err.
type cutReader struct{ err error }

func (cutReader) Info() store.ContainerInfo {
	return store.ContainerInfo{Database: "default", Name: "product"}
}

func (cutReader) Read(context.Context, feed.PartitionKey, string) (store.Item, error) {
	return store.Item{}, store.ErrNotFound
}

func (cutReader) Count(context.Context) (int, error) { return 2, nil }

func (r cutReader) Items(_ context.Context, _ remote.Selection, f func([]store.Item) error) error {
	if err := f([]store.Item{{Body: []byte(`{"id":"new"}`)}}); err != nil {
		return err
	}
	return r.err
}

// TestExport_AFileHasItsNameWhenAllIsInIt: a part of an export would be imported as the whole.
func TestExport_AFileHasItsNameWhenAllIsInIt(t *testing.T) {
	t.Parallel()
	cut := errors.New("the wire is cut")
	for _, name := range []string{"product.ndjson", "product.ndjson.gz"} {
		dir := t.TempDir()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		a := &app{streams: streams{err: io.Discard}}
		if err := a.export(t.Context(), cutReader{cut}, file); !errors.Is(err, cut) {
			t.Errorf("%s: error %v, want %v", name, err, cut)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != "old" {
			t.Errorf("%s: what was there before became %q, %v", name, got, err)
		}
		if err := a.export(t.Context(), cutReader{}, file); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(name) == ".gz" {
			zip, err := gzip.NewReader(bytes.NewReader(got))
			if err != nil {
				t.Fatal(err)
			}
			if got, err = io.ReadAll(zip); err != nil {
				t.Fatal(err)
			}
		}
		if string(got) != "{\"id\":\"new\"}\n" {
			t.Errorf("%s: exported %q", name, got)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: its mode is %v, %v; the file before was its owner's alone", name, info.Mode(), err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%s: the directory has %v, %v", name, left, err)
		}
	}
}

// TestExport_ALinkStaysOne: the file that a link names is replaced.
func TestExport_ALinkStaysOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("old"), 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	a := &app{streams: streams{err: io.Discard}}
	cut := errors.New("the wire is cut")
	if err := a.export(t.Context(), cutReader{cut}, link); !errors.Is(err, cut) {
		t.Errorf("error %v, want %v", err, cut)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "old" {
		t.Errorf("what was there before became %q, %v", got, err)
	}
	if err := a.export(t.Context(), cutReader{}, link); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().IsRegular() {
		t.Errorf("the link became %v, %v", info.Mode(), err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "{\"id\":\"new\"}\n" {
		t.Errorf("exported %q, %v", got, err)
	}
}
