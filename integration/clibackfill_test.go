package integration_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/webstore"
)

// A pipeline that began from now on gets what was there when it is told to, in parts, and
// not what a backfill that was stopped left out.
func TestCLI_Backfill(t *testing.T) {
	t.Parallel()
	server := upOnce(t)
	dir, s := shopFiles(t)
	mustRun(t, server, "apply", "-f", "../configs/webstore/productMeta.yaml", "-f", "../configs/webstore/product.yaml")
	mustRun(t, server, "import", "productMeta", filepath.Join(dir, "productMeta.json"))
	mustRun(t, server, "import", "product", filepath.Join(dir, "product.ndjson"))
	var names webstore.Names
	r := webstore.Rename{Number: 1} // nobody copies it
	names.Apply(r)
	if out, errs, exit := command(t, string(webstore.JSON(s.Meta(r, &names))), nil, "import", "productMeta", "-", "--server", server); exit != 0 {
		t.Fatalf("exit %d\n%s%s", exit, out, errs)
	}
	mustRun(t, server, "apply", "-f", "../configs/webstore/category-names.yaml", "--from-now")

	refused := func(exit int, want string, args ...string) {
		t.Helper()
		out, errs, got := command(t, "", nil, append([]string{"backfill", "--server", server}, args...)...)
		if got != exit || !strings.Contains(errs, want) || out != "" {
			t.Errorf("%q: exit %d, want %d and %q\n%s%s", args, got, exit, want, out, errs)
		}
	}
	refused(2, "no backfill that can be stopped is under way", "category-names", "--stop")
	refused(2, "none of the others can be", "category-names", "--stop", "--where", "price > 1")
	refused(2, "where: ", "category-names", "--where", "price >")
	refused(1, "did you mean category-names?", "category-name")
	mustRun(t, server, "pause", "category-names")
	mustRun(t, server, "backfill", "category-names", "--where", "price >= 0")
	refused(2, "a backfill of the items where price >= 0 is under way, and the pipeline is paused", "category-names")
	if out := mustRun(t, server, "backfill", "category-names", "--stop"); !strings.Contains(out, "backfill stopped") {
		t.Errorf("stop says %s", out)
	}
	mustRun(t, server, "resume", "category-names")
	if out, exit := run(t, server, "verify"); exit != 1 || !strings.Contains(out, "drift") {
		t.Errorf("nothing was filled, and verify exits with %d\n%s", exit, out)
	}
	if out := mustRun(t, server, "backfill", "category-names"); !strings.Contains(out, "goes through all items") {
		t.Errorf("backfill says %s", out)
	}
	mustRun(t, server, "verify")
}
