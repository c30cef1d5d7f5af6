package gateway

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/rid"
	"github.com/millrace/millrace/store/script"
)

// scriptLists are the names of the lists of scripts in answers.
var scriptLists = map[store.ScriptKind]string{
	store.ScriptProcedure: "StoredProcedures", store.ScriptTrigger: "Triggers", store.ScriptFunction: "UserDefinedFunctions",
}

// scriptNames are what messages call a script.
var scriptNames = map[store.ScriptKind]string{
	store.ScriptProcedure: "stored procedure", store.ScriptTrigger: "trigger", store.ScriptFunction: "function",
}

// errNoScripts refuses scripts where none are run.
var errNoScripts = refuse(http.StatusNotImplemented, "stored procedures, triggers and functions are not served here: gateway.scripts.enabled is false")

// scriptKind is the kind of the scripts that a request names.
func (t *target) scriptKind() store.ScriptKind { return store.ScriptKind(t.kind) }

// scriptJSON is the body of a script, as clients send it and as answers have it.
type scriptJSON struct {
	ID        string `json:"id"`
	Body      string `json:"body"`
	When      string `json:"triggerType,omitempty"`
	Operation string `json:"triggerOperation,omitempty"`
	RID       string `json:"_rid,omitempty"`
	Self      string `json:"_self,omitempty"`
	ETag      string `json:"_etag,omitempty"`
	Modified  int64  `json:"_ts,omitempty"`
}

// The words of triggers, and the numbers that some clients send for them.
var (
	triggerTimes      = []string{"Pre", "Post"}
	triggerOperations = []string{"All", "Create", "Update", "Delete", "Replace", "Upsert"}
)

// word reads one of some words, which is shown again in the case in which it was sent, or its number.
func word(raw json.RawMessage, words []string) (string, bool) {
	var number int
	if json.Unmarshal(raw, &number) == nil && number >= 0 && number < len(words) {
		return words[number], true
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return "", false
	}
	return text, slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, text) })
}

// askedScript reads the body of a request that writes a script.
func askedScript(x *exchange) (store.Script, error) {
	var asked struct {
		ID, Body  *string
		When      json.RawMessage `json:"triggerType"`
		Operation json.RawMessage `json:"triggerOperation"`
	}
	if err := x.decode(&asked); err != nil {
		return store.Script{}, err
	}
	made := store.Script{Kind: x.target.scriptKind(), Modified: time.Now().Unix(), Version: rand.Text()[:16]}
	name := scriptNames[made.Kind]
	switch {
	case asked.ID == nil || asked.Body == nil:
		return made, refuse(http.StatusBadRequest, "a %s has an id and a body, both texts", name)
	case len(*asked.Body) > store.ScriptBytesMax:
		return made, refuse(http.StatusRequestEntityTooLarge, "the body of the %s has %d bytes; at most %d are allowed", name, len(*asked.Body), store.ScriptBytesMax)
	}
	made.ID, made.Body = *asked.ID, *asked.Body
	if err := document.CheckPlainID(made.ID); err != nil {
		return made, refuse(http.StatusBadRequest, "the %s: %v", name, err)
	}
	if made.Kind != store.ScriptTrigger {
		return made, nil
	}
	var ok bool
	if made.When, ok = word(asked.When, triggerTimes); !ok {
		return made, refuse(http.StatusBadRequest, "triggerType is %s; Pre or Post is expected", clip(string(asked.When)))
	}
	if made.Operation, ok = word(asked.Operation, triggerOperations); !ok {
		return made, refuse(http.StatusBadRequest, "triggerOperation is %s; one of %s is expected", clip(string(asked.Operation)), strings.Join(triggerOperations, ", "))
	}
	return made, nil
}

// scriptBody returns the body of a script.
func scriptBody(of rid.Container, made *store.Script) *scriptJSON {
	own := rid.Script(of, string(made.Kind), made.ID)
	return &scriptJSON{
		ID: made.ID, Body: made.Body, When: made.When, Operation: made.Operation, RID: own.String(), Self: own.ScriptSelf(string(made.Kind)),
		ETag: `"` + made.Version + `"`, Modified: made.Modified,
	}
}

// findScript returns where a script of a kind with an id is; -1 if there is none.
func findScript(all []store.Script, kind store.ScriptKind, id string) int {
	return slices.IndexFunc(all, func(s store.Script) bool { return s.Kind == kind && s.ID == id })
}

// namedScript returns where the script is that a request names; -1 if there is none.
func (t *target) namedScript(all []store.Script) int {
	if t.itemRID == (rid.Inside{}) {
		return findScript(all, t.scriptKind(), t.id)
	}
	return slices.IndexFunc(all, func(s store.Script) bool {
		return s.Kind == t.scriptKind() && rid.Script(t.containerRID, t.kind, s.ID) == t.itemRID
	})
}

// scriptOf returns the script that a request names, and its container as the catalog holds it now.
func (s *Server) scriptOf(x *exchange) (*store.Script, *store.ContainerInfo, error) {
	info, err := s.containerInfo(x)
	if err != nil {
		return nil, nil, err
	}
	i := x.target.namedScript(info.Scripts)
	if i < 0 {
		return nil, nil, noScript(&x.target)
	}
	return &info.Scripts[i], &info, nil
}

func noScript(t *target) *failure {
	return refuse(http.StatusNotFound, "there is no %s %q", scriptNames[t.scriptKind()], clip(t.id))
}

func (s *Server) createScript(x *exchange) error {
	made, err := askedScript(x)
	if err != nil {
		return err
	}
	upsert := isTrue(x.header(headerUpsert))
	return s.writeScript(x, &made, func(all []store.Script) (int, int, error) {
		i := findScript(all, made.Kind, made.ID)
		switch {
		case i < 0:
			return i, http.StatusCreated, nil
		case !upsert:
			return i, 0, refuse(http.StatusConflict, "there is a %s %q already", scriptNames[made.Kind], clip(made.ID))
		}
		return i, http.StatusOK, nil
	})
}

func (s *Server) replaceScript(x *exchange) error {
	made, err := askedScript(x)
	if err != nil {
		return err
	}
	return s.writeScript(x, &made, func(all []store.Script) (int, int, error) {
		i, err := s.seenScript(x, all)
		if err == nil && all[i].ID != made.ID {
			err = refuse(http.StatusBadRequest, "the %s is %q, the body has the id %q; an id cannot be changed", scriptNames[made.Kind], clip(all[i].ID), clip(made.ID))
		}
		return i, http.StatusOK, err
	})
}

// seenScript returns where the script of a request is, if its version is the one that the request expects.
func (s *Server) seenScript(x *exchange, all []store.Script) (int, error) {
	i := x.target.namedScript(all)
	if i < 0 {
		return i, noScript(&x.target)
	}
	if match := x.header("If-Match"); match != "" && match != "*" && parseMatchingText(match) != all[i].Version {
		return i, refuse(http.StatusPreconditionFailed, "the %s %q has changed; read it again", scriptNames[all[i].Kind], clip(all[i].ID))
	}
	return i, nil
}

// writeScript stores a script; place tells where among all, -1 for a new one, and the status of the answer.
func (s *Server) writeScript(x *exchange, made *store.Script, place func([]store.Script) (int, int, error)) error {
	info, err := s.containerInfo(x)
	if err != nil {
		return err
	}
	var status int
	info, err = s.client.Catalog().ChangeScripts(x.ctx, &info, func(all []store.Script) ([]store.Script, error) {
		var i int
		if i, status, err = place(all); err != nil {
			return nil, err
		}
		if i < 0 {
			return append(all, *made), nil
		}
		all[i] = *made
		return all, nil
	})
	if err != nil {
		return begun(err)
	}
	x.etag(made.Version)
	return x.answerJSON(status, chargeDeclare, scriptBody(info.RID(), made))
}

func (s *Server) deleteScript(x *exchange) error {
	info, err := s.containerInfo(x)
	if err != nil {
		return err
	}
	_, err = s.client.Catalog().ChangeScripts(x.ctx, &info, func(all []store.Script) ([]store.Script, error) {
		i, err := s.seenScript(x, all)
		if err != nil {
			return nil, err
		}
		return slices.Delete(all, i, i+1), nil
	})
	if err != nil {
		return begun(err)
	}
	x.answer(http.StatusNoContent, chargeDeclare, nil)
	return nil
}

func (s *Server) readScript(x *exchange) error {
	made, info, err := s.scriptOf(x)
	if err != nil {
		return err
	}
	x.etag(made.Version)
	if parseMatchingText(x.header("If-None-Match")) == made.Version {
		x.answer(http.StatusNotModified, chargeResource, nil)
		return nil
	}
	return x.answerJSON(http.StatusOK, chargeResource, scriptBody(info.RID(), made))
}

// scriptBodies are the bodies of a container's scripts of a kind, in the order in which they were made.
func (s *Server) scriptBodies(x *exchange) (bodies []json.RawMessage, owner string, err error) {
	info, err := s.containerInfo(x)
	if err != nil {
		return nil, "", err
	}
	for i := range info.Scripts {
		if info.Scripts[i].Kind != x.target.scriptKind() {
			continue
		}
		body, err := json.Marshal(scriptBody(info.RID(), &info.Scripts[i]))
		if err != nil {
			return nil, "", err
		}
		bodies = append(bodies, body)
	}
	return bodies, info.RID().String(), nil
}

func (s *Server) listScripts(x *exchange) error {
	bodies, owner, err := s.scriptBodies(x)
	if err != nil {
		return err
	}
	return answerList(x, owner, scriptLists[x.target.scriptKind()], bodies)
}

func (s *Server) queryScripts(x *exchange) error {
	bodies, owner, err := s.scriptBodies(x)
	if err != nil {
		return err
	}
	return s.queryResources(x, owner, scriptLists[x.target.scriptKind()], bodies)
}

// executeProcedure runs a stored procedure for one logical partition.
func (s *Server) executeProcedure(x *exchange) error {
	if x.target.scriptKind() != store.ScriptProcedure {
		return refuse(http.StatusMethodNotAllowed, "a %s is not executed by itself", scriptNames[x.target.scriptKind()])
	}
	made, _, err := s.scriptOf(x)
	if err != nil {
		return err
	}
	c, err := s.collection(x)
	if err != nil {
		return err
	}
	key, given, err := c.parseKey(x.header(headerKey))
	if err != nil {
		return err
	}
	if !given {
		return errNoKey
	}
	args := json.RawMessage(x.body)
	if text := strings.TrimSpace(string(x.body)); text == "" || text == "null" {
		args = nil
	} else if text[0] != '[' || !json.Valid(x.body) {
		return refuse(http.StatusBadRequest, "the body is not a list of arguments, such as [1, \"a\"]")
	}
	place, err := s.place(x, c, key)
	if err != nil {
		return err
	}
	prog := &script.Program{
		Body: made.Body, Args: args, SelfLink: place.SelfLink, AltLink: place.AltLink, Activity: x.activity,
		Logging: isTrue(x.header(headerScriptLogging)),
	}
	var result *script.Result
	done, err := script.Atomically(x.ctx, place, s.scripts.Time(), func(t *script.Transaction) (err error) {
		result, err = s.scripts.Run(x.ctx, prog, t.Answer)
		return err
	})
	if err != nil {
		return s.scriptFailed(x, c, key, err)
	}
	s.showLog(x, result.Log)
	x.saw(done.Partition, done.LSN)
	x.answer(http.StatusOK, chargeOf(done), result.Body)
	return nil
}

// functionsOf returns the functions of the container that a query calls.
func (s *Server) functionsOf(x *exchange, r *store.QueryRequest) ([]store.QueryFunction, error) {
	if !strings.Contains(strings.ToLower(r.Text), "udf") {
		return nil, nil // nearly all, of which none is parsed here
	}
	q, err := store.ParseQuery(r.Text, r.Params)
	if err != nil {
		return nil, err
	}
	names := q.Functions()
	switch {
	case len(names) == 0:
		return nil, nil
	case s.scripts == nil:
		return nil, refuse(http.StatusBadRequest, "user-defined functions are not served here: gateway.scripts.enabled is false")
	case len(names) > store.QueryFunctionsMax:
		return nil, store.RefuseFunctions(len(names))
	}
	info, err := s.containerInfo(x)
	if err != nil {
		return nil, err
	}
	functions := make([]store.QueryFunction, len(names))
	for i, name := range names {
		at := findScript(info.Scripts, store.ScriptFunction, name)
		if at < 0 {
			return nil, refuse(http.StatusBadRequest, "the container has no user-defined function %q", clip(name))
		}
		functions[i] = store.QueryFunction{Name: name, Body: info.Scripts[at].Body}
	}
	return functions, nil
}

// place is the logical partition of a key, as scripts see it. They reach all of its items.
func (s *Server) place(x *exchange, c *collection, key feed.PartitionKey) (*script.Place, error) {
	if err := x.right.admitKey(key); err != nil {
		return nil, err
	}
	if g := x.right.grant; g != nil && g.oneItem() {
		return nil, refuse(http.StatusForbidden, "the resource token is for %s, and scripts reach others", g.what())
	}
	return &script.Place{
		Container: c.owned, Key: key, RID: c.rid, SelfLink: c.rid.Self(), AltLink: "dbs/" + c.info.Database + "/colls/" + c.info.Name,
		Strip: withoutSystem, NewKey: s.newKey,
	}, nil
}

// chargeOf is the charge of a run: that of what it wrote, and of a page.
func chargeOf(done *script.Committed) float64 {
	charge := chargePage
	for i := range done.Items {
		charge += writeCharge(len(done.Items[i].Body))
	}
	return charge
}

func (s *Server) showLog(x *exchange, log string) {
	if isTrue(x.header(headerScriptLogging)) && log != "" {
		x.w.Header().Set(headerScriptLog, log)
	}
}

// scriptFailed returns the protocol's error of a run of scripts.
func (s *Server) scriptFailed(x *exchange, c *collection, key feed.PartitionKey, err error) error {
	x.saw(c.PartitionFor(key), refusedAt(err))
	thrown, ok := errors.AsType[*script.ThrownError](err)
	if ok {
		s.showLog(x, thrown.Log)
		return refuseAs(http.StatusBadRequest, thrown.Status, "encountered exception while executing function. Exception = %s", thrown.Message)
	}
	switch {
	case errors.Is(err, script.ErrTime):
		return refuse(http.StatusRequestTimeout, "%v: more than %s (gateway.scripts.time); nothing was written", err, s.scripts.Time())
	case errors.Is(err, script.ErrMemory):
		return refuse(http.StatusForbidden, "%v: more than gateway.scripts.memoryBytes allows; nothing was written", err)
	case errors.Is(err, script.ErrDepth):
		return refuse(http.StatusBadRequest, "%v: deeper than gateway.scripts.depthMax allows; nothing was written", err)
	case errors.Is(err, script.ErrResult):
		return refuse(http.StatusRequestEntityTooLarge, "%v: more bytes than gateway.scripts.resultBytes allows; nothing was written", err)
	case errors.Is(err, script.ErrBusy):
		return &failure{
			status: http.StatusTooManyRequests, substatus: subRequestRateLarge, retryAfter: retryAfterDefault,
			message: err.Error() + " (gateway.scripts.processesMax); try again",
		}
	case errors.Is(err, script.ErrConflict):
		return &failure{status: statusRetryWith, message: err.Error(), retryAfter: retryAfterDefault}
	case errors.Is(err, script.ErrCrashed):
		s.cfg.Logger.Warn("a script broke the process that ran it", "container", c.info.Name, "activity", x.activity, "error", err)
		return refuse(http.StatusBadRequest, "the script broke the process that ran it; nothing was written")
	case errors.Is(err, context.Canceled):
		return err
	}
	return s.explainAbsence(x, c, err)
}
