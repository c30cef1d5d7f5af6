package status

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/verify"

	"github.com/millrace/millrace/leases"
)

// continuousFindings reads from its lease what the continuous verification has found. If that
// cannot be read there are no findings, and the rest of the status is told all the same.
func continuousFindings(held map[string]*leases.Lease) map[string]*verify.Finding {
	l := held[verify.ContinuousResource]
	if l == nil {
		return nil
	}
	findings, err := verify.DecodeFindings(l.Checkpoint)
	if err != nil {
		return nil
	}
	return findings
}

// verifiedCell tells in a word or two what was found, at a moment later on.
func verifiedCell(p *verify.Verification, now time.Time) string {
	switch {
	case p == nil:
		return "-"
	case p.Verdict == verify.VerdictDrift:
		return format.Count(p.Drift) + " drift"
	case p.Verdict != verify.VerdictEqual:
		return string(p.Verdict)
	}
	return "equal " + format.Ago(now, p.At)
}

// verifiedText tells what was found.
func verifiedText(p *verify.Verification, now time.Time, pipeline string) string {
	s := fmt.Sprintf("%s %s, in %s", format.Plural(p.Copies, "copy", "copies"), format.Ago(now, p.At), format.Age(p.Seconds))
	switch {
	case p.Verdict == verify.VerdictDrift:
		s += fmt.Sprintf(": %s for no reason; see millrace verify %s, then millrace repair %s", format.Plural(p.Drift, "differs", "differ"), pipeline, pipeline)
	case p.Verdict == verify.VerdictUnjudged:
		s += ": " + p.Reason
	case p.Reason != "":
		s += ": it cannot be judged, " + p.Reason
	case p.Verdict == verify.VerdictBehind:
		s += fmt.Sprintf(": %s and may be in flight", format.Plural(p.Behind, "differs", "differ"))
	default:
		return s + ": all equal"
	}
	if p.Equal.IsZero() {
		return s
	}
	return s + "; all were equal " + format.Ago(now, p.Equal)
}

// notVerified says why a pipeline that is in force everywhere has not been verified yet.
func notVerified(p *verify.Verification, pipeline string) string {
	const inForce = "it is in force everywhere, and "
	switch {
	case p != nil && p.Drift > 0:
		return inForce + fmt.Sprintf("%s for no reason; see millrace verify %s, then millrace repair %s", format.Plural(p.Drift, "of its copies differs", "of its copies differ"), pipeline, pipeline)
	case p != nil && p.Reason != "":
		return inForce + cannotVerify(p) + p.Reason
	case p != nil && p.Behind > 0:
		return inForce + fmt.Sprintf("%s because something is in flight or was given up; see millrace verify %s and millrace dead-letters list %s",
			format.Plural(p.Behind, "of its copies differs", "of its copies differ"), pipeline, pipeline)
	}
	return inForce + "its copies are being verified"
}

// cannotVerify says that a pipeline is not verified. What nobody can judge does not become equal
// by waiting.
func cannotVerify(p *verify.Verification) string {
	if p.Verdict == verify.VerdictUnjudged {
		return "not all of it can be verified: "
	}
	return "cannot be verified yet: "
}
