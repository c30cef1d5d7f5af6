package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/verify"
)

const (
	// settle is how long a comparison waits for what is in flight, as --settle of the commands.
	settle = 30 * time.Second
	// differencesShown are listed of each kind, as --list of the commands.
	differencesShown = 100
)

// actOnPipeline does something with a pipeline.
func (c *Console) actOnPipeline(x *exchange) error {
	if err := x.parseForm(actFormMax); err != nil {
		return err
	}
	database, name, act := x.r.PathValue("database"), x.r.PathValue("name"), x.r.PathValue("act")
	of := spec.Metadata{Database: database, Name: name}
	var err error
	switch act {
	case "pause":
		_, err = c.cfg.Inspect.Registry.Pause(x.r.Context(), database, name)
	case "resume":
		_, err = c.cfg.Inspect.Registry.Resume(x.r.Context(), database, name)
	case "rewind":
		return c.rewind(x, of)
	case "verify", "repair":
		return c.startComparison(x, of, act == "repair")
	default:
		return &refusal{http.StatusNotFound, fmt.Sprintf("A pipeline can be paused, resumed, rewound, verified and repaired; %q is not known.", act)}
	}
	if err != nil {
		return err
	}
	c.changedPipeline(x, of, act)
	return nil
}

// changedPipeline leads back to a pipeline that was changed.
func (c *Console) changedPipeline(x *exchange, of spec.Metadata, act string) {
	c.sampler.change()
	c.log.Info("console: a pipeline was changed", "pipeline", of.Name, "database", of.Database, "act", act, "from", x.r.RemoteAddr)
	http.Redirect(x.w, x.r, "/pipelines/"+joinEscaped([]string{of.Database, of.Name}), http.StatusSeeOther)
}

// rewind tells what a rewind would do, and begins it when somebody is sure. The second form has the
// place as a time, where the first had an age, and the version of the record that was looked at.
func (c *Console) rewind(x *exchange, of spec.Metadata) error {
	form := x.r.PostForm
	to, err := registry.ParseRewindTo(form.Get("to"), time.Now())
	if err != nil {
		return &refusal{http.StatusBadRequest, "A pipeline cannot be rewound there: " + err.Error() + "."}
	}
	if to.DiscardExpired = form.Has("discard-expired"); to.DiscardExpired && to.Kind != (registry.RewindTo{}).Kind {
		return &refusal{http.StatusBadRequest, "Expired items are left out of a rewind to the beginning; to another place there is nothing to leave out."}
	}
	if form.Has(sureField) {
		return c.startRewind(x, of, to)
	}
	preview, err := c.cfg.Inspect.Registry.PreviewRewind(x.r.Context(), of.Database, of.Name, to, c.cfg.Inspect.Replicas.Leases)
	if err != nil {
		return err
	}
	here := "/pipelines/" + joinEscaped([]string{of.Database, of.Name})
	ask := &confirmation{
		Says: []string{strings.Join(preview.Says, ";\n")}, Action: here + "/rewind", Back: here, Button: "Rewind " + of.Name,
		Fields: [][2]string{{"to", to.String()}, {sureField, strconv.FormatUint(preview.Record.Revision, 10)}},
	}
	if to.DiscardExpired {
		ask.Fields = append(ask.Fields, [2]string{"discard-expired", "on"})
	}
	return c.confirm(x, fmt.Sprintf("Rewind %s to %s?", of.Name, to), ask)
}

// rewound is the outcome of a rewind.
type rewound struct {
	spec.Metadata
	To         string
	Generation uint32
}

// Rewound is the outcome of a rewind; nil of other work.
func (p workPage) Rewound() *rewound { of, _ := p.Result.(*rewound); return of }

// startRewind begins a rewind of the record that was looked at. It may pin snapshots, and wait for
// them, so it is no matter of a request.
func (c *Console) startRewind(x *exchange, of spec.Metadata, to registry.RewindTo) error {
	rec, err := c.cfg.Inspect.Registry.Get(x.r.Context(), of.Database, of.Name)
	if err != nil {
		return err
	}
	// Rewind compares too, for somebody may still come between; here it is answered at once.
	if to.Revision = rec.Revision; x.r.PostForm.Get(sureField) != strconv.FormatUint(rec.Revision, 10) {
		return &refusal{http.StatusConflict, "Nothing was rewound: " + registry.ErrRecordChanged.Error() + "."}
	}
	return c.begin(x, "Rewind "+of.Title(), func(ctx context.Context, _ tellFunc) (any, error) {
		rec, err := c.cfg.Inspect.Registry.Rewind(ctx, of.Database, of.Name, to, c.cfg.Inspect.Replicas.Leases)
		c.sampler.change()
		if errors.Is(err, registry.ErrRecordChanged) {
			err = fmt.Errorf("nothing was rewound: %w", err)
		}
		if err != nil {
			return nil, err
		}
		c.log.Info("console: a pipeline was rewound", "pipeline", of.Name, "database", of.Database, "to", to.String(), "generation", rec.Generation)
		return &rewound{of, to.String(), rec.Generation}, nil
	})
}

// compared is the outcome of a verification, or of a repair.
type compared struct {
	spec.Metadata
	ID     string // of the pipeline's record when it began
	Repair bool
	Report *verify.Report
}

// Repairable tells whether a repair may do something about what was found.
func (c *compared) Repairable() bool {
	return !c.Repair && (c.Report.Verdict == verify.VerdictDrift || c.Report.Verdict == verify.VerdictBehind)
}

// Equal tells whether all is as it must be.
func (c *compared) Equal() bool { return c.Report.Verdict == verify.VerdictEqual }

// Compared is the outcome of a verification or a repair; nil of other work.
func (p workPage) Compared() *compared { of, _ := p.Result.(*compared); return of }

// startComparison begins a verification, or a repair of what a verification has found: that comes
// first, so that who repairs has seen what.
func (c *Console) startComparison(x *exchange, of spec.Metadata, repair bool) error {
	rec, err := c.cfg.Inspect.Registry.Get(x.r.Context(), of.Database, of.Name)
	if err != nil {
		return err
	}
	title := "Verify " + of.Title()
	if repair {
		title = "Repair " + of.Title()
		seen := (*compared)(nil)
		if before := c.work.get(x.r.PostForm.Get("verified")); before != nil {
			seen = pageOf(before).Compared()
		}
		if seen == nil || seen.Repair || seen.Metadata != of || seen.ID != rec.ID || len(seen.Report.Pipelines) != 1 || seen.Report.Pipelines[0].Generation != rec.Generation {
			return &refusal{http.StatusConflict, "Nothing was repaired: verify the pipeline as it is now, and look at what differs."}
		}
	}
	return c.begin(x, title, func(ctx context.Context, tell tellFunc) (any, error) { return c.compare(ctx, of, rec.ID, repair, tell) })
}

// compare verifies or repairs a pipeline as the commands do.
func (c *Console) compare(ctx context.Context, of spec.Metadata, id string, repair bool, tell tellFunc) (*compared, error) {
	in := &c.cfg.Inspect
	cfg := verify.Config{Timeout: settle, ListMax: differencesShown, Bucket: in.Replicas.Leases, Progress: func(p verify.Progress) {
		note := format.Plural(p.Copies, "copy", "copies")
		if p.Waiting > 0 {
			note += fmt.Sprintf(", waiting for %s in flight", format.Plural(p.Waiting, "item", "items"))
		}
		tell(p.Items, max(p.Total, p.Items), note)
	}}
	do := verify.New(in.JetStream, in.Registry, in.Client, cfg).Verify
	if repair {
		do = verify.NewRepairer(in.JetStream, in.Registry, in.Client, cfg).Repair
		c.log.Info("console: a pipeline is repaired", "pipeline", of.Name, "database", of.Database)
	}
	report, err := do(ctx, of)
	if repair {
		c.sampler.change()
		c.letters.change()
	}
	if err != nil {
		return nil, err
	}
	return &compared{of, id, repair, report}, nil
}
