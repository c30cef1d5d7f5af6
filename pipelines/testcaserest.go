package pipelines

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// rest waits until every pipeline of the test has come to rest. One that cannot is a
// failure.
//
// A reading of the status sees the pipelines one after the other, and one that was seen
// idle may have got something to do from one that was seen later. So all must be idle
// in two readings, and no log may have grown in between. In the second reading, then,
// nobody had anything to do: whoever would have written to a log after it was first
// read had something to do in the first reading, or has written before, which the end
// of the log in the second would show.
func (run *testRun) rest(ctx context.Context) error {
	deadline := time.Now().Add(run.cfg.Timeout)
	before := ""
	for {
		status, err := run.monitor.Read(ctx)
		if err != nil {
			return err
		}
		ends, left := run.left(status)
		switch {
		case left == nil && ends == before:
			run.gaveUp(status)
			return nil
		case left != nil && left.State == Halted, left != nil && time.Now().After(deadline):
			run.unrest(left)
			return nil
		case left == nil:
			before = ends
		default:
			before = ""
		}
		if err := pause(ctx, run.cfg.PollInterval); err != nil {
			return err
		}
	}
}

// left returns a pipeline of the test that is not at rest, nil if all are, and where
// the logs end that they read.
func (run *testRun) left(status *Status) (ends string, left *PipelineStatus) {
	var b strings.Builder
	seen := 0
	for i := range status.Pipelines {
		p := &status.Pipelines[i]
		if p.Database != run.database {
			continue
		}
		seen++
		if !p.rests() && left == nil {
			left = p
		}
		for j := range p.Processors {
			fmt.Fprintf(&b, "%s/%s/%s:%d ", p.ID, p.Processors[j].Role, p.Processors[j].Partition, p.Processors[j].Head)
		}
	}
	fmt.Fprintf(&b, "%d pipelines", seen)
	return b.String(), left
}

// rests tells whether a pipeline has nothing left to do but what it has given up.
func (p *PipelineStatus) rests() bool {
	return p.State == Idle || p.Parked > 0 && p.Lag.Commits == 0 && p.Lag.Jobs == p.Parked
}

// gaveUp fails the test if a pipeline has given something up.
func (run *testRun) gaveUp(status *Status) {
	for i := range status.Pipelines {
		if p := &status.Pipelines[i]; p.Database == run.database && (p.Parked > 0 || p.Counts.Letters > 0) {
			run.fail(run.stepPath(), TestFailure{What: "pipeline " + p.Name, Message: "it gave a change up: " + p.Reason})
		}
	}
}

// unrest fails the test because a pipeline does not come to rest.
func (run *testRun) unrest(p *PipelineStatus) {
	message := fmt.Sprintf("it has not come to rest after %s: it is %s, %s changes behind", run.cfg.Timeout, p.State, count(int64(p.Lag.Changes)))
	if p.State == Halted {
		message = "it has halted"
	}
	if p.Reason != "" {
		message += ": " + p.Reason
	}
	run.fail(run.stepPath(), TestFailure{What: "pipeline " + p.Name, Message: message})
}

// stepPath is the path of the step at hand in the test.
func (run *testRun) stepPath() string {
	if run.step < 0 {
		return "spec.given"
	}
	return fmt.Sprintf("spec.steps[%d]", run.step)
}
