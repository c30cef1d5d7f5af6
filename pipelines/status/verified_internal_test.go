package status

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pipelines/verify"
)

// TestVerifiedSaysWhatIsUnjudged: what nobody could judge is not called equal.
func TestVerifiedSaysWhatIsUnjudged(t *testing.T) {
	t.Parallel()
	now := time.Now()
	found := &verify.Verification{At: now, Verdict: verify.VerdictUnjudged, Reason: "1 row could not be judged: the log is gone", Copies: 9, Unjudged: 1}
	if cell := verifiedCell(found, now); cell != "unjudged" {
		t.Errorf("in a table it is %q", cell)
	}
	for _, said := range []string{verifiedText(found, now, "archive"), notVerified(found, "archive")} {
		if !strings.Contains(said, found.Reason) || strings.Contains(said, "equal") || strings.Contains(said, "yet") {
			t.Errorf("it says %q", said)
		}
	}
	if share := found.Coverage(); share != 0.9 {
		t.Errorf("%g of it is equal", share)
	}
}
