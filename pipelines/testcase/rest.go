package testcase

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/store/pace"
)

// rest waits until every pipeline of the test has come to rest. One that cannot is a
// failure.
//
// A reading of the status sees the checkpoints of all readers, and then the ends of the
// logs. If every reader is where its log ends, what was in the logs by then had been
// processed before the checkpoints were read, and whatever was written because of it is
// in the logs too. So nobody has anything left to do. That the same is seen twice, with
// no log grown in between, makes up for what is no reader, such as an owner that sets
// fields.
func (run *testRun) rest(ctx context.Context) error {
	deadline := time.Now().Add(run.cfg.Timeout)
	before := ""
	for {
		st, err := run.monitor.Read(ctx)
		if err != nil {
			return err
		}
		ends, left := run.left(st)
		switch {
		case left == nil && ends == before:
			run.gaveUp(st)
			return nil
		case left != nil && left.State == status.Halted, left != nil && time.Now().After(deadline):
			run.unrest(left)
			return nil
		case left == nil:
			before = ends
		default:
			before = ""
		}
		if err := pace.Pause(ctx, run.cfg.PollInterval); err != nil {
			return err
		}
	}
}

// left returns a pipeline of the test that is not at rest, nil if all are, and where
// the logs end that they read.
func (run *testRun) left(st *status.Status) (ends string, left *status.Pipeline) {
	var b strings.Builder
	for i := range run.resources.Pipelines {
		name := run.resources.Pipelines[i].Metadata.Name
		at := slices.IndexFunc(st.Pipelines, func(p status.Pipeline) bool { return p.Database == run.database && p.Name == name })
		if at < 0 {
			return "", &status.Pipeline{Database: run.database, Name: name, State: status.Uninitialised}
		}
		p := &st.Pipelines[at]
		if !rests(p) && left == nil {
			left = p
		}
		for j := range p.Processors {
			fmt.Fprintf(&b, "%s/%s/%s:%d ", p.ID, p.Processors[j].Role, p.Processors[j].Partition, p.Processors[j].Head)
		}
	}
	return b.String(), left
}

// rests tells whether a pipeline has nothing left to do but what it has given up.
func rests(p *status.Pipeline) bool {
	return p.State == status.Idle || p.Parked > 0 && p.Lag.Commits == 0 && p.Lag.Jobs == p.Parked
}

// gaveUp fails the test if a pipeline has given something up.
func (run *testRun) gaveUp(status *status.Status) {
	for i := range status.Pipelines {
		if p := &status.Pipelines[i]; p.Database == run.database && (p.Parked > 0 || p.Counts.DeadLetters > 0) {
			run.fail(run.stepPath(), Failure{What: "pipeline " + p.Name, Message: "it gave a change up: " + p.Reason})
		}
	}
}

// unrest fails the test because a pipeline does not come to rest.
func (run *testRun) unrest(p *status.Pipeline) {
	message := fmt.Sprintf("it has not come to rest after %s: it is %s, %s changes behind", run.cfg.Timeout, p.State, format.Count(p.Lag.Changes))
	if p.State == status.Halted {
		message = "it has halted"
	}
	if p.Reason != "" {
		message += ": " + p.Reason
	}
	run.fail(run.stepPath(), Failure{What: "pipeline " + p.Name, Message: message})
}

// stepPath is the path of the step at hand in the test.
func (run *testRun) stepPath() string {
	if run.step < 0 {
		return "spec.given"
	}
	return fmt.Sprintf("spec.steps[%d]", run.step)
}
