package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/await"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/plan"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
)

const (
	// pastedName is the name in findings of what was typed.
	pastedName = "pasted"
	// nearFinding is how many lines are shown before and after one with a finding.
	nearFinding = 3
	// excerptMax bounds the lines that are shown of all files, and lineMax one of them, in bytes.
	excerptMax = 400
	lineMax    = 400
	// samplesShown is how many items or rows of each pipeline are shown before and after.
	samplesShown = 3
	// applyWait is how long apply waits for what is not there yet, as --wait of the command.
	applyWait = 30 * time.Second
	// planFormMax bounds the form, whose texts are kept as long as its plan is, and planBytesMax what a
	// plan counts with at a time: it shares the memory of a node with its store and workers.
	planFormMax  = 4 << 20
	planBytesMax = 32 << 20
	// findingsMax are listed; those beyond are counted.
	findingsMax = 200
)

// The ways to begin that a plan can be made for.
const (
	beginBackfill = "backfill"
	beginFromNow  = "from-now"
)

// planForm is what somebody wants to be declared.
type planForm struct {
	Text  string // what was typed
	Files []spec.Text
	Begin string
	// DiscardExpired is as in registry.ApplyOptions.
	DiscardExpired bool
	Problem        string
}

// texts are all of them, as files.
func (f *planForm) texts() []spec.Text {
	texts := slices.Clone(f.Files)
	if strings.TrimSpace(f.Text) != "" {
		texts = append(texts, spec.Text{Name: pastedName, Data: []byte(f.Text)})
	}
	return texts
}

func (f *planForm) has(name string) bool {
	return name == pastedName || slices.ContainsFunc(f.Files, func(t spec.Text) bool { return t.Name == name })
}

func (f *planForm) options() registry.ApplyOptions {
	return registry.ApplyOptions{Backfill: f.Begin == beginBackfill, FromNow: f.Begin == beginFromNow, DiscardExpired: f.DiscardExpired}
}

// planned is a plan, or what is wrong with the declarations.
type planned struct {
	Form *planForm
	Plan *plan.Plan // nil if there is none
	// Said is the plan as the command prints it, without the samples; of a plan that is refused
	// for a cycle, the graph.
	Said     string
	Findings []finding
	Excerpts []excerpt
}

// finding is one thing that is wrong.
type finding struct {
	Place   string `json:"place,omitempty"`
	Message string `json:"message"`
	Anchor  string `json:"-"` // of its line; "" if that is not shown
}

// excerpt are the lines of a file that have findings, and those near them.
type excerpt struct {
	Name  string
	Lines []excerptLine
}

// excerptLine is one line; Number 0 stands for those that are left out.
type excerptLine struct {
	Number int
	Anchor string
	Text   string
	Wrong  []string // what is wrong here
}

// Samples are the resources of which items or rows are shown before and after.
func (p *planned) Samples() []plan.Resource {
	return slices.DeleteFunc(slices.Clone(p.Plan.Resources), func(r plan.Resource) bool { return r.Effect == nil || len(r.Effect.Samples) == 0 })
}

func (c *Console) showPlan(x *exchange) error {
	return c.show(x, "plan", "Plan", &planForm{}, nil)
}

// startPlan makes a plan of what was typed, of the files that were sent, and, where that is asked for,
// of those of a plan before.
func (c *Console) startPlan(x *exchange) error {
	form, err := c.readPlanForm(x)
	if err != nil {
		return err
	}
	if len(form.texts()) == 0 {
		form.Problem = "Paste a declaration, or choose a file."
		c.write(x.w, x.r, http.StatusBadRequest, "plan", &view{Title: "Plan", Role: x.role, Page: form})
		return nil
	}
	return c.begin(x, "Plan", func(ctx context.Context, tell tellFunc) (any, error) { return c.plan(ctx, form, tell) })
}

func (c *Console) readPlanForm(x *exchange) (*planForm, error) {
	x.r.Body = http.MaxBytesReader(x.w, x.r.Body, planFormMax)
	if err := x.r.ParseMultipartForm(planFormMax); err != nil && !errors.Is(err, http.ErrNotMultipart) {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return nil, &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("At most %d bytes can be sent at a time; millrace plan has no such limit.", planFormMax)}
		}
		return nil, &refusal{http.StatusBadRequest, "The form cannot be read: " + err.Error()}
	}
	sent := x.r.PostForm
	form := &planForm{Text: sent.Get("text"), Begin: sent.Get("begin"), DiscardExpired: sent.Has("discard-expired")}
	if len(form.Text) > spec.FileBytesMax {
		return nil, &refusal{http.StatusBadRequest, fmt.Sprintf("At most %d bytes can be pasted.", spec.FileBytesMax)}
	}
	if x.r.MultipartForm != nil {
		for _, header := range x.r.MultipartForm.File["file"] {
			text, err := readText(header)
			if err != nil {
				return nil, err
			}
			if len(text.Data) == 0 { // a field without a file comes as an empty one
				continue
			}
			// Findings tell files by their names, and two folders may have the same.
			for n, name := 2, text.Name; form.has(text.Name); n++ {
				text.Name = fmt.Sprintf("%s (%d)", name, n)
			}
			form.Files = append(form.Files, text)
		}
	}
	if before := c.work.get(sent.Get("again")); before != nil {
		if of := pageOf(before).Planned(); of != nil && of.Plan != nil {
			form.Text, form.Files = of.Form.Text, slices.Clone(of.Form.Files)
		}
	}
	return form, nil
}

func readText(header *multipart.FileHeader) (spec.Text, error) {
	file, err := header.Open()
	if err != nil {
		return spec.Text{}, err
	}
	defer file.Close() // it was only read
	data, err := io.ReadAll(io.LimitReader(file, spec.FileBytesMax+1))
	if err == nil && len(data) > spec.FileBytesMax {
		err = &refusal{http.StatusBadRequest, fmt.Sprintf("%s is larger than %d bytes.", header.Filename, spec.FileBytesMax)}
	}
	return spec.Text{Name: path.Base(header.Filename), Data: data}, err
}

// plan makes a plan as the command does.
func (c *Console) plan(ctx context.Context, form *planForm, tell tellFunc) (*planned, error) {
	result := &planned{Form: form}
	declared, err := spec.LoadTexts(form.texts())
	if err == nil {
		cfg := plan.Config{SamplesMax: samplesShown, BytesMax: planBytesMax, Progress: func(p plan.Progress) {
			tell(p.Items, p.Total, format.Plural(p.Changes, "change", "changes"))
		}}
		in := &c.cfg.Inspect
		result.Plan, err = plan.New(in.JetStream, in.Registry, in.Client, cfg).Plan(ctx, declared, form.options())
	}
	var out strings.Builder
	if err != nil {
		// A plan that is refused for a cycle comes with the graph, which shows it best.
		if p := result.Plan; p != nil && len(p.Graph.Cycles) > 0 {
			err = errors.Join(err, plan.PrintGraph(&out, &p.Graph, plan.Style{}))
		}
		result.Plan, result.Said = nil, out.String()
		if findings, ok := findingsOf(err); ok {
			result.find(findings)
			err = nil // they are the result
		}
		// Files that cannot be applied serve nobody any more: they have to be chosen again.
		for i := range form.Files {
			form.Files[i].Data = nil
		}
		return result, err
	}
	if err := withoutSamples(result.Plan).Print(&out, plan.Style{}); err != nil {
		return result, err
	}
	result.Said = strings.TrimSpace(out.String())
	return result, nil
}

// withoutSamples returns a plan that prints no samples, which stand in tables.
func withoutSamples(p *plan.Plan) *plan.Plan {
	without := *p
	without.Resources = slices.Clone(p.Resources)
	for i := range without.Resources {
		if e := without.Resources[i].Effect; e != nil {
			effect := *e
			effect.Samples = nil
			without.Resources[i].Effect = &effect
		}
	}
	return &without
}

func findingsOf(err error) (spec.Findings, bool) {
	if refused, ok := errors.AsType[*registry.RefusedError](err); ok {
		return refused.Findings, true
	}
	return errors.AsType[spec.Findings](err)
}

// find lists findings, and shows the lines that they are about. A text in which something may be a
// secret is not shown: it may go on in the next lines, or stand in others too.
func (p *planned) find(findings spec.Findings) {
	more := max(len(findings)-findingsMax, 0)
	secret := map[string]bool{} // by the text's name
	for _, f := range findings {
		secret[f.Place.File] = secret[f.Place.File] || f.Secret
	}
	findings = findings[:len(findings)-more]
	left := excerptMax
	for _, text := range p.Form.texts() {
		if secret[text.Name] {
			continue
		}
		wrong := map[int][]string{}
		for _, f := range findings {
			if f.Place.File == text.Name && f.Place.Line > 0 {
				wrong[f.Place.Line] = append(wrong[f.Place.Line], f.Message)
			}
		}
		if len(wrong) > 0 {
			p.Excerpts = append(p.Excerpts, excerptOf(len(p.Excerpts), text, wrong, &left))
		}
	}
	for _, f := range findings {
		shown := finding{Place: f.Place.String(), Message: f.Message}
		for _, e := range p.Excerpts {
			for _, line := range e.Lines {
				if e.Name == f.Place.File && line.Number == f.Place.Line {
					shown.Anchor = line.Anchor
				}
			}
		}
		p.Findings = append(p.Findings, shown)
	}
	if more > 0 {
		p.Findings = append(p.Findings, finding{Message: fmt.Sprintf("and %s more", format.Plural(more, "finding", "findings"))})
	}
}

// excerptOf returns the lines of a text that are wrong, with those near them, as long as there are
// any left.
func excerptOf(number int, text spec.Text, wrong map[int][]string, left *int) excerpt {
	near := map[int]bool{}
	for n := range wrong {
		for i := n - nearFinding; i <= n+nearFinding; i++ {
			near[i] = true
		}
	}
	e := excerpt{Name: text.Name}
	last := 0
	for i, line := range strings.Split(strings.ReplaceAll(string(text.Data), "\r\n", "\n"), "\n") {
		n := i + 1
		if !near[n] || *left == 0 {
			continue
		}
		if n > last+1 && last > 0 {
			e.Lines = append(e.Lines, excerptLine{})
		}
		*left--
		last = n
		e.Lines = append(e.Lines, excerptLine{Number: n, Anchor: fmt.Sprintf("line-%d-%d", number, n), Text: clip(line, lineMax), Wrong: wrong[n]})
	}
	return e
}

// applied is what apply has done.
type applied struct{ Outcomes []registry.Outcome }

// startApply applies a plan that was looked at: the same declarations with the same options, and only
// if the plan would be the same now.
func (c *Console) startApply(x *exchange) error {
	if err := x.parseForm(actFormMax); err != nil {
		return err
	}
	of := (*planned)(nil)
	if before := c.work.get(x.r.PostForm.Get("plan")); before != nil {
		of = pageOf(before).Planned()
	}
	switch {
	case of == nil || of.Plan == nil:
		return &refusal{http.StatusConflict, "Nothing was applied: the plan is not known any more; make it again."}
	case of.Plan.Hash != x.r.PostForm.Get("hash"):
		return &refusal{http.StatusConflict, "Nothing was applied: the form is of another plan."}
	}
	return c.begin(x, "Apply", func(ctx context.Context, tell tellFunc) (any, error) { return c.apply(ctx, of, tell) })
}

func (c *Console) apply(ctx context.Context, of *planned, tell tellFunc) (*applied, error) {
	declared, err := spec.LoadTexts(of.Form.texts())
	if err != nil {
		return nil, err
	}
	opts := of.Form.options()
	opts.Plan = of.Plan.Hash
	opts.Await = func(ctx context.Context, what string, step func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, applyWait)
		defer cancel()
		return await.Until(ctx, func(what string, waited time.Duration, err error) {
			if err != nil {
				tell(0, 0, fmt.Sprintf("waiting for %s since %s: %v", what, waited.Round(time.Second), err))
			}
		}, what, step)
	}
	done, err := c.cfg.Inspect.Registry.Apply(ctx, declared, opts)
	c.sampler.change()
	if _, changed := errors.AsType[*registry.PlanError](err); changed {
		err = fmt.Errorf("nothing was applied: %w", err)
	}
	if len(done) > 0 {
		c.log.Info("console: declarations were applied", "plan", of.Plan.Hash, "resources", len(done))
	}
	return &applied{done}, err
}
