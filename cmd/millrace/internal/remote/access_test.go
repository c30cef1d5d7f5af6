package remote

import (
	"encoding/base64"
	"encoding/json"
	"testing"
)

func TestAccess_TellsAsFarAsTheEndpointDoes(t *testing.T) {
	const foreign = `{"UtilizedIndexes": {"SingleIndexes": [{"IndexSpec": "/a/?", "IndexImpactScore": "High"}], "CompositeIndexes": []},
		"PotentialIndexes": {"SingleIndexes": [], "CompositeIndexes": [{"IndexSpecs": ["/a ASC", "/b ASC"], "IndexImpactScore": "High"}]}}`
	ours := `{"UtilizedIndexes": {}, "PotentialIndexes": {}, "Access": "scan of all items"}`
	for _, c := range []struct{ what, metrics, want string }{
		{"a Millrace node's", base64.StdEncoding.EncodeToString([]byte(ours)), "scan of all items"},
		{"JSON", ours, "scan of all items"},
		{"another endpoint's", foreign, "indexes used: /a/?; that would help: (/a ASC, /b ASC)"},
		{"another endpoint's of the first version", `{"UtilizedSingleIndexes": [{"FilterExpression": "", "IndexSpec": "/a/?"}], "PotentialSingleIndexes": [],
			"UtilizedCompositeIndexes": [], "PotentialCompositeIndexes": [{"IndexSpecs": ["/a ASC", "/b ASC"]}]}`, "indexes used: /a/?; that would help: (/a ASC, /b ASC)"},
		{"none at all", `{}`, "indexes used: none; that would help: none"},
	} {
		if got, err := access(&c.metrics); err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", c.what, got, err, c.want)
		}
	}
	if got, err := access(nil); err != nil || got != "the endpoint does not tell which indexes the query uses" {
		t.Errorf("without metrics: %q, %v", got, err)
	}
	broken := "{"
	if _, err := access(&broken); err == nil {
		t.Error("metrics that cannot be read are no error")
	}
}

func TestASCII_IsTheSameJSON(t *testing.T) {
	for _, text := range []string{"plain", "é", "\u2028", "\U0001F600", "\U0010FFFF", "\uFFFD", "\x7f"} {
		raw, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		escaped := ascii(string(raw))
		var back string
		if err := json.Unmarshal([]byte(escaped), &back); err != nil || back != text {
			t.Errorf("%q becomes %s, which is %q, %v", text, escaped, back, err)
		}
		for i := range len(escaped) {
			if escaped[i] < ' ' || escaped[i] > '~' {
				t.Errorf("%q becomes %s, which a header does not hold", text, escaped)
			}
		}
	}
}
