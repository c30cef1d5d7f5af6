package configs_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/configs"
)

// TestSinks_WriteBelowTheDirectoryAndNotInItsOwnFolders unless other roots are named.
func TestSinks_WriteBelowTheDirectoryAndNotInItsOwnFolders(t *testing.T) {
	dir := t.TempDir()
	cfg, err := configs.Load("", nil, []string{"dir=" + dir})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{dir}, cfg.Sinks.Roots); diff != "" {
		t.Errorf("roots (-want +got):\n%s", diff)
	}
	var own []string
	for _, name := range []string{"nats", "credentials", "gateway", "engine"} {
		own = append(own, filepath.Join(dir, name))
	}
	if diff := cmp.Diff(own, cfg.Sinks.Own); diff != "" {
		t.Errorf("own folders (-want +got):\n%s", diff)
	}
	if cfg, err = configs.Load("", nil, []string{"dir=" + dir, "sinks.roots=/srv/a,/srv/b"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/srv/a", "/srv/b"}, cfg.Sinks.Roots); diff != "" {
		t.Errorf("roots that are named (-want +got):\n%s", diff)
	}
}
