package plan_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/pipelines/plan"
	"github.com/millrace/millrace/pipelines/registry"
)

// TestPrint_CountsWhatIsNotShown: a row that is rejected is shown besides, and is no change.
func TestPrint_CountsWhatIsNotShown(t *testing.T) {
	t.Parallel()
	rejected := plan.Sample{Action: plan.SampleRejected, Table: "sales", Source: "sale/k/s9", Reason: "total is a text"}
	created := plan.Sample{Action: plan.SampleCreated, Table: "sales", Row: []byte(`["s1"]`)}
	for name, c := range map[string]struct {
		created int64
		samples []plan.Sample
		want    string
	}{
		"one of three, none rejected": {3, []plan.Sample{created}, `+ sales ["s1"]|and 2 more`},
		"one of three, and a reject":  {3, []plan.Sample{created, rejected}, `+ sales ["s1"]|and 2 more|! sales of sale/k/s9: total is a text`},
		"all, and a reject":           {1, []plan.Sample{created, rejected}, `+ sales ["s1"]|! sales of sale/k/s9: total is a text`},
		"a reject alone":              {0, []plan.Sample{rejected}, `! sales of sale/k/s9: total is a text`},
	} {
		p := &plan.Plan{Resources: []plan.Resource{{
			Outcome: registry.Outcome{Kind: "Pipeline", Name: "sales", Action: registry.Created},
			Effect:  &plan.Effect{Into: "parquet analytics", Rows: true, Created: c.created, Samples: c.samples},
		}}}
		var out strings.Builder
		if err := p.Print(&out, plan.Style{}); err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			if text, ok := strings.CutPrefix(line, strings.Repeat("  ", 3)); ok {
				got = append(got, strings.TrimSpace(text))
			}
		}
		if text := strings.Join(got, "|"); text != c.want {
			t.Errorf("%s: it shows %q, want %q\n%s", name, text, c.want, out.String())
		}
	}
}
