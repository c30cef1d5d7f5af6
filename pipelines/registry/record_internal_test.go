package registry

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/store"
)

// TestDamagedSpec shows what is said of a record that holds what no release wrote.
func TestDamagedSpec(t *testing.T) {
	const record = `{"version":2,"id":"n-1","database":"default","name":"n","generation":1,"spec":{
		"source":{"container":"a","where":"type = \"x\""},
		"cascade":{"into":"b","match":{"aId":"id"},"set":{"name":"name"}}},"source":"1","target":"2"}`
	if _, err := decodeRecord("pipeline.default.n", []byte(record), 1); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, old, new, want string }{
		{"an expression", `type = \"x\"`, `type =`, "spec.source.where: "},
		{"a field of the source", `"aId":"id"`, `"aId":"id]"`, "id]"},
		{"a field of the target", `"set":{"name":`, `"set":{"a..b":`, "a..b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			damaged := strings.Replace(record, c.old, c.new, 1)
			_, err := decodeRecord("pipeline.default.n", []byte(damaged), 1)
			if _, ok := errors.AsType[*store.DamageError](err); !ok || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: want damage that names %q", err, c.want)
			}
		})
	}
}
