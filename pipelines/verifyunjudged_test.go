package pipelines_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"
)

// TestVerify_JudgesTheRestWithoutASecret: who verifies need not have the secrets of
// every sink.
func TestVerify_JudgesTheRestWithoutASecret(t *testing.T) {
	n := rooted(t, t.TempDir())
	n.apply(t, decode(t, saleRows("./sales")))
	n.apply(t, decode(t, `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: secret}
spec:
  source: {container: sale}
  project:
    sink: {postgres: {dsnEnv: TEST_NOT_THERE_DSN}}
    tables: {sales: {key: [id], columns: {id: id}}}
`), registry.ApplyOptions{FromNow: true}) // its worker has nothing to write, which it could not
	poll.Until(t, func() error {
		s, err := n.monitor.Read(t.Context())
		if err != nil {
			return err
		}
		for _, p := range s.Pipelines {
			if p.Name == "sales" && p.State != status.Idle {
				return errors.New("sales is " + string(p.State))
			}
		}
		return nil
	})
	r, by := n.verify(t, verify.Config{Timeout: -1})
	if p := by["sales"]; p.Verdict != verify.VerdictEqual || p.Copies != 1 {
		t.Errorf("the sink that can be read:\n%s", text(r))
	}
	if p := by["secret"]; p.Verdict != verify.VerdictUnjudged || !strings.Contains(p.Reason, "the environment variable TEST_NOT_THERE_DSN is empty") {
		t.Errorf("the sink that cannot be read:\n%s", text(r))
	}
	if r.Verdict != verify.VerdictUnjudged {
		t.Errorf("all in all: %s", r.Verdict)
	}
}
