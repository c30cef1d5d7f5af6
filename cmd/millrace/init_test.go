package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/internal/propose"
	"github.com/millrace/millrace/cmd/millrace/webstore"
	"github.com/millrace/millrace/integration/storetest"
)

// importShop writes the generated shop: more tags than init looks at, so that it must look
// for the categories behind them.
func importShop(t *testing.T, server string) {
	t.Helper()
	s := webstore.New(webstore.Config{Seed: 4, Categories: 12, Tags: 90, Products: 60, Customers: 10})
	var metas, products, customers strings.Builder
	line := func(b *strings.Builder, item any) { b.Write(append(webstore.JSON(item), '\n')) }
	for c := range 12 {
		line(&metas, s.Category(c+1, nil))
	}
	for n := range 90 {
		line(&metas, s.Tag(n+1, nil))
	}
	for p := range 60 {
		line(&products, s.Product(p+1, nil))
	}
	for c := range 10 {
		line(&customers, s.Customer(c+1))
		for _, o := range s.Orders(c + 1) {
			line(&customers, o)
		}
	}
	mustRun(t, metas.String(), "import", server, "productMeta", "-", "--partition-key", "/type")
	mustRun(t, products.String(), "import", server, "product", "-", "--partition-key", "/categoryId", "--partitions", "2")
	mustRun(t, customers.String(), "import", server, "customer", "-", "--partition-key", "/customerId")
}

// TestInit_ProposesWhatTheShopHolds finds the copies of the generated shop, and what it
// writes is planned and applied without a change of what is there.
func TestInit_ProposesWhatTheShopHolds(t *testing.T) {
	server := up(t)
	out, errs, code := command(t, "", "init", server)
	if code != codeBad || out != "" || !strings.Contains(errs, "0 items of 0 containers") {
		t.Errorf("an empty store: exit %d\n%s%s", code, out, errs)
	}
	importShop(t, server)
	storetest.Golden(t, "testdata/init.yaml", mustRun(t, "", "init", server, "--sample", "80"))

	file := filepath.Join(t.TempDir(), "first.yaml")
	if out := mustRun(t, "", "init", server, "product", "-o", file); !strings.Contains(out, "2 pipelines\nnext: millrace plan -f ") {
		t.Errorf("init says %s", out)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if out := mustRun(t, "", "init", server, "product", "-o", "yaml"); !strings.Contains(out, "kind: Pipeline") {
		t.Errorf("-o yaml is standard output: %s", out)
	}
	if _, errs, code := command(t, "", "init", server, "-o", "table"); code != codeNotAsked || !strings.Contains(errs, "-o yaml") {
		t.Errorf("-o table: %d, %s", code, errs)
	}
	if out, errs, code := command(t, "", "init", server, "-o", file); code != codeNotAsked || !strings.Contains(errs, "the file is there") {
		t.Errorf("over a file: exit %d\n%s%s", code, out, errs)
	}
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("the file was written over: %v\n%s", err, after)
	}
	var plan struct {
		Resources []struct {
			Effect struct{ Compared, Equal, Changed int64 }
		}
	}
	if out := mustRun(t, "", "plan", server, "-f", file, "-o", "json"); json.Unmarshal([]byte(out), &plan) != nil || len(plan.Resources) != 2 {
		t.Fatalf("the plan is %s", out)
	}
	for i := range plan.Resources {
		if e := plan.Resources[i].Effect; e.Compared == 0 || e.Changed != 0 {
			t.Errorf("the plan would change what is a copy already: %+v", e)
		}
	}

	// What is declared is not proposed again: a field has one writer.
	mustRun(t, "", "apply", server, "-f", file)
	out, _, code = command(t, "", "init", server, "product", "-o", "json")
	var result propose.Result
	if err := json.Unmarshal([]byte(out), &result); err != nil || code != codeBad || len(result.Proposals) != 0 || len(result.Refused) != 2 || result.Refused[0].Finding == "" {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
	if _, errs, code := command(t, "", "init", server, "nothing"); code != codeBad || !strings.Contains(errs, "default/nothing") {
		t.Errorf("no such container: exit %d\n%s", code, errs)
	}
}
