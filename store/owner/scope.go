package owner

import (
	"iter"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
)

// scopeItems returns the items of a scope behind an item key, in item order, as
// the engine's snapshot shows them. The items are views, valid until the next.
func scopeItems(snap *engine.Snapshot, s *schema, scope *store.Scope, after []byte) (iter.Seq2[*engine.View, error], *store.Error) {
	switch {
	case scope.Index != "":
		index, refusal := s.index(scope.Index)
		if refusal != nil {
			return nil, refusal
		}
		if len(scope.Value) == 0 {
			return nil, store.Refuse(store.StatusBadRequest, "a scope on index %s names a value", scope.Index)
		}
		return snap.IndexItems(index.Number, scope.Value, after), nil
	case !scope.Key.IsZero():
		return snap.Items(after, engine.LogicalPrefix(scope.Key)), nil
	}
	return snap.Items(after, nil), nil
}

// candidates are the items among which a page looks for copies.
func (p *page) candidates() (iter.Seq2[*engine.View, error], *store.Error) {
	return scopeItems(p.t.snap, p.t.schema, &p.req.Scope, p.progress.Cursor)
}
