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

// The SDK for Java writes the version of a key by its name.
func TestKeyVersion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]keyVersion{"2": 2, "1": 1, `"V2"`: 2, `"V1"`: 1} {
		var def partitionKeyJSON
		if err := json.Unmarshal([]byte(`{"paths":["/pk"],"version":`+text+`}`), &def); err != nil || def.Version != want {
			t.Errorf("%s is read as %d, %v", text, def.Version, err)
		}
	}
	var def partitionKeyJSON
	if err := json.Unmarshal([]byte(`{"version":"two"}`), &def); err == nil {
		t.Errorf("two is read as %d", def.Version)
	}
}
