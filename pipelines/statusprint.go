package pipelines

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// fanOutsShown bounds the fan-outs of one pipeline that are printed.
const fanOutsShown = 10

// rejectsShown bounds the rejected rows of one pipeline that are printed.
const rejectsShown = 5

// Print writes the status as a table: a line for each pipeline, its open
// fan-outs, and with wide a line for each processor.
func (s *Status) Print(w io.Writer, wide bool) error {
	for _, problem := range s.Problems {
		if _, err := fmt.Fprintf(w, "not all could be read: %s\n\n", problem); err != nil {
			return err
		}
	}
	for _, warning := range s.Warnings {
		if _, err := fmt.Fprintf(w, "warning: %s\n", warning); err != nil {
			return err
		}
	}
	if err := s.printPipelines(w, wide); err != nil {
		return err
	}
	if s.Storage != nil {
		return s.Storage.tell(w, s.Time)
	}
	return nil
}

func (s *Status) printPipelines(w io.Writer, wide bool) error {
	if len(s.Pipelines) == 0 {
		_, err := fmt.Fprintln(w, "No pipeline is registered; declare one with millrace apply -f FILE.")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t")) } // t keeps the error for Flush
	row("PIPELINE", "STATE", "LAG", "OLDEST", "COPIES", "RATE", "FAN-OUTS", "PARKED", "DEAD LETTERS", "VERIFIED")
	for i := range s.Pipelines {
		p := &s.Pipelines[i]
		row(p.title(), string(p.State), p.Lag.text(), age(p.Lag.Seconds), count(p.Counts.Copies+p.Counts.Rows),
			count(int64(p.Rate))+"/s", count(int64(len(p.FanOuts))), count(int64(p.Parked)), count(p.Counts.Letters), p.Proof.cell(s.Time))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range s.Pipelines {
		if err := s.Pipelines[i].details(w, wide, s.Time); err != nil {
			return err
		}
	}
	return nil
}

func (p *PipelineStatus) title() string {
	if p.Database == DatabaseDefault {
		return p.Name
	}
	return p.Database + "/" + p.Name
}

// details writes what does not fit into the pipeline's line.
func (p *PipelineStatus) details(w io.Writer, wide bool, now time.Time) error {
	var b strings.Builder
	if p.Reason != "" {
		fmt.Fprintf(&b, "\n%s is %s: %s\n", p.title(), p.State, p.Reason)
	}
	if p.Backfill != nil {
		fmt.Fprintf(&b, "\nBackfill of %s: %s\n", p.title(), p.Backfill.text())
	}
	if p.Sink != nil && p.Sink.Error != "" {
		since := ""
		if !p.Sink.Since.IsZero() {
			since = ", first " + ago(now, p.Sink.Since)
		}
		fmt.Fprintf(&b, "\nSink of %s: %s %s failed %s%s: %s\n", p.title(), p.Sink.Kind, p.Sink.Where, times(p.Sink.Attempts), since, p.Sink.Error)
	}
	if n := p.Counts.Rejects; n > 0 && p.Sink != nil {
		fmt.Fprintf(&b, "\nRejects of %s: %s\n", p.title(), count(n))
		for i := range min(len(p.Sink.Rejected), rejectsShown) {
			fmt.Fprintf(&b, "  %s\n", p.Sink.Rejected[i])
		}
	}
	if p.Proof != nil && (wide || p.Proof.Verdict == VerdictDrift) {
		fmt.Fprintf(&b, "\nVerified of %s: %s\n", p.title(), p.Proof.text(now, p.Name))
	}
	if len(p.FanOuts) > 0 {
		fmt.Fprintf(&b, "\nFan-outs of %s\n", p.title())
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for i := range min(len(p.FanOuts), fanOutsShown) {
			fmt.Fprintf(t, "  %s\n", p.FanOuts[i].row())
		}
		if more := len(p.FanOuts) - fanOutsShown; more > 0 {
			fmt.Fprintf(t, "  and %s more\n", count(int64(more)))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if wide && len(p.Processors) > 0 {
		if err := p.readers(&b); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// readers writes a line for each processor.
func (p *PipelineStatus) readers(b *strings.Builder) error {
	fmt.Fprintf(b, "\nProcessors of %s (%s, %s to %s, generation %d)\n", p.title(), p.Kind, p.Source, p.Target, p.Generation)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  ROLE\tPARTITION\tSTATE\tPOSITION\tHEAD\tLAG\tOLDEST\tEPOCH\tOWNER")
	for i := range p.Processors {
		r := &p.Processors[i]
		role := string(r.Role)
		if r.Generation != p.Generation {
			role += fmt.Sprintf(" of generation %d", r.Generation)
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%d\t%s\t%s\t%d\t%s\n", role, r.Partition, r.State, r.Position, r.Head,
			r.Lag.text(), age(r.Lag.Seconds), r.Epoch, orDash(r.Owner))
	}
	return t.Flush()
}

// row prints one fan-out, cells divided by tabs.
func (f *FanOutStatus) row() string {
	share, eta := "begun", "-"
	if f.Total > 0 {
		share = fmt.Sprintf("%.0f%% of %s", f.Percent, count(f.Total))
	}
	if f.ETA > 0 {
		eta = "ETA " + age(f.ETA.Seconds())
	}
	s := fmt.Sprintf("%s\t%s\t%s changed\t%s/s\t%s", f.Source, share, count(f.Changed), count(int64(f.Rate)), eta)
	if f.LastError != "" {
		s += "\t" + times(f.Attempts) + " tried: " + f.LastError
	}
	return s
}

// text tells the changes, about how many if not all were counted.
func (l *Lag) text() string {
	if l.Estimated {
		return "~" + count(int64(l.Changes))
	}
	return count(int64(l.Changes))
}

// text tells how far a backfill is.
func (b *BackfillStatus) text() string {
	s := fmt.Sprintf("%.0f%% of %s commits", b.Percent, count(int64(b.Total)))
	if b.ETA > 0 {
		s += ", ETA " + age(b.ETA.Seconds())
	}
	if b.Shadow {
		s += "; then its rows take the place of the former ones"
	}
	return s
}

// count prints a number with commas.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// age prints seconds in few characters; a dash for none.
func age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d <= 0:
		return "-"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
