package query_test

import (
	"testing"

	"github.com/millrace/millrace/store/query"
)

func TestRaw(t *testing.T) {
	for _, raw := range []string{`null`, `true`, `false`, `1.50`, `-1e3`, `"a\"b"`, `"é"`, `[1, 2]`, `{"a": [] }`, ``} {
		v := query.ValueOf([]byte(raw))
		if got := string(v.Raw()); got != raw {
			t.Errorf("%s is %s", raw, got)
		}
		if (v.Raw() == nil) != (v.Type() == query.Undefined) {
			t.Errorf("%q: Raw is nil: %v", raw, v.Raw() == nil)
		}
	}
	if v := query.ValueOf(nil); v.Type() != query.Undefined {
		t.Errorf("nil is %v", v.Type())
	}
}
