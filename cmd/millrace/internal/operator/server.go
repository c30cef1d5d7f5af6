package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/attempts"
	"github.com/millrace/millrace/cmd/millrace/internal/await"
	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/pipelines/plan"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"
)

const (
	// looksMax bounds the requests of status that are answered at a time, worksMax those of the rest, which read items.
	looksMax = 4
	worksMax = 2
	// answerTimeout bounds the wait for one owner, and for one log.
	answerTimeout = 2 * time.Second
	// lookTimeout and workTimeout bound what a request may take.
	lookTimeout = 30 * time.Second
	workTimeout = time.Hour
	// bodyTimeout bounds the reading of a body, takeTimeout the taking of an answer.
	bodyTimeout = time.Minute
	takeTimeout = time.Minute
	// bodyMax bounds a body, in bytes: files are sent as texts of JSON.
	bodyMax = 8 << 20
	// applyWait is how long apply waits for what is not there yet, as --wait of the command.
	applyWait = 30 * time.Second
	// bytesMax bounds what a plan or a verification keeps in memory: it shares that of a node with its store and workers.
	bytesMax = 32 << 20
)

// Config says what a Server serves, and to whom.
type Config struct {
	// Inspect is the Millrace that is operated.
	Inspect inspect.Config
	// Keys are those in force.
	Keys *Keys
	// Logger gets a line for what is applied, and for keys that are not in force. Default slog.Default.
	Logger *slog.Logger
}

// Server serves below /operator/ what keys of operators allow. Safe for concurrent use.
type Server struct {
	cfg      Config
	log      *slog.Logger
	refused  attempts.Counter
	looks    chan struct{} // one for each status that is read
	works    chan struct{} // one for each of the rest
	handlers *http.ServeMux
}

// New returns a Server.
func New(cfg *Config) *Server {
	s := &Server{cfg: *cfg, log: cfg.Logger, looks: make(chan struct{}, looksMax), works: make(chan struct{}, worksMax), handlers: http.NewServeMux()}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.cfg.Inspect.AnswerTimeout = answerTimeout
	for _, r := range s.routes() {
		s.handlers.Handle(r.method+" "+r.path, s.served(r))
	}
	return s
}

// route is what is served at one path.
type route struct {
	method, path string
	least        Mode // that a key must have
	slots        chan struct{}
	timeout      time.Duration
	serve        func(x *exchange) (any, error)
}

// routes is the one table of what is served.
func (s *Server) routes() []route {
	return []route{
		{http.MethodGet, pathStatus, ModeStatus, s.looks, lookTimeout, s.status},
		{http.MethodPost, pathVerify, ModeStatus, s.works, workTimeout, s.verify},
		{http.MethodPost, pathPlan, ModeOperator, s.works, workTimeout, s.plan},
		{http.MethodPost, pathApply, ModeOperator, s.works, workTimeout, s.apply},
	}
}

// ServeHTTP serves the routes.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handlers.ServeHTTP(w, r) }

// exchange is a request that a key allows.
type exchange struct {
	r    *http.Request
	key  *Key
	body []byte
}

func (x *exchange) context() context.Context { return x.r.Context() }

// decode reads the body.
func (x *exchange) decode(v any) error {
	dec := json.NewDecoder(bytes.NewReader(x.body))
	dec.DisallowUnknownFields() // an option that is not known would not be heeded
	err := dec.Decode(v)
	if err == nil && dec.More() {
		err = errors.New("there is more than one value")
	}
	if err != nil {
		return &refusal{kindRequest, "the request cannot be read: " + err.Error()}
	}
	return nil
}

// served answers a route.
func (s *Server) served(of route) http.Handler {
	if !slices.Contains(modes, of.least) {
		panic(fmt.Sprintf("operator: route %s asks for mode %q", of.path, of.least))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := s.admit(r)
		if err == nil && !key.Mode.allows(of.least) {
			err = &refusal{kindMode, fmt.Sprintf("key %s is of mode %s, which allows status and verify; %s asks for one of mode %s", key.Name, key.Mode, of.path, of.least)}
		}
		if err != nil {
			answer(w, nil, err)
			return
		}
		select {
		case of.slots <- struct{}{}:
			defer func() { <-of.slots }()
		default:
			answer(w, nil, &refusal{kindBusy, fmt.Sprintf("%d such requests are under way, as many as there may be; try again", cap(of.slots))})
			return
		}
		body, err := read(w, r)
		if err != nil {
			answer(w, nil, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), of.timeout)
		defer cancel()
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(of.timeout + takeTimeout)) // tests have no connection
		v, err := of.serve(&exchange{r.WithContext(ctx), key, body})
		answer(w, v, err)
	})
}

// admit finds the key that a request shows.
func (s *Server) admit(r *http.Request) (*Key, error) {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, &refusal{kindKey, "send the key of an operator, which millrace keys create makes: Authorization: Bearer KEY"}
	}
	key := s.cfg.Keys.find(strings.TrimSpace(secret))
	now := time.Now()
	if key != nil && !key.Expired(now) {
		return key, nil
	}
	refused := &refusal{kindKey, "the key of an operator is not in force; millrace keys list lists those that are"}
	if key != nil {
		refused.message = fmt.Sprintf("key %s has expired at %s; millrace keys rotate %[1]s makes another", key.Name, key.Expires.Format(time.RFC3339))
	}
	if n := s.refused.Count(now); n > 0 {
		s.log.Warn("operator: somebody showed a key that is not in force", slog.String("from", r.RemoteAddr), slog.Int("times", n))
	}
	return nil, refused
}

// read reads the body of a request that is allowed.
func read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(bodyTimeout)) // tests have no connection
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMax))
	// Behind the body the server reads on, to learn whether the client has gone, and takes the deadline for that.
	_ = conn.SetReadDeadline(time.Time{})
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, &refusal{kindRequest, fmt.Sprintf("the request has more than %d bytes", bodyMax)}
	}
	if err != nil {
		return nil, &refusal{kindRequest, "the request cannot be read: " + err.Error()}
	}
	return body, nil
}

// answer sends what was asked for, or the error. What is both is told as that.
func answer(w http.ResponseWriter, v any, err error) {
	code := http.StatusOK
	if err != nil {
		f := failureOf(err)
		code = statuses[f.Kind]
		if done, ok := v.(*applied); ok && done != nil {
			done.Error = f
		} else {
			v = failed{f}
		}
		if code == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="millrace operator"`)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // an error: the client has gone
}

// status tells where pipelines stand, or one.
func (s *Server) status(x *exchange) (any, error) {
	inspector := inspect.New(&s.cfg.Inspect)
	defer inspector.Close()
	query := x.r.URL.Query()
	of := spec.Metadata{Name: query.Get("pipeline"), Database: query.Get("database")}
	if of.Name == "" {
		lookout := inspect.NewLookout(inspector, answerTimeout)
		defer lookout.Wait()
		st, err := inspect.Read(x.context(), inspector, lookout)
		if err != nil {
			return nil, err
		}
		withoutItems(st)
		return st, nil
	}
	rec, err := s.cfg.Inspect.Registry.Get(x.context(), of.Database, of.Name)
	if err != nil {
		return nil, err
	}
	st, err := inspector.Pipelines(x.context())
	if err != nil {
		return nil, err
	}
	st.Pipelines = slices.DeleteFunc(st.Pipelines, func(p status.Pipeline) bool { return p.ID != rec.ID })
	st.Warnings = inspector.Replicas(x.context())
	withoutItems(st)
	return st, nil
}

// verify compares copies with their sources.
func (s *Server) verify(x *exchange) (any, error) {
	var asked VerifyRequest
	if err := x.decode(&asked); err != nil {
		return nil, err
	}
	if asked.Settle > SettleMax {
		return nil, &refusal{kindRequest, fmt.Sprintf("to wait %s for what is in flight is too long; at most %s are allowed", asked.Settle, SettleMax)}
	}
	in := &s.cfg.Inspect
	cfg := verify.Config{Timeout: asked.Settle, ListMax: 1, BytesMax: bytesMax, Bucket: in.Replicas.Leases}
	report, err := verify.New(in.JetStream, in.Registry, in.Client, cfg).Verify(x.context(), asked.Pipelines...)
	if err != nil {
		return nil, err
	}
	onlyCounts(report)
	return report, nil
}

// plan tells what apply would do.
func (s *Server) plan(x *exchange) (any, error) {
	var asked Declaration
	if err := x.decode(&asked); err != nil {
		return nil, err
	}
	declared, err := asked.load()
	if err != nil {
		return nil, err
	}
	in := &s.cfg.Inspect
	cfg := plan.Config{SamplesMax: -1, WritesPerSecond: max(asked.WritesPerSecond, 0), BytesMax: bytesMax}
	p, err := plan.New(in.JetStream, in.Registry, in.Client, cfg).Plan(x.context(), declared, asked.options(x.key.Bounds))
	if err != nil {
		return nil, err
	}
	ownPart(p)
	return p, nil
}

// apply makes pipelines be as declared.
func (s *Server) apply(x *exchange) (any, error) {
	var asked Declaration
	if err := x.decode(&asked); err != nil {
		return nil, err
	}
	declared, err := asked.load()
	if err != nil {
		return nil, err
	}
	opts := asked.options(x.key.Bounds)
	opts.Await = func(ctx context.Context, what string, step func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, applyWait)
		defer cancel()
		return await.Until(ctx, func(string, time.Duration, error) {}, what, step)
	}
	done, err := s.cfg.Inspect.Registry.Apply(x.context(), declared, opts)
	for _, o := range done {
		if o.Action != registry.Unchanged {
			s.log.Info("operator: a declaration was applied", slog.String("key", x.key.Name), slog.String("kind", o.Kind),
				slog.String("database", o.Database), slog.String("name", o.Name), slog.String("action", string(o.Action)))
		}
	}
	return &applied{Applied: append([]registry.Outcome{}, done...)}, err
}
