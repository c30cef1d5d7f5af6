package status

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/verify"
)

// fanOutsShown bounds the fan-outs of one pipeline that are printed.
const fanOutsShown = 10

// rejectsShown bounds the rejected rows of one pipeline that are printed.
const rejectsShown = 5

// unreadShown bounds the partitions of one pipeline that are printed because they could not be read.
const unreadShown = 10

// Print writes the status as a table: what could not be read, a line for each pipeline, its open
// fan-outs, and with wide a line for each processor.
func (s *Status) Print(w io.Writer, wide bool) error {
	for _, problem := range s.Problems {
		if _, err := fmt.Fprintf(w, "not all could be read: %s\n\n", problem); err != nil {
			return err
		}
	}
	for i := range s.Pipelines {
		if p := &s.Pipelines[i]; len(p.Unread) > 0 {
			if _, err := fmt.Fprintf(w, "not all could be read: %s\n\n", p.unreadText()); err != nil {
				return err
			}
		}
	}
	for _, warning := range s.Warnings {
		if _, err := fmt.Fprintf(w, "warning: %s\n", warning); err != nil {
			return err
		}
	}
	for _, advice := range s.Advice {
		if _, err := fmt.Fprintf(w, "hot: %s\n", advice); err != nil {
			return err
		}
	}
	if err := s.printPipelines(w, wide); err != nil {
		return err
	}
	if s.Storage != nil {
		return s.Storage.writeTo(w, s.Time)
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
		row(p.title(), string(p.State), p.Lag.Text(), format.Age(p.Lag.Seconds), format.Count(p.Counts.Copies+p.Counts.Rows),
			format.Count(int64(p.Rate))+"/s", format.Count(len(p.FanOuts)), format.Count(p.Parked), format.Count(p.Counts.DeadLetters), verifiedCell(p.Verified, s.Time))
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

func (p *Pipeline) title() string { return spec.Metadata{Name: p.Name, Database: p.Database}.Title() }

// unreadText says which logs could not be read; the pipeline's reason tells why of one of them.
func (p *Pipeline) unreadText() string {
	partitions := strings.Join(p.Unread[:min(len(p.Unread), unreadShown)], ", ")
	if more := len(p.Unread) - unreadShown; more > 0 {
		partitions += fmt.Sprintf(" and %s more", format.Count(more))
	}
	return fmt.Sprintf("%s of pipeline %s (%s), so what is left to do there is not known", format.Plural(len(p.Unread), "log", "logs"), p.title(), partitions)
}

// details writes what does not fit into the pipeline's line.
func (p *Pipeline) details(w io.Writer, wide bool, now time.Time) error {
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
			since = ", first " + format.Ago(now, p.Sink.Since)
		}
		fmt.Fprintf(&b, "\nSink of %s: %s %s failed %s%s: %s\n", p.title(), p.Sink.Kind, p.Sink.Where, times(p.Sink.Attempts), since, p.Sink.Error)
	}
	if n := p.Counts.Rejects; n > 0 && p.Sink != nil {
		fmt.Fprintf(&b, "\nRejects of %s: %s\n", p.title(), format.Count(n))
		for i := range min(len(p.Sink.Rejected), rejectsShown) {
			fmt.Fprintf(&b, "  %s\n", p.Sink.Rejected[i])
		}
	}
	if p.Verified != nil && (wide || p.Verified.Verdict == verify.VerdictDrift) {
		fmt.Fprintf(&b, "\nVerified of %s: %s\n", p.title(), verifiedText(p.Verified, now, p.Name))
	}
	if len(p.FanOuts) > 0 {
		fmt.Fprintf(&b, "\nFan-outs of %s\n", p.title())
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for i := range min(len(p.FanOuts), fanOutsShown) {
			fmt.Fprintf(t, "  %s\n", p.FanOuts[i].row())
		}
		if more := len(p.FanOuts) - fanOutsShown; more > 0 {
			fmt.Fprintf(t, "  and %s more\n", format.Count(more))
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
func (p *Pipeline) readers(b *strings.Builder) error {
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
			r.Lag.Text(), format.Age(r.Lag.Seconds), r.Epoch, orDash(r.Owner))
	}
	return t.Flush()
}

// row prints one fan-out, cells divided by tabs.
func (f *FanOut) row() string {
	share, eta := "begun", "-"
	if f.Total > 0 {
		share = fmt.Sprintf("%.0f%% of %s", f.Percent, format.Count(f.Total))
	}
	if f.ETA > 0 {
		eta = "ETA " + format.Age(f.ETA.Seconds())
	}
	s := fmt.Sprintf("%s\t%s\t%s changed\t%s/s\t%s", f.Source, share, format.Count(f.Changed), format.Count(int64(f.Rate)), eta)
	if f.LastError != "" {
		s += "\t" + times(f.Attempts) + " tried: " + f.LastError
	}
	return s
}

// Text tells the changes: with ~ if not all were counted, with + if there may be any number more,
// and as ? if nothing is known of them.
func (l *Lag) Text() string {
	s := format.Count(l.Changes)
	if l.Estimated {
		s = "~" + s
	}
	switch {
	case l.Unknown && l.Changes == 0:
		return "?"
	case l.Unknown:
		return s + "+"
	}
	return s
}

// text tells how far a backfill is.
func (b *Backfill) text() string {
	s := fmt.Sprintf("%.0f%% of %s commits", b.Percent, format.Count(b.Total))
	if b.ETA > 0 {
		s += ", ETA " + format.Age(b.ETA.Seconds())
	}
	if b.Shadow {
		s += "; then its rows take the place of the former ones"
	}
	return s
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
