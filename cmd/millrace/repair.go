package main

import (
	"github.com/spf13/cobra"

	"github.com/millrace/millrace/pipelines/verify"
)

func newRepair(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "repair [PIPELINE...]",
		Short: "Repair what verify lists as drift",
		Long: `Repair recomputes every copy from its source, as verify does, and repairs those that
differ, while writes and pipelines go on. Each is repaired by a write that is carried
out only if what was seen is still there; nothing else is touched. What
a pipeline has not come to within --settle is left to it. References whose source
is not there stay as they are.

First the dead letters of the pipelines are tried once more, for up to --settle, and
those that were dropped. The dead letter of a change that an aggregate still cannot fold
goes then, for the repair adds what it means, and no retry will.

It exits with 1 unless all copies are equal then, and with 2 if all are that could be
judged, and some could not: rows whose history was trimmed are left alone.`,
		Example: "  millrace repair\n  millrace repair customer-totals -o json",
	}
	return a.newComparison(cmd, "repairing", (*session).repairer, map[verify.Verdict]string{
		verify.VerdictBehind: "see millrace status, and repair again when the pipeline has caught up",
		verify.VerdictDrift:  "the reasons why the rest could not be repaired are listed above",
	})
}

func (s *session) repairer(cfg verify.Config) compare {
	return verify.NewRepairer(s.js, s.registry, s.client, cfg).Repair
}
