package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/connections"
	"github.com/millrace/millrace/store/script"
	"github.com/millrace/millrace/store/users"
)

// Server answers the protocol. It is an http.Handler; Listen puts it on the network.
type Server struct {
	cfg       Config
	client    *store.Client
	keys      *KeyRing
	directory *directory
	slots     *slots
	bodies    *bodyRoom
	users     *users.Book
	permits   *permits
	table     map[noun]map[string]*operation
	newKey    func() string  // returns the key of a write, see commit
	scripts   *script.Engine // nil: they are not run

	resourceQueries chan struct{} // one for each query over databases or containers under way
	pages           chan struct{} // one for each page of a feed that is being made
}

// New returns a server for the containers that client finds. Requests are signed
// with the keys of ring.
func New(client *store.Client, ring *KeyRing, cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	// Whoever configures one key for Prometheus may think that those of the file go on.
	if !ring.writes() {
		cfg.Logger.Warn("no key of the gateway writes, so applications can read only: set gateway.keys.primary too; the configured keys replace the key file as a whole")
	}
	book := client.Catalog().Users()
	s := &Server{
		users: book, permits: newPermits(book),
		cfg: cfg, client: client, keys: ring, directory: newDirectory(client), slots: newSlots(cfg.RequestsMax, cfg.AnswersMax),
		bodies: &bodyRoom{max: cfg.BodiesMax}, newKey: rand.Text, scripts: cfg.Engine, resourceQueries: make(chan struct{}, resourceQueriesMax),
		pages: make(chan struct{}, pagesMost(cfg.AnswersMax)),
	}
	s.table = s.newTable()
	return s, nil
}

// Run keeps the server's view of the catalog until ctx ends. Without it each request
// asks the catalog.
func (s *Server) Run(ctx context.Context) { s.directory.run(ctx, s.cfg.Logger) }

// newTable is the table from noun and method to operation.
func (s *Server) newTable() map[noun]map[string]*operation {
	const get, put, patch, remove = http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete
	return map[noun]map[string]*operation{
		nounAccount: {get: {name: "read account", reach: reachNothing, serve: s.readAccount}},
		nounDatabases: {
			get:        {name: "list databases", serve: s.listDatabases},
			postQuery:  {name: "query databases", bodyMax: otherBytesMax, serve: s.queryDatabases},
			postCreate: {name: "create database", writes: true, bodyMax: otherBytesMax, serve: s.createDatabase},
		},
		nounDatabase: {
			get:    {name: "read database", serve: s.readDatabase},
			remove: {name: "delete database", writes: true, serve: s.deleteDatabase},
		},
		nounContainers: {
			get:        {name: "list containers", serve: s.listContainers},
			postQuery:  {name: "query containers", bodyMax: otherBytesMax, serve: s.queryContainers},
			postCreate: {name: "create container", writes: true, bodyMax: otherBytesMax, serve: s.createContainer},
		},
		nounContainer: {
			get:    {name: "read container", reach: reachContainer, serve: s.readContainer},
			put:    {name: "replace container", reach: reachContainer, writes: true, bodyMax: otherBytesMax, serve: s.replaceContainer},
			remove: {name: "delete container", reach: reachContainer, writes: true, serve: s.deleteContainer},
		},
		nounRanges: {get: {name: "read ranges", reach: reachContainer, serve: s.readRanges}},
		nounRange:  {get: {name: "read range", reach: reachContainer, serve: s.readRange}},
		nounItems: {
			get:        {name: "read feed", reach: reachItems, serve: s.readItems},
			getChanges: {name: "read change feed", reach: reachItems, serve: s.readChanges},
			postCreate: {name: "create item", reach: reachItems, writes: true, bodyMax: store.ItemBytesMax, serve: s.createItem},
			postQuery:  {name: "query", reach: reachItems, bodyMax: otherBytesMax, serve: s.queryItems},
			postPlan:   {name: "query plan", reach: reachItems, bodyMax: otherBytesMax, serve: s.planQuery},
			postBatch:  {name: "batch", reach: reachItems, writes: true, bodyMax: bodyBytesMax, serve: s.batch},
		},
		nounItem: {
			get:    {name: "read item", reach: reachItem, serve: s.readItem},
			put:    {name: "replace item", reach: reachItem, writes: true, bodyMax: store.ItemBytesMax, serve: s.replaceItem},
			patch:  {name: "patch item", reach: reachItem, writes: true, bodyMax: store.ItemBytesMax, serve: s.patchItem},
			remove: {name: "delete item", reach: reachItem, writes: true, serve: s.deleteItem},
		},
		nounOffers: {
			get:       {name: "list offers", serve: s.listOffers},
			postQuery: {name: "query offers", bodyMax: otherBytesMax, serve: s.queryOffers},
		},
		nounOffer: {
			get: {name: "read offer", serve: s.readOffer},
			put: {name: "replace offer", writes: true, bodyMax: otherBytesMax, serve: s.replaceOffer},
		},
		nounUsers: {
			get:        {name: "list users", serve: s.listUsers},
			postQuery:  {name: "query users", bodyMax: otherBytesMax, serve: s.queryUsers},
			postCreate: {name: "create user", writes: true, bodyMax: otherBytesMax, serve: s.createUser},
		},
		nounUser: {
			get:    {name: "read user", serve: s.readUser},
			put:    {name: "replace user", writes: true, bodyMax: otherBytesMax, serve: s.replaceUser},
			remove: {name: "delete user", writes: true, serve: s.deleteUser},
		},
		nounPermissions: {
			get:        {name: "list permissions", secret: true, serve: s.listPermissions},
			postQuery:  {name: "query permissions", secret: true, bodyMax: otherBytesMax, serve: s.queryPermissions},
			postCreate: {name: "create permission", writes: true, bodyMax: otherBytesMax, serve: s.createPermission},
		},
		nounPermission: {
			get:    {name: "read permission", secret: true, serve: s.readPermission},
			put:    {name: "replace permission", writes: true, bodyMax: otherBytesMax, serve: s.replacePermission},
			remove: {name: "delete permission", writes: true, serve: s.deletePermission},
		},
		nounScripts: {
			get:        {name: "list scripts", serve: s.listScripts},
			postQuery:  {name: "query scripts", bodyMax: otherBytesMax, serve: s.queryScripts},
			postCreate: {name: "create script", writes: true, bodyMax: otherBytesMax, serve: s.createScript},
		},
		nounScript: {
			get:        {name: "read script", serve: s.readScript},
			put:        {name: "replace script", writes: true, bodyMax: otherBytesMax, serve: s.replaceScript},
			remove:     {name: "delete script", writes: true, serve: s.deleteScript},
			postCreate: {name: "execute stored procedure", reach: reachItems, writes: true, bodyMax: bodyBytesMax, serve: s.executeProcedure},
		},
		nounConflicts: {
			get:       {name: "list conflicts", serve: s.listConflicts},
			postQuery: {name: "query conflicts", bodyMax: otherBytesMax, serve: s.queryConflicts},
		},
		nounConflict: {
			get:    {name: "read conflict", serve: s.noConflict},
			remove: {name: "delete conflict", writes: true, serve: s.noConflict},
		},
		nounKeyDeletion: {postCreate: {name: "delete partition key", reach: reachItems, writes: true, serve: s.deleteKey}},
		nounUnserved:    {},
	}
}

func (s *Server) operations(n noun) (map[string]*operation, bool) {
	ops, ok := s.table[n]
	return ops, ok
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	x := newExchange(w, r)
	span := x.startSpan()
	var err error
	defer func() { x.endSpan(span, err) }()
	defer s.recoverPanic(x) // before the span ends, which has the status that it answers
	err = s.serve(x)
	if err != nil {
		x.refuse(translate(err))
	}
	record(r.Context(), x, time.Since(began))
	if x.status >= http.StatusInternalServerError {
		s.cfg.Logger.Warn("a request failed", slog.String("operation", x.name()), slog.Int("status", x.status),
			slog.String("activity", x.activity), slog.Any("error", err))
	}
}

// recoverPanic ends a request that panicked. A panic is a fault of Millrace: it is logged for the
// operator, and the client gets an answer unless one was begun.
func (s *Server) recoverPanic(x *exchange) {
	reason := recover()
	if reason == nil {
		return
	}
	s.cfg.Logger.Error("a request broke; this is a fault of Millrace, please report it", slog.String("operation", x.name()), slog.String("activity", x.activity),
		slog.Any("panic", reason), slog.String("stack", string(debug.Stack())))
	if x.status != 0 {
		panic(http.ErrAbortHandler) // what was sent is not the whole answer
	}
	x.fail(refuse(http.StatusInternalServerError, "the request broke; the log of the server says where, by its activity id %s", x.activity))
}

// serve takes the steps of a request up to its operation; see the package's documentation for
// their order.
func (s *Server) serve(x *exchange) error {
	t, err := parseTarget(x.r.URL)
	if err != nil {
		return err
	}
	x.target = t
	// Before the route: an unknown client gets no answer that tells what exists.
	if x.right, err = s.authorize(x); err != nil {
		return err
	}
	// Not earlier: the connections of strangers make room for others.
	if !connections.Hold(x.ctx) {
		return errNoConnection
	}
	if err := x.right.narrow(&x.target); err != nil {
		return err
	}
	op, err := s.route(&x.target, x.r)
	if err != nil {
		return err
	}
	x.op = op
	x.nameSpan()
	if err := x.right.admit(op); err != nil {
		return err
	}
	if err := s.strictlyNamed(&x.target); err != nil {
		return err
	}
	if (t.noun == nounScripts || t.noun == nounScript) && s.scripts == nil {
		return errNoScripts
	}
	x.bodies = s.bodies
	defer x.releaseBody()
	if err := x.readBody(op.bodyMax); err != nil {
		return err
	}
	// After the body: a slow sender holds memory, which is bounded by itself, and no slot.
	if x.slot = s.slots.take(x.ctx, x.cutOff); x.slot == nil {
		return &failure{
			status: http.StatusTooManyRequests, substatus: subRequestRateLarge, retryAfter: retryAfterDefault,
			message: "as many requests are carried out as gateway.requestsMax allows (" + strconv.Itoa(s.cfg.RequestsMax) + "); try again",
		}
	}
	defer x.releaseSlot()
	ctx, cancel := context.WithTimeout(x.ctx, s.cfg.RequestTimeout)
	defer cancel()
	x.ctx = ctx
	if err := x.textBody(op.bodyMax); err != nil {
		return err
	}
	if err := s.resolve(x); err != nil {
		return err
	}
	if op.writes && x.target.database == store.SystemDatabase {
		return readOnlySystem(op.name)
	}
	return op.serve(x)
}

// explainAbsence replaces the error of a container that did not answer by its cause, if the
// catalog knows it: the container was deleted, or was deleted and made again.
func (s *Server) explainAbsence(x *exchange, c *collection, err error) error {
	if !errors.Is(err, store.ErrUnavailable) && !isType[*store.NoOwnerError](err) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), time.Second)
	defer cancel()
	info, lookup := s.client.Catalog().Get(ctx, c.info.Database, c.info.Name)
	switch {
	case errors.Is(lookup, store.ErrNotFound):
		return lookup
	case lookup == nil && !x.target.means(info.RID()):
		// A link leads to no other container, so there is nothing to read again.
		return &store.NoContainerError{Database: c.info.Database, Name: c.info.Name}
	case lookup == nil && info.ID != c.info.ID:
		return refuseAs(http.StatusGone, 1000, "container %s was made anew; read it again", c.info.Name)
	}
	return err
}

// parseHeaderInt reads a number from a header. It is zero for -1 and for no header, which mean no
// limit.
func parseHeaderInt(text, name string) (int, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < -1 || n == 0 {
		return 0, refuse(http.StatusBadRequest, "header %s is %q; -1 or a number from 1 is expected", strings.ToLower(name), text)
	}
	return max(n, 0), nil
}
