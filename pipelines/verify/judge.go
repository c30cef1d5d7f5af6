package verify

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// judgeSuspects judges all suspects: it waits until the pipelines have passed the positions at
// which they were read, then reads them again.
func (s *scan) judgeSuspects(ctx context.Context) error {
	deadline := time.Now().Add(max(s.run.cfg.Timeout, 0))
	for len(s.suspects) > 0 {
		progress, err := s.run.checkpoints(ctx)
		if err != nil {
			return err
		}
		var passed, waiting, hopeless []Suspect
		var reasons []string
		// Asked before the suspects, so that what passes while they are gone through
		// is late for all of them alike.
		late := !time.Now().Before(deadline)
		for _, one := range s.suspects {
			left := one.WaitsFor(progress, s.target.PartitionFor(one.Ref.Key)) // a child of s.partition, if that was split
			switch {
			case left == "":
				passed = append(passed, one)
			// A pipeline that is paused, or that has used up its time on another
			// partition already, is not waited for by each suspect anew.
			case late || s.run.hopeless(one.Pipeline):
				hopeless, reasons = append(hopeless, one), append(reasons, left)
			default:
				waiting = append(waiting, one)
			}
		}
		if late && len(hopeless) > 0 {
			for i := range hopeless {
				s.run.expire(hopeless[i].Pipeline)
			}
		}
		if err := s.giveUp(ctx, hopeless, reasons); err != nil {
			return err
		}
		// A suspect has three ends:
		//
		//	passed, the same as it was     drift: nothing in flight can explain it
		//	passed, changed since          a suspect again, with the new positions
		//	not passed in time             behind, with what it waits for
		again, err := s.judgePassed(ctx, passed)
		if err != nil {
			return err
		}
		if late {
			if err := s.giveUp(ctx, again, slices.Repeat([]string{"it keeps changing"}, len(again))); err != nil {
				return err
			}
			again = nil
		}
		before := len(s.suspects)
		s.suspects = append(waiting, again...)
		s.run.updateProgress(func(p *Progress) { p.Waiting -= int64(before - len(s.suspects)) })
		if len(s.suspects) > 0 {
			if err := s.run.wait(ctx, s.run.cfg.PollInterval); err != nil {
				return err
			}
		}
	}
	return nil
}

// judgePassed reads suspects again which the pipelines have passed. Those that are as
// they were differ for no reason; those that have changed are suspects anew.
func (s *scan) judgePassed(ctx context.Context, passed []Suspect) (again []Suspect, err error) {
	err = s.reread(ctx, passed, func(v *view, was *Suspect, _ int) error {
		now := v.suspect()
		changed := v.drifts() && !now.same(was)
		// Only now is the write safe: its guard is the ETag that was just read, and
		// the pipeline has nothing left to do about it.
		if !changed && s.run.repair != nil && v.drifts() {
			if changed, err = s.run.repair.repairCopies(ctx, s, v); err != nil {
				return err
			}
			v.told = true
		}
		if changed {
			again = append(again, now)
		} else {
			s.run.countJudged(v, "")
		}
		return nil
	})
	return again, err
}

// giveUp reads suspects again that the pipelines have not passed in time. It reports those
// that still differ as behind, with what they wait for.
func (s *scan) giveUp(ctx context.Context, suspects []Suspect, reasons []string) error {
	return s.reread(ctx, suspects, func(v *view, _ *Suspect, i int) error {
		s.run.countJudged(v, reasons[i])
		return nil
	})
}

// reread reads suspects and their sources as they are now. visit also gets the
// suspect as it was, and its index.
func (s *scan) reread(ctx context.Context, suspects []Suspect, visit func(v *view, was *Suspect, i int) error) error {
	for _, p := range s.pipelines {
		var refs []store.ItemRef
		var at []int
		for i := range suspects {
			if suspects[i].Pipeline == p {
				refs, at = append(refs, suspects[i].Ref), append(at, i)
			}
		}
		for len(refs) > 0 {
			n := min(len(refs), s.run.cfg.PageItems)
			items, err := s.target.ReadMany(ctx, refs[:n], true)
			if err != nil {
				return fmt.Errorf("read items of %s again: %w", s.partition, err)
			}
			views, err := s.viewItems(ctx, p, items)
			if err != nil {
				return err
			}
			for k := range views {
				if err := visit(&views[k], &suspects[at[k]], at[k]); err != nil {
					return err
				}
			}
			refs, at = refs[n:], at[n:]
		}
	}
	return nil
}

// WaitsFor says what the pipeline has not done yet of what might repair the suspect in
// partition, as the checkpoints p say; "" if it has done all.
func (s *Suspect) WaitsFor(p registry.Checkpoints, partition feed.Partition) string {
	rec := &s.Pipeline.Record
	paused := ""
	if rec.Paused {
		paused = "; the pipeline is paused"
	}
	check := p.Of(rec, processors.RoleTarget, partition)
	// In the order in which a copy can still change: the check of the item itself,
	// then the fan-out of each source, first that it was begun, then that it is
	// done. A fan-out that is begun may be anywhere in the partition.
	if at := feed.Position(s.ETag); check.Position.Before(at) {
		return fmt.Sprintf("the check of %s stands at %s, before %s%s", partition, check.Position, at, paused)
	}
	if job := openJob(check, s.Ref); job != nil {
		return "its check was given up: " + job.LastError + paused
	}
	for i := range s.Sources {
		o := &s.Sources[i]
		at := s.Pipeline.Source.PartitionFor(o.Ref.Key)
		fanOut := p.Of(rec, processors.RoleSource, at)
		if fanOut.Position.Before(o.Passed) {
			return fmt.Sprintf("the fan-outs of %s stand at %s, before %s%s", at, fanOut.Position, o.Passed, paused)
		}
		job := openJob(fanOut, o.Ref)
		if job == nil {
			job = s.openBefore(p, at, o.Ref)
		}
		switch {
		case job == nil:
		case job.Parked:
			return "the fan-out of its source was given up: " + job.LastError + paused
		default:
			return "the fan-out of its source is open" + paused
		}
	}
	return ""
}

// openBefore returns the job or parked item that is about ref, a source in a partition, among those of partitions that were
// split: what they have given up stays with them. It is nil if there is none.
func (s *Suspect) openBefore(p registry.Checkpoints, partition feed.Partition, ref store.ItemRef) *processors.Job {
	source := s.Pipeline.Source.Info()
	if len(source.Former) == 0 {
		return nil
	}
	for _, reader := range s.Pipeline.Record.SourceReaders(&source, p) {
		if reader.Partition == partition {
			continue
		}
		if job := openJob(p.Of(&s.Pipeline.Record, processors.RoleSource, reader.Partition), ref); job != nil {
			return job
		}
	}
	return nil
}

// openJob returns the job or parked item that is about ref, nil if there is none.
func openJob(cp *processors.Checkpoint, ref store.ItemRef) *processors.Job {
	name := ref.String()
	for _, jobs := range [][]processors.Job{cp.Jobs, cp.Parked} {
		for i := range jobs {
			if jobs[i].Source == name {
				return &jobs[i]
			}
		}
	}
	return nil
}
