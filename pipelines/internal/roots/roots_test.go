package roots_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/pipelines/internal/roots"
)

func TestRoots_NothingOutsideIsAllowed(t *testing.T) {
	dir := t.TempDir()
	data, other := filepath.Join(dir, "data"), filepath.Join(dir, "other")
	for _, made := range []string{filepath.Join(data, "nats", "jetstream"), filepath.Join(data, "there"), filepath.Join(other, "inside")} {
		if err := os.MkdirAll(made, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"out": other, "in": filepath.Join(data, "there"), "logs": filepath.Join(data, "nats"), "nothing": filepath.Join(other, "missing"),
	} {
		if err := os.Symlink(to, filepath.Join(data, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(data, "there"), filepath.Join(other, "back")); err != nil {
		t.Fatal(err)
	}
	r, err := roots.New([]string{data}, []string{filepath.Join(data, "nats"), filepath.Join(data, "gateway")})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path string
		want bool
	}{
		"a folder that is not there":                   {filepath.Join(data, "analytics", "orders"), true},
		"a folder that is there":                       {filepath.Join(data, "there"), true},
		"a link that stays below the root":             {filepath.Join(data, "in", "orders"), true},
		"a link into the root":                         {filepath.Join(other, "back", "orders"), true},
		"a folder beside the root":                     {other, false},
		"a folder whose name begins like the root":     {data + "-2", false},
		"a folder of the system":                       {"/etc/cron.d", false},
		"dots that leave the root":                     {filepath.Join(data, "x") + "/../../other", false},
		"a link that leads out":                        {filepath.Join(data, "out"), false},
		"below a link that leads out":                  {filepath.Join(data, "out", "inside", "orders"), false},
		"a link that leads to nothing yet":             {filepath.Join(data, "nothing", "orders"), false},
		"the root, which holds the process's folders":  {data, false},
		"a folder of the process":                      {filepath.Join(data, "nats", "x"), false},
		"a folder of the process that is not there":    {filepath.Join(data, "gateway"), false},
		"a link to a folder of the process":            {filepath.Join(data, "logs", "jetstream"), false},
		"a path that depends on the working directory": {"analytics", false},
	} {
		t.Run(name, func(t *testing.T) {
			err := r.Check(c.path)
			if (err == nil) != c.want {
				t.Errorf("%s: %v", c.path, err)
			}
		})
	}
	outside, ok := errors.AsType[*roots.OutsideError](r.Check(filepath.Join(data, "out", "x")))
	if !ok || outside.Leads != filepath.Join(other, "x") {
		t.Errorf("where the link leads is not told: %v", outside)
	}
}
