package store

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
)

const instrumentation = "github.com/millrace/millrace/store"

// tracer follows the provider that the process sets, also later.
var tracer = otel.Tracer(instrumentation)

// TraceContext returns the W3C traceparent and tracestate of the span in ctx,
// empty if there is none.
func TraceContext(ctx context.Context) (parent, state string) {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return "", ""
	}
	flags := "00"
	if sc.IsSampled() {
		flags = "01"
	}
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + flags, sc.TraceState().String()
}

// WithTraceContext returns ctx with the remote span that parent names, or ctx
// itself if parent is empty or malformed.
func WithTraceContext(ctx context.Context, parent, state string) context.Context {
	sc := ParseTraceContext(parent, state)
	if !sc.IsValid() {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, sc)
}

// ParseTraceContext reads a W3C traceparent; the zero SpanContext if it is empty
// or malformed.
func ParseTraceContext(parent, state string) trace.SpanContext {
	if len(parent) != 55 || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' {
		return trace.SpanContext{}
	}
	traceID, err := trace.TraceIDFromHex(parent[3:35])
	if err != nil {
		return trace.SpanContext{}
	}
	spanID, err := trace.SpanIDFromHex(parent[36:52])
	if err != nil {
		return trace.SpanContext{}
	}
	ts, err := trace.ParseTraceState(state)
	if err != nil {
		ts = trace.TraceState{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceState: ts, Remote: true,
		TraceFlags: trace.TraceFlags(parent[54] & 1),
	})
}
