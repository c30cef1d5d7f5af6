package console

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/millrace/millrace/cmd/millrace/internal/declaration"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/status"
)

// health tells in one line how everything is, as the newest sample knows it.
func (c *Console) health() (healthy bool, said string) {
	c.sampler.mu.Lock()
	last := c.sampler.last
	c.sampler.mu.Unlock()
	switch {
	case last == nil:
		return true, "reading"
	case last.Failed != "":
		return false, "what is shown is old: " + last.Failed
	}
	unwell := 0
	for i := range last.Pipelines {
		if last.Pipelines[i].State.Unwell() {
			unwell++
		}
	}
	switch {
	case unwell > 0:
		return false, format.Plural(unwell, "pipeline needs", "pipelines need") + " an operator"
	case last.Storage != nil && len(last.Storage.Troubles) > 0:
		return false, format.Plural(len(last.Storage.Troubles), "partition is", "partitions are") + " in trouble"
	case last.Storage != nil && last.Storage.Answered < last.Storage.Partitions:
		return false, format.Plural(last.Storage.Partitions-last.Storage.Answered, "partition does", "partitions do") + " not answer"
	case !last.Healthy():
		return false, "not all could be read"
	}
	return true, "all is well"
}

// overviewPage is what stands on the first page.
type overviewPage struct {
	*sample
	Rows []overviewRow
	Hot  *heatPage
}

// overviewRow is a pipeline on the first page.
type overviewRow struct {
	*status.Pipeline
	Plot []point
}

// LagText is the lag in changes, with ~ where it is estimated and ? where it is not known.
func (r overviewRow) LagText() string { return r.Lag.Text() }

// Written is how many copies it has changed, or rows written.
func (r overviewRow) Written() int64 { return r.Counts.Copies + r.Counts.Rows }

func (c *Console) overview(x *exchange) error {
	s, err := c.sampler.newest(x.r.Context())
	if err != nil {
		return err
	}
	if s.Failed != "" && wantsJSON(x.r) {
		return &refusal{http.StatusServiceUnavailable, s.Failed}
	}
	page := overviewPage{sample: s}
	page.Hot, _ = heatOf(s, hotOverview, hotOverview)
	for i := range s.Pipelines {
		p := &s.Pipelines[i]
		page.Rows = append(page.Rows, overviewRow{p, c.sampler.plots(p.ID)})
	}
	return c.show(x, "overview", "Overview", page, s.Status)
}

// pipelinePage is all of one pipeline.
type pipelinePage struct {
	*registry.Record
	Status      *status.Pipeline // nil: not sampled yet
	Declaration string
	Plot        []point
	DeadLetters *letterList // nil: there are none
	// Unread says why dead letters cannot be shown.
	Unread string
}

// LagText is the lag in changes.
func (p pipelinePage) LagText() string { return p.Status.Lag.Text() }

func (c *Console) pipeline(x *exchange) error {
	ctx := x.r.Context()
	s, err := c.sampler.newest(ctx)
	if err != nil {
		return err
	}
	rec, err := c.cfg.Inspect.Registry.Get(ctx, x.r.PathValue("database"), x.r.PathValue("name"))
	if err != nil {
		return err
	}
	doc, err := declaration.JSON(rec.Document())
	if err != nil {
		return err
	}
	var text strings.Builder
	if err := declaration.WriteYAML(&text, doc); err != nil {
		return err
	}
	page := pipelinePage{Record: &rec, Status: s.pipeline(rec.ID), Declaration: text.String(), Plot: c.sampler.plots(rec.ID)}
	if page.Status != nil && page.Status.Counts.DeadLetters > 0 {
		c.addLetters(ctx, &page)
	}
	behind := map[string]any{"declaration": doc, "id": rec.ID, "generation": rec.Generation, "created": rec.Created, "changed": rec.Changed, "paused": rec.Paused}
	if page.Status != nil {
		behind["status"] = page.Status
	}
	return c.show(x, "pipeline", "Pipeline "+rec.Name, page, behind)
}

// addLetters adds the dead letters of the pipeline to its page, or why they are not there.
func (c *Console) addLetters(ctx context.Context, page *pipelinePage) {
	ctx, cancel := context.WithTimeout(ctx, lettersPatience)
	defer cancel()
	lists, err := c.letters.newest(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		page.Unread = "they are still being read"
	case err != nil:
		page.Unread = err.Error()
	}
	for i := range lists {
		if list := lists[i]; list.Database == page.Database && list.Name == page.Name {
			list.show(lettersShownEach)
			page.DeadLetters, page.Unread = &list, list.Unread
		}
	}
}
