package gateway

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestIsEmpty(t *testing.T) {
	t.Parallel()
	const deep = 9000 // encoding/json reads 10,000 levels
	nested := func(inside string) string {
		return strings.Repeat(`{"a":`, deep) + inside + strings.Repeat("}", deep)
	}
	for text, want := range map[string]bool{
		"": true, "null": true, " [] ": true, "{}": true, `{"a":[]}`: true, `{"a":{"b":null}}`: true,
		"1": false, `""`: false, "[null]": false, `{"a":{"b":false}}`: false, "{": false,
		nested("[]"): true, nested("1"): false,
	} {
		if got := isEmpty(json.RawMessage(text)); got != want {
			t.Errorf("%.40s: %v", text, got)
		}
	}
}
