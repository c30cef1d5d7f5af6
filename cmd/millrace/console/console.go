package console

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/attempts"
	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
)

//go:embed templates static
var files embed.FS

// Role is what somebody who looks may do.
type Role uint8

// The roles.
const (
	RoleNone  Role = iota // nothing
	RoleRead              // look
	RoleWrite             // look, and change
)

// Config says what a Console shows, and to whom.
type Config struct {
	// Inspect is the Millrace that is shown.
	Inspect inspect.Config
	// KeyRole returns what a key allows that somebody signs in with. Nil: only tickets let
	// somebody in.
	KeyRole func(key string) Role
	// Loopback says that the listener is on the loopback, and refuses other hosts' names.
	Loopback bool
	// Logger gets a line for each sign-in and each change. Default slog.Default.
	Logger *slog.Logger
}

// Console serves the pages. Run keeps them up to date.
type Console struct {
	cfg      Config
	log      *slog.Logger
	client   *store.Client
	sessions *sessions
	sampler  *sampler
	letters  *letterBoard
	work     *works
	failures attempts.Counter
	pages    map[string]*template.Template
	handler  http.Handler
	ended    chan struct{} // closed when Run ends

	queries   chan struct{} // one for each query that is answered on a page
	downloads chan struct{} // one for each that is answered with a file
}

// New returns a Console. Nothing is read before Run.
func New(cfg *Config) *Console {
	c := &Console{cfg: *cfg, log: cfg.Logger, client: cfg.Inspect.Client, sessions: newSessions(cfg.KeyRole), ended: make(chan struct{})}
	if c.log == nil {
		c.log = slog.Default()
	}
	// A page waits for whoever is silent, so not for long.
	c.cfg.Inspect.AnswerTimeout = cmp.Or(c.cfg.Inspect.AnswerTimeout, answerTimeout)
	c.sampler = newSampler(inspect.New(&c.cfg.Inspect))
	c.letters, c.work = newLetterBoard(c.readLetters), newWorks(c.log)
	c.queries, c.downloads = make(chan struct{}, queriesMax), make(chan struct{}, downloadsMax)
	c.pages = parsePages()
	c.handler = c.routes()
	return c
}

// Run reads where everything stands, again and again, and does the work that is begun, until ctx
// ends. Then those who listen for what is new are let go. It is called once.
func (c *Console) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { c.work.run(ctx) })
	group.Go(func() { c.letters.run(ctx) })
	c.sampler.run(store.Background(ctx))
	close(c.ended)
	group.Wait()
}

// Ticket returns a path that signs in whoever opens it first, within ticketTimeout.
func (c *Console) Ticket(role Role) string {
	return "/sign-in?ticket=" + url.QueryEscape(c.sessions.ticket(role))
}

// ServeHTTP serves the console's pages, below the root.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

func (c *Console) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /static/{file}", c.serveStatic)
	mux.HandleFunc("GET /sign-in", c.showSignIn)
	mux.HandleFunc("POST /sign-in", c.signIn)
	mux.HandleFunc("POST /sign-out", c.signOut)
	look := func(pattern string, page pageFunc) { mux.Handle("GET "+pattern, c.page(RoleRead, page)) }
	act := func(pattern string, page pageFunc) { mux.Handle("POST "+pattern, c.page(RoleWrite, page)) }
	mux.HandleFunc("GET /events", c.events)
	look("/{$}", c.overview)
	look("/pipelines/{database}/{name}", c.pipeline)
	act("/pipelines/{database}/{name}/{act}", c.actOnPipeline)
	look("/map", c.graph)
	look("/containers", c.containers)
	look("/containers/{database}/{name}", c.container)
	look("/containers/{database}/{name}/item", c.item)
	act("/containers/{database}/{name}/item", c.writeItem)
	look("/containers/{database}/{name}/item/history", c.itemHistory)
	look("/query", c.query)
	look("/heat", c.heat)
	look("/nodes", c.nodes)
	look("/plan", c.showPlan)
	act("/plan", c.startPlan)
	act("/plan/apply", c.startApply)
	look("/work", c.works)
	look("/work/{id}", c.showWork)
	act("/work/{id}/stop", c.stopWork)
	look("/dead-letters", c.deadLetters)
	look("/dead-letters/{database}/{name}", c.deadLettersOf)
	act("/dead-letters/{database}/{name}", c.actOnDeadLetters)
	look("/dead-letters/{database}/{name}/{id}", c.deadLetter)
	look("/", func(*exchange) error { return errNoPage })
	return http.NewCrossOriginProtection().Handler(c.guarded(mux))
}

// guarded refuses hosts that are none of the listener's and sets the headers of all answers.
func (c *Console) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.cfg.Loopback && !IsLoopback(r.Host) {
			http.Error(w, "the console is served to this machine alone; open it as localhost or 127.0.0.1", http.StatusMisdirectedRequest)
			return
		}
		if r.Method == http.MethodPost {
			bound(w, signInTimeout)
		}
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// bound bounds the reading of a form: a body that trickles in must not hold the connection for ever.
func bound(w http.ResponseWriter, timeout time.Duration) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout)) // tests have no connection
}

// IsLoopback tells whether the Host of a request names the machine to itself. A web page that has
// its own name lead to 127.0.0.1, to read what a browser of this machine may see, shows that name.
func IsLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "localhost" {
		return true
	}
	if n := len(host); n > 2 && host[0] == '[' && host[n-1] == ']' {
		host = host[1 : n-1]
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// serveStatic serves the console's own files, which tell nothing of what it shows.
func (c *Console) serveStatic(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeFileFS(w, r, files, "static/"+r.PathValue("file"))
}

// exchange is a request of somebody who may make it, and its answer.
type exchange struct {
	w    http.ResponseWriter
	r    *http.Request
	role Role
}

// parseForm reads the form of a request, up to so many bytes.
func (x *exchange) parseForm(most int64) error {
	x.r.Body = http.MaxBytesReader(x.w, x.r.Body, most)
	if err := x.r.ParseForm(); err != nil {
		return &refusal{http.StatusBadRequest, "The form cannot be read: " + err.Error()}
	}
	return nil
}

// pageFunc answers a request, or returns an error to be shown.
type pageFunc func(x *exchange) error

// refusal is an error with the status that it is answered with.
type refusal struct {
	status  int
	message string
}

func (e *refusal) Error() string { return e.message }

var errNoPage = &refusal{http.StatusNotFound, "There is no such page."}

const (
	// pageTimeout bounds what a page asks stores for.
	pageTimeout = 30 * time.Second
	// answerTimeout bounds the wait for one owner that is asked how its partition is, and for one log.
	answerTimeout = 2 * time.Second
	// bodyTimeout bounds the reading of a form of somebody who is signed in, and the answer to it. It is
	// longer than a page may take, because behind the body the server reads on, to learn whether the
	// browser has gone, and would take the deadline for that.
	bodyTimeout = 2 * pageTimeout
	// signInTimeout bounds the reading of what anybody may send, and the answer to it.
	signInTimeout = 10 * time.Second
)

// page serves f to those who are signed in with a role, or sends them to sign in.
func (c *Console) page(least Role, f pageFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		role := c.sessions.roleOf(r)
		if role == RoleNone {
			c.askToSignIn(w, r)
			return
		}
		if r.Method == http.MethodPost {
			bound(w, bodyTimeout)
		}
		timeout := pageTimeout
		if savesRows(r) {
			timeout = downloadTimeout
		}
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		x := &exchange{w: w, r: r.WithContext(ctx), role: role}
		err := error(nil)
		if role < least {
			err = &refusal{http.StatusForbidden, "You are signed in with a key that reads. Sign in with one that writes to change something."}
		} else {
			err = f(x)
		}
		if err != nil {
			c.showError(x, err)
		}
	})
}

// askToSignIn answers who is not signed in: a browser is led to the page for it, and comes back.
func (c *Console) askToSignIn(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || wantsJSON(r) || isPart(r) {
		http.Error(w, "sign in first, at /sign-in", http.StatusUnauthorized)
		return
	}
	http.Redirect(w, r, "/sign-in?to="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
}

// statusOf is the status that an error is answered with.
func statusOf(err error) int {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused.status
	}
	if refused, ok := errors.AsType[*store.Error](err); ok && refused.Status >= 400 && refused.Status < 600 {
		return int(refused.Status)
	}
	if _, changed := errors.AsType[*registry.PlanError](err); changed {
		return http.StatusConflict
	}
	switch {
	case errors.Is(err, store.ErrBadRequest): // such as a query that is wrong, which no store has refused
		return http.StatusBadRequest
	case errors.Is(err, store.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
