package parquetsink_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/processors/project/sinktest"
)

// A pipeline that was deleted and made again is another one. It is told what to do,
// and goes on by itself when that is done.
func TestFilesOfAnotherPipeline(t *testing.T) {
	dir := t.TempDir()
	s := open(t, parquetsink.NewDir(dir), quick())
	begin := func(pipeline string) error {
		schema := sinktest.Schema(1)
		schema.Pipeline = pipeline
		w, _, err := s.Open(t.Context(), schema, project.Term{
			Producer: feed.Producer{Pipeline: pipeline, Generation: 1, Source: "source:c/0"}, Epoch: 1,
		})
		if err != nil {
			return err
		}
		return w.Close()
	}
	if err := begin("rows-1"); err != nil {
		t.Fatal(err)
	}
	if err := begin("rows-2"); err == nil || !strings.Contains(err.Error(), "if the other was deleted, remove all that is there") {
		t.Fatalf("beside the files of another: %v", err)
	}
	all, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(all) == 0 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, name := range all {
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := begin("rows-2"); err != nil {
		t.Errorf("after they were removed: %v", err)
	}
}
