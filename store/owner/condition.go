package owner

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/query"
)

// conditionTime bounds the evaluation of all conditions of one request: the other
// writes of the partition wait for it. It may be a time, which no replay can repeat,
// because a refusal is not in the log: what the log has is what was decided.
const conditionTime = 100 * time.Millisecond

// condition is the condition of a patch, or why it is none.
type condition struct {
	expr   *query.Expr
	system bool // it reads properties that no item holds; see store.AppendSystem
	err    error
}

// readConditions reads the conditions of a request, by their texts; nil if there are
// none. It is done before the decider has the request: a long text takes its time.
func readConditions(r *store.Request) map[string]condition {
	if r.Transact == nil {
		return nil
	}
	var all map[string]condition
	for i := range r.Transact.Ops {
		text := r.Transact.Ops[i].Condition
		if _, known := all[text]; known || text == "" {
			continue
		}
		if all == nil {
			all = map[string]condition{}
		}
		all[text] = compileCondition(text)
	}
	return all
}

func compileCondition(text string) condition {
	e, err := readCondition(text)
	if err != nil {
		return condition{err: err}
	}
	c := condition{expr: e}
	for _, path := range e.Paths() {
		switch {
		case len(path) == 0:
		case path[0] == "_rid" || path[0] == "_self":
			return condition{err: fmt.Errorf("it reads %s, which is not known here; ask for the item by its id", path[0])}
		default:
			c.system = c.system || store.IsSystemProperty(path[0])
		}
	}
	return c
}

// conditionHead is "from ALIAS where" before a predicate, and the alias. Names and white space are those of the
// language.
var conditionHead = regexp.MustCompile(`(?i)^([\s\pZ]*from[\s\pZ]+([\pL_$][\pL\p{Nd}_$]*)[\s\pZ]+where)(?:[^\pL\p{Nd}_$]|$)`)

// readCondition reads a predicate, or "from ALIAS where PREDICATE" as the SDKs send it.
func readCondition(text string) (*query.Expr, error) {
	alias := "c"
	if head := conditionHead.FindStringSubmatch(text); head != nil {
		text, alias = text[len(head[1]):], head[2]
	}
	return query.ParseExprAs(text, alias)
}

// checkCondition refuses a patch whose condition an item does not satisfy, or that takes too
// long to tell.
func (t *txn) checkCondition(op *store.Operation, current *engine.Item) *store.Error {
	if op.Condition == "" {
		return nil
	}
	c := t.conditions[op.Condition]
	if c.err != nil {
		return store.Refuse(store.StatusBadRequest, "condition: %v", c.err)
	}
	began, body := time.Now(), current.Body
	if c.system {
		body = store.AppendSystem(nil, body, "", "", store.ETag(current.Position), current.Modified)
	}
	holds, err := c.expr.Holds(body, began.Add(conditionTime-t.conditionTook))
	t.conditionTook += time.Since(began)
	switch {
	case errors.Is(err, query.ErrTooMuch):
		return store.Refuse(store.StatusBadRequest,
			"condition: it was not decided within %s for item %q of %d bytes, and other writes wait for it; nothing was changed. "+
				"Ask for less: a shorter regular expression or list, a smaller item, or read the item and patch it by its etag",
			conditionTime, op.ID, len(current.Body))
	case err != nil:
		return store.Refuse(store.StatusBadRequest, "condition: %v", err)
	case !holds:
		return store.Refuse(store.StatusPreconditionFailed, "item %q does not satisfy the condition %s", op.ID, document.Excerpt(op.Condition, 200))
	}
	return nil
}
