package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/script"
)

// triggersMax bounds the triggers that one request names, before and behind the write each.
const triggersMax = 4

// triggerNames are the triggers that a request names.
func (x *exchange) triggerNames(header string) []string {
	var names []string
	for name := range strings.SplitSeq(x.header(header), ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// namesTriggers tells whether a request names any.
func (x *exchange) namesTriggers() bool {
	return len(x.triggerNames(headerPreTrigger)) > 0 || len(x.triggerNames(headerPostTrigger)) > 0
}

// triggersOf returns the triggers of a container that a request names in a header: each must be of that time, and for the operation.
func triggersOf(x *exchange, info *store.ContainerInfo, header, when, operation string) ([]store.Script, error) {
	names := x.triggerNames(header)
	if len(names) > triggersMax {
		return nil, refuse(http.StatusBadRequest, "the request names %d triggers in %s; at most %d are allowed", len(names), strings.ToLower(header), triggersMax)
	}
	var found []store.Script
	for _, name := range names {
		i := findScript(info.Scripts, store.ScriptTrigger, name)
		if i < 0 {
			return nil, refuse(http.StatusBadRequest, "there is no trigger %q", clip(name))
		}
		made := info.Scripts[i]
		switch {
		case !strings.EqualFold(made.When, when):
			return nil, refuse(http.StatusBadRequest, "the trigger %q is a %s-trigger, and the request names it as a %s-trigger", clip(name), made.When, when)
		case !servesOperation(made.Operation, operation):
			return nil, refuse(http.StatusBadRequest, "the trigger %q is for the operation %s, and the request is a %s", clip(name), made.Operation, operation)
		}
		found = append(found, made)
	}
	return found, nil
}

// servesOperation tells whether a trigger that is for some operations, in any case, is for one of them.
func servesOperation(of, operation string) bool {
	return strings.EqualFold(of, "All") || strings.EqualFold(of, operation) || strings.EqualFold(of, "Update") && operation == "Replace"
}

// triggerOperationOf is the word of triggers for an operation on an item.
func triggerOperationOf(x *exchange, op *store.Operation) string {
	switch {
	case isTrue(x.header(headerUpsert)):
		return "Upsert" // whatever its conditions make of it
	case op.Kind == store.OpCreate:
		return "Create"
	case op.Kind == store.OpDelete:
		return "Delete"
	}
	return "Replace"
}

// writeTriggered carries out a write with the triggers that its request names, all in one transaction: the triggers before it may
// change the item, those behind it see the answer, and what they all write goes with it or not at all.
func (s *Server) writeTriggered(x *exchange, w *itemWrite) error {
	if s.scripts == nil {
		return refuse(http.StatusBadRequest, "triggers are not served here: gateway.scripts.enabled is false")
	}
	info, err := s.containerInfo(x)
	if err != nil {
		return err
	}
	operation := triggerOperationOf(x, &w.op)
	before, err := triggersOf(x, &info, headerPreTrigger, "Pre", operation)
	if err != nil {
		return err
	}
	behind, err := triggersOf(x, &info, headerPostTrigger, "Post", operation)
	if err != nil {
		return err
	}
	place, err := s.place(x, w.c, w.key)
	if err != nil {
		return err
	}
	var id string
	var status store.Status
	done, err := script.Atomically(x.ctx, place, s.scripts.Time(), func(t *script.Transaction) error {
		ctx, cancel := context.WithTimeoutCause(x.ctx, s.scripts.Time(), script.ErrTime) // of all together
		defer cancel()
		op := w.op // as the client has sent it, in each run
		run := func(made *store.Script, response json.RawMessage) error {
			prog := &script.Program{
				Body: made.Body, SelfLink: place.SelfLink, AltLink: place.AltLink, Activity: x.activity, Trigger: true, Operation: operation,
				Status: int(status), Request: op.Body, Response: response,
			}
			result, err := s.scripts.Run(ctx, prog, t.Answer)
			if err == nil && result.Request != nil && response == nil && op.Kind != store.OpDelete {
				op.Body = result.Request
			}
			return err
		}
		for i := range before {
			if err := run(&before[i], nil); err != nil {
				return err
			}
		}
		var shown json.RawMessage
		var err error
		if id, status, shown, err = t.Apply(ctx, op); err != nil {
			return err
		}
		if shown == nil {
			shown = json.RawMessage("null")
		}
		for i := range behind {
			if err := run(&behind[i], shown); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return s.scriptFailed(x, w.c, w.key, w.explain(err))
	}
	x.saw(done.Partition, done.LSN)
	charge := chargeOf(done)
	at := slices.IndexFunc(done.Items, func(i store.Item) bool { return i.ID == id })
	// Without one the triggers have removed again what was written, or have written again what was deleted.
	if w.op.Kind == store.OpDelete || at < 0 || len(done.Items[at].Body) == 0 {
		x.answer(int(status), charge, nil)
		return nil
	}
	x.etag(done.Items[at].ETag.String())
	if x.minimal() {
		x.answer(int(status), charge, nil)
		return nil
	}
	x.answer(int(status), charge, w.c.appendItem(nil, &done.Items[at]))
	return nil
}
