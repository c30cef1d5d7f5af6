package processors

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/store"
)

// traceLinksMax bounds the writes to which one span is linked.
const traceLinksMax = 32

// traceSet collects the traces of writes that are handled together.
type traceSet struct {
	parents []string
	states  []string
}

func (s *traceSet) add(parent, state string) {
	if parent == "" || len(s.parents) == traceLinksMax {
		return
	}
	for _, v := range slices.Backward(s.parents) {
		if v == parent {
			return
		}
	}
	s.parents = append(s.parents, parent)
	s.states = append(s.states, state)
}

func (s *traceSet) addAll(other *traceSet) {
	for i := range other.parents {
		s.add(other.parents[i], other.states[i])
	}
}

// start begins a span: a child of the one write that it serves, or a root with a
// link to each of several.
func (s *traceSet) start(ctx context.Context, name string, r Resource) (context.Context, trace.Span) {
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("millrace.pipeline", r.Pipeline), attribute.String("millrace.role", string(r.Role)),
		store.AttrPartition.String(r.Partition.String()))}
	switch len(s.parents) {
	case 0:
	case 1:
		ctx = store.WithTraceContext(ctx, s.parents[0], s.states[0])
	default:
		for i := range s.parents {
			if sc := store.ParseTraceContext(s.parents[i], s.states[i]); sc.IsValid() {
				opts = append(opts, trace.WithLinks(trace.Link{SpanContext: sc}))
			}
		}
	}
	return tracer().Start(ctx, name, opts...) //nolint:spancheck // the caller ends it
}
