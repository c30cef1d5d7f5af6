package document_test

import (
	"encoding/json"
	"testing"

	"github.com/millrace/millrace/feed/document"
)

// TestFieldIsWrittenAsItWas sees that a parsed path is written as the text it came of.
func TestFieldIsWrittenAsItWas(t *testing.T) {
	for _, text := range []string{"name", ` a . b`, `a["b"]`, `tags[ * ].id`, "<b>"} {
		in, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var f document.Field
		wrong := json.Unmarshal(in, &f)
		if _, err := document.ParseField(text); (err == nil) != (wrong == nil) {
			t.Errorf("%q: ParseField says %v, reading it %v", text, err, wrong)
		}
		if wrong != nil {
			continue
		}
		if out, err := json.Marshal(f); err != nil || string(out) != string(in) {
			t.Errorf("%s is written as %s, %v", in, out, err)
		}
	}
	var none document.Field
	if err := json.Unmarshal([]byte(`""`), &none); err == nil {
		t.Error("a field without a name was read")
	}
}
