package pipelines

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/leases"
)

// proofs reads what the auditor has found from its lease. What cannot be read tells
// nothing: status is about more than that.
func proofs(held map[string]*leases.Lease) map[string]*audit {
	l := held[auditResource]
	if l == nil {
		return nil
	}
	audits, err := decodeAudits(l.Checkpoint)
	if err != nil {
		return nil
	}
	return audits
}

// cell tells in a word or two what was found, at a moment later on.
func (p *ProofStatus) cell(now time.Time) string {
	switch {
	case p == nil:
		return "-"
	case p.Verdict == VerdictDrift:
		return count(p.Drift) + " drift"
	case p.Verdict == VerdictBehind:
		return string(VerdictBehind)
	}
	return "equal " + ago(now, p.At)
}

// text tells what was found.
func (p *ProofStatus) text(now time.Time, pipeline string) string {
	s := fmt.Sprintf("%s %s, in %s", plural(p.Copies, "copy", "copies"), ago(now, p.At), age(p.Seconds))
	switch {
	case p.Verdict == VerdictDrift:
		s += fmt.Sprintf(": %s for no reason; see millrace verify %s, then millrace repair %s", plural(p.Drift, "differs", "differ"), pipeline, pipeline)
	case p.Reason != "":
		s += ": it cannot be judged, " + p.Reason
	case p.Verdict == VerdictBehind:
		s += fmt.Sprintf(": %s and may be in flight", plural(p.Behind, "differs", "differ"))
	default:
		return s + ": all equal"
	}
	if p.Proved.IsZero() {
		return s
	}
	return s + "; all were equal " + ago(now, p.Proved)
}

// unproven says why a pipeline that is in force everywhere has not been proved yet.
func (p *ProofStatus) unproven(pipeline string) string {
	const inForce = "it is in force everywhere, and "
	switch {
	case p != nil && p.Drift > 0:
		return inForce + fmt.Sprintf("%s for no reason; see millrace verify %s, then millrace repair %s", plural(p.Drift, "of its copies differs", "of its copies differ"), pipeline, pipeline)
	case p != nil && p.Reason != "":
		return inForce + "cannot be verified yet: " + p.Reason
	case p != nil && p.Behind > 0:
		return inForce + fmt.Sprintf("%s because something is in flight or was given up; see millrace verify %s and millrace dead-letters list %s",
			plural(p.Behind, "of its copies differs", "of its copies differ"), pipeline, pipeline)
	}
	return inForce + "its copies are being verified"
}

func ago(now, then time.Time) string {
	if now.Sub(then) < time.Second {
		return "now"
	}
	return age(now.Sub(then).Truncate(time.Second).Seconds()) + " ago"
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + many
}
