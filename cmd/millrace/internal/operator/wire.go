package operator

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
)

// The paths of the routes. The version is that of what is sent: members that are not known are refused.
const (
	pathStatus = "/operator/v1/status"
	pathVerify = "/operator/v1/verify"
	pathPlan   = "/operator/v1/plan"
	pathApply  = "/operator/v1/apply"
)

// VerifyRequest says what is to be verified.
type VerifyRequest struct {
	// Pipelines are all if there are none.
	Pipelines []spec.Metadata `json:"pipelines,omitempty"`
	// Settle is how long to wait for what is in flight, in nanoseconds; below 0 is not at all. At most SettleMax.
	Settle time.Duration `json:"settle"`
}

// SettleMax bounds VerifyRequest.Settle.
const SettleMax = 10 * time.Minute

// Declaration is what is to be planned or applied: the files, and the options that registry.ApplyOptions explains.
type Declaration struct {
	Texts          []Text `json:"texts"`
	Backfill       bool   `json:"backfill,omitempty"`
	FromNow        bool   `json:"fromNow,omitempty"`
	DiscardExpired bool   `json:"discardExpired,omitempty"`
	// Plan is of Apply alone; WritesPerSecond of Plan alone.
	Plan            string `json:"plan,omitempty"`
	WritesPerSecond int    `json:"writesPerSecond,omitempty"`
}

// Text is a file.
type Text struct {
	Name string `json:"name"` // only used in findings
	Data string `json:"data"`
}

// Declare returns a declaration of files, with those of the options that are sent.
func Declare(texts []spec.Text, opts registry.ApplyOptions) *Declaration {
	d := &Declaration{Backfill: opts.Backfill, FromNow: opts.FromNow, DiscardExpired: opts.DiscardExpired, Plan: opts.Plan}
	for _, t := range texts {
		d.Texts = append(d.Texts, Text{t.Name, string(t.Data)})
	}
	return d
}

// options are those of a declaration, within bounds.
func (d *Declaration) options(bounds *registry.Bounds) registry.ApplyOptions {
	return registry.ApplyOptions{Backfill: d.Backfill, FromNow: d.FromNow, DiscardExpired: d.DiscardExpired, Plan: d.Plan, Bounds: bounds}
}

// load decodes the files.
func (d *Declaration) load() (*spec.Resources, error) {
	texts := make([]spec.Text, len(d.Texts))
	for i := range d.Texts {
		texts[i] = spec.Text{Name: d.Texts[i].Name, Data: []byte(d.Texts[i].Data)}
	}
	return spec.LoadTexts(texts)
}

// applied is the answer of apply. Declarations are carried out one after the other, and an error does not undo
// those before it, so both are told.
type applied struct {
	Applied []registry.Outcome `json:"applied"`
	Error   *failure           `json:"error,omitempty"`
}

// failed is the answer to a request that was refused or failed.
type failed struct {
	Error *failure `json:"error"`
}

// failure is an error as it is sent.
type failure struct {
	Kind     kind           `json:"kind"`
	Message  string         `json:"message"`
	Findings []spec.Finding `json:"findings,omitempty"`
	// Plan and Now are of kindPlan, the Pipeline that was asked for and is not there and Nearest of kindNoPipeline.
	Plan     string         `json:"plan,omitempty"`
	Now      string         `json:"now,omitempty"`
	Pipeline *spec.Metadata `json:"pipeline,omitempty"`
	Nearest  string         `json:"nearest,omitempty"`
}

// kind is what an error is, so that a command ends as it does without an endpoint.
type kind string

const (
	kindKey        kind = "key"          // no key, or one that is not in force
	kindMode       kind = "mode"         // the key does not allow it
	kindRequest    kind = "request"      // it cannot be understood
	kindWrong      kind = "declarations" // spec.Findings
	kindRefused    kind = "refused"      // *registry.RefusedError
	kindOutside    kind = "outside"      // *registry.OutsideError
	kindPlan       kind = "plan"         // *registry.PlanError
	kindNoPipeline kind = "noPipeline"   // *registry.NoPipelineError
	kindBusy       kind = "busy"
	kindAway       kind = "unavailable"
	kindFailed     kind = "failed"
)

// statuses are the statuses of kinds.
var statuses = map[kind]int{
	kindKey: http.StatusUnauthorized, kindMode: http.StatusForbidden, kindRequest: http.StatusBadRequest, kindWrong: http.StatusUnprocessableEntity,
	kindRefused: http.StatusConflict, kindOutside: http.StatusForbidden, kindPlan: http.StatusConflict, kindNoPipeline: http.StatusNotFound,
	kindBusy: http.StatusTooManyRequests, kindAway: http.StatusServiceUnavailable, kindFailed: http.StatusInternalServerError,
}

// refusal is an error of a request itself.
type refusal struct {
	kind    kind
	message string
}

func (e *refusal) Error() string { return e.message }

// failureOf is the table from errors to what is sent.
func failureOf(err error) *failure {
	f := &failure{Kind: kindFailed, Message: err.Error()}
	if e, ok := errors.AsType[*refusal](err); ok {
		f.Kind = e.kind
	} else if e, ok := errors.AsType[*registry.OutsideError](err); ok {
		f.Kind, f.Findings = kindOutside, e.Findings
	} else if e, ok := errors.AsType[*registry.RefusedError](err); ok {
		f.Kind, f.Findings = kindRefused, e.Findings
	} else if e, ok := errors.AsType[spec.Findings](err); ok {
		f.Kind, f.Findings = kindWrong, e
	} else if e, ok := errors.AsType[*registry.PlanError](err); ok {
		f.Kind, f.Plan, f.Now = kindPlan, e.Plan, e.Now
	} else if e, ok := errors.AsType[*registry.NoPipelineError](err); ok {
		f.Kind, f.Pipeline, f.Nearest = kindNoPipeline, &spec.Metadata{Name: e.Name, Database: e.Database}, e.Nearest
	} else if errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		f.Kind = kindAway
	}
	return f
}

// err is the error that was sent.
func (f *failure) err(endpoint string) error {
	switch f.Kind {
	case kindWrong:
		return spec.Findings(f.Findings)
	case kindRefused:
		return &registry.RefusedError{Findings: f.Findings}
	case kindOutside:
		return &registry.OutsideError{Findings: f.Findings}
	case kindPlan:
		return &registry.PlanError{Plan: f.Plan, Now: f.Now}
	case kindNoPipeline:
		if f.Pipeline != nil {
			return &registry.NoPipelineError{Database: f.Pipeline.Database, Name: f.Pipeline.Name, Nearest: f.Nearest}
		}
	case kindKey, kindMode:
		return &KeyError{Endpoint: endpoint, Message: f.Message}
	case kindRequest, kindBusy, kindAway, kindFailed:
	}
	return &AnswerError{Endpoint: endpoint, Message: f.Message}
}
