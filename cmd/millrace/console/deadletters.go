package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/deadletters"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

const (
	// lettersShown bounds the dead letters on the page of one pipeline's, lettersShownEach those of
	// each pipeline where all are shown.
	lettersShown     = 200
	lettersShownEach = 20
	// lettersAtOnce are tried again or dropped before the form is answered; more are a piece of work.
	lettersAtOnce = 200
)

// lettersPage is the list of dead letters, of one pipeline or of all.
type lettersPage struct {
	Lists []letterList
	All   bool // of all pipelines
	After bool // not from the beginning
}

func (c *Console) deadLetters(x *exchange) error {
	if wantsJSON(x.r) {
		records, err := c.cfg.Inspect.Registry.List(x.r.Context())
		if err != nil {
			return err
		}
		return c.deadLettersJSON(x, records, "")
	}
	lists, err := c.letters.newest(x.r.Context())
	if err != nil {
		return err
	}
	page := lettersPage{All: true, Lists: make([]letterList, len(lists))}
	for i := range lists {
		page.Lists[i] = lists[i]
		page.Lists[i].show(lettersShownEach)
	}
	return c.show(x, "dead-letters", "Dead letters", page, nil)
}

// deadLettersJSON answers with what dead-letters list -o json prints. Where that is not all, a header
// Link names what comes next, for each pipeline. It takes its turn, as it goes through all of them too.
func (c *Console) deadLettersJSON(x *exchange, records []registry.Record, after string) error {
	ctx := x.r.Context()
	if err := c.letters.take(ctx); err != nil {
		return err
	}
	defer c.letters.leave()
	all, cut, err := deadletters.Open(&c.cfg.Inspect).List(ctx, records, after, deadletters.ListMax)
	if err != nil {
		return err
	}
	for i := range cut {
		next := url.Values{"o": {"json"}, "after": {cut[i].After}}
		x.w.Header().Add("Link", fmt.Sprintf(`</dead-letters/%s?%s>; rel="next"`, joinEscaped([]string{cut[i].Database, cut[i].Name}), next.Encode()))
	}
	return writeJSON(x.w, all)
}

// letterDesk returns the desk of dead letters, and the pipeline that the path names.
func (c *Console) letterDesk(x *exchange) (*deadletters.Desk, *registry.Record, error) {
	rec, err := c.cfg.Inspect.Registry.Get(x.r.Context(), x.r.PathValue("database"), x.r.PathValue("name"))
	if err != nil {
		return nil, nil, err
	}
	return deadletters.Open(&c.cfg.Inspect), &rec, nil
}

func (c *Console) deadLettersOf(x *exchange) error {
	desk, rec, err := c.letterDesk(x)
	if err != nil {
		return err
	}
	after := x.r.URL.Query().Get("after")
	if _, err := processors.ParseDeadLetterMark(after); err != nil {
		return &refusal{http.StatusBadRequest, "The address names no place among dead letters."}
	}
	switch {
	case wantsJSON(x.r):
		return c.deadLettersJSON(x, []registry.Record{*rec}, after)
	case after != "":
		return c.deadLettersAfter(x, desk, rec, after)
	}
	lists, err := c.letters.newest(x.r.Context())
	if err != nil {
		return err
	}
	page := lettersPage{}
	for i := range lists {
		if lists[i].Database == rec.Database && lists[i].Name == rec.Name {
			page.Lists = lists[i : i+1]
		}
	}
	return c.show(x, "dead-letters", "Dead letters of "+rec.Name, page, nil)
}

// deadLettersAfter shows the dead letters of a pipeline behind a place.
func (c *Console) deadLettersAfter(x *exchange, desk *deadletters.Desk, rec *registry.Record, after string) error {
	if err := c.letters.take(x.r.Context()); err != nil {
		return err
	}
	defer c.letters.leave()
	page, err := desk.Page(x.r.Context(), rec, after, lettersShown)
	if err != nil {
		return err
	}
	list := letterList{Database: rec.Database, Name: rec.Name}
	list.take(page)
	// Not live: at each sample, for each who looks, all would be gone through.
	c.write(x.w, x.r, http.StatusOK, "dead-letters", &view{
		Title: "Dead letters of " + rec.Name, Role: x.role, Page: lettersPage{Lists: []letterList{list}, After: true},
	})
	return nil
}

// letterPage is one dead letter.
type letterPage struct {
	*deadletters.DeadLetter
	Container string // of the item
}

// OfTarget tells whether it is about an item of the pipeline's target, which was checked.
func (p letterPage) OfTarget() bool { return p.Role == processors.RoleTarget }

func (c *Console) deadLetter(x *exchange) error {
	desk, rec, err := c.letterDesk(x)
	if err != nil {
		return err
	}
	letter, err := desk.Show(x.r.Context(), rec, x.r.PathValue("id"))
	if errors.Is(err, store.ErrNotFound) {
		return &refusal{http.StatusNotFound, "There is no such dead letter: it was tried again, and is done, or somebody has dropped it."}
	}
	if err != nil {
		return err
	}
	page := letterPage{letter, rec.Spec.Source.Container}
	if page.OfTarget() {
		page.Container = rec.Spec.Target()
	}
	return c.show(x, "dead-letter", "Dead letter of "+rec.Name, page, letter)
}

// actOnDeadLetters has one dead letter, or all of a pipeline, tried again or dropped. What is dropped
// is what was shown when somebody was asked whether they were sure.
func (c *Console) actOnDeadLetters(x *exchange) error {
	desk, rec, err := c.letterDesk(x)
	if err != nil {
		return err
	}
	if err := x.parseForm(actFormMax); err != nil {
		return err
	}
	form := x.r.PostForm
	act, id := deadletters.Act(form.Get("act")), form.Get("id")
	if act != deadletters.Retry && act != deadletters.Drop {
		return &refusal{http.StatusBadRequest, "Dead letters can be tried again and dropped."}
	}
	all := strings.TrimSpace(id) == ""
	if act == deadletters.Drop && !form.Has(sureField) {
		return c.askToDrop(x, desk, rec, id)
	}
	switch {
	case !all && act == deadletters.Drop:
		err = seenStill(desk.DropOneSeen(x.r.Context(), rec, id, form.Get(sureField)))
	case !all:
		err = desk.Retry(x.r.Context(), rec, id)
	default:
		return c.actOnAll(x, desk, rec, act)
	}
	c.letters.change() // also of an error, which comes after some were done
	if err != nil {
		return err
	}
	c.lookedAfter(x, rec, act, id)
	return nil
}

// lookedAfter leads back to the dead letters of a pipeline that somebody has looked after.
func (c *Console) lookedAfter(x *exchange, rec *registry.Record, act deadletters.Act, id string) {
	c.sampler.change()
	c.log.Info("console: dead letters were looked after", "pipeline", rec.Name, "database", rec.Database, "act", string(act), "id", id, "from", x.r.RemoteAddr)
	http.Redirect(x.w, x.r, "/dead-letters/"+joinEscaped([]string{rec.Database, rec.Name}), http.StatusSeeOther)
}

// lettersActed is the outcome of work on all dead letters of a pipeline.
type lettersActed struct {
	Database, Name string
	Act            deadletters.Act
	deadletters.Outcome
}

// LettersActed is the outcome of work on dead letters; nil of other work.
func (p workPage) LettersActed() *lettersActed { of, _ := p.Result.(*lettersActed); return of }

// Dropped tells whether they were dropped, and not asked for.
func (l *lettersActed) Dropped() bool { return l.Act == deadletters.Drop }

// actOnAll has all dead letters of a pipeline tried again, or those dropped that were shown. Of many
// it is a piece of work: a request would be cut off.
func (c *Console) actOnAll(x *exchange, desk *deadletters.Desk, rec *registry.Record, act deadletters.Act) error {
	do := func(ctx context.Context, tell tellFunc) (*lettersActed, error) {
		o, err := desk.DoAll(ctx, rec, act, tellLetters(tell))
		return &lettersActed{rec.Database, rec.Name, act, o}, err
	}
	title := "Retry the dead letters of "
	if act == deadletters.Drop {
		until, err := time.Parse(time.RFC3339Nano, x.r.PostForm.Get("until"))
		if err != nil {
			return &refusal{http.StatusBadRequest, "The form lacks which dead letters were shown; look again."}
		}
		seen := deadletters.Seen{Until: until, Digest: x.r.PostForm.Get(sureField)}
		title = "Drop the dead letters of "
		do = func(ctx context.Context, tell tellFunc) (*lettersActed, error) {
			o, err := desk.DropSeen(ctx, rec, seen, tellLetters(tell))
			return &lettersActed{rec.Database, rec.Name, act, o}, seenStill(err)
		}
	}
	first, err := desk.Page(x.r.Context(), rec, "", 1)
	if err != nil {
		return err
	}
	if first.Total > lettersAtOnce {
		return c.begin(x, title+spec.Metadata{Database: rec.Database, Name: rec.Name}.Title(), func(ctx context.Context, tell tellFunc) (any, error) {
			defer c.letters.change() // also of an error, which comes after some were done
			return do(ctx, tell)
		})
	}
	acted, err := do(x.r.Context(), func(int64, int64, string) {})
	c.letters.change()
	if err != nil {
		return err
	}
	if acted.Newer > 0 {
		return &refusal{http.StatusConflict, fmt.Sprintf("%s dropped. %s given up anew meanwhile and remain; look again.",
			format.Plural(acted.Count, "dead letter was", "dead letters were"), format.Plural(acted.Newer, "dead letter was", "dead letters were"))}
	}
	c.lookedAfter(x, rec, act, "")
	return nil
}

func tellLetters(tell tellFunc) deadletters.TellFunc {
	return func(_ string, done, all int) {
		tell(int64(done), int64(all), format.Plural(done, "dead letter", "dead letters"))
	}
}

// actFormMax bounds a form that says what is to be done.
const actFormMax = 16 << 10

// askToDrop asks whether somebody is sure.
func (c *Console) askToDrop(x *exchange, desk *deadletters.Desk, rec *registry.Record, id string) error {
	here := "/dead-letters/" + joinEscaped([]string{rec.Database, rec.Name})
	ask := &confirmation{Action: here, Back: here, Fields: [][2]string{{"act", string(deadletters.Drop)}, {"id", id}}}
	if id != "" {
		letter, err := desk.Show(x.r.Context(), rec, id)
		if err != nil {
			return err
		}
		ask.Says = []string{fmt.Sprintf("%s %s: %s", rec.Name, letter.Item, letter.Reason)}
		seen := deadletters.SeenOf([]deadletters.DeadLetter{*letter})
		ask.Button, ask.Fields = "Drop it", append(ask.Fields, [2]string{sureField, seen.Digest})
	} else {
		page, err := desk.Page(x.r.Context(), rec, "", deadletters.ListMax)
		if err != nil {
			return err
		}
		n, seen := len(page.Letters), deadletters.SeenOf(page.Letters)
		ask.Says = []string{fmt.Sprintf("%s of %s.", format.Plural(n, "dead letter", "dead letters"), rec.Name)}
		ask.Button = "Drop all " + format.Count(n)
		if page.More > 0 {
			ask.Says[0] = fmt.Sprintf("The oldest %s of the %s dead letters of %s. To drop all: millrace dead-letters drop %s --all.",
				format.Count(n), format.Count(page.Total), rec.Name, spec.Metadata{Database: rec.Database, Name: rec.Name}.Title())
			ask.Button = fmt.Sprintf("Drop the oldest %s; the rest stays", format.Count(n))
		}
		ask.Fields = append(ask.Fields, [2]string{sureField, seen.Digest}, [2]string{"until", seen.Until.Format(time.RFC3339Nano)})
	}
	ask.Says = append(ask.Says, "What it is about stays undone: verify tells it as drift, and repair makes it right. A dead letter that was dropped does not come back.")
	return c.confirm(x, "Drop dead letters?", ask)
}

// seenStill refuses to drop what is not there any more as it was shown.
func seenStill(err error) error {
	if errors.Is(err, deadletters.ErrChanged) {
		return &refusal{http.StatusConflict, "Nothing was dropped: " + err.Error() + "."}
	}
	return err
}
