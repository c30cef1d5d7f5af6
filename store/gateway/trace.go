package gateway

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/store"
)

const (
	spanPrefix = "millrace.gateway "
	// spanRefused is the name of the span of a request that does not come as far as its operation.
	spanRefused = spanPrefix + "refused"
)

// asServer is made once: spans are begun even if nobody collects them.
var asServer = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}

// startSpan begins the span of a request before anything is known of it, so that one that is refused
// has a span too. It goes on with the trace of the client.
func (x *exchange) startSpan() trace.Span {
	ctx := store.WithTraceContext(x.ctx, x.r.Header.Get("Traceparent"), x.r.Header.Get("Tracestate"))
	ctx, span := tracer.Start(ctx, spanRefused, asServer...) //nolint:spancheck // the caller ends it
	x.ctx = ctx
	return span //nolint:spancheck // the caller ends it
}

// nameSpan gives the span what the request asks for. The sender has a key by now: what others write
// into a URL is not exported.
func (x *exchange) nameSpan() {
	span := trace.SpanFromContext(x.ctx)
	if !span.IsRecording() {
		return
	}
	span.SetName(spanPrefix + x.op.name)
	span.SetAttributes(store.AttrSystem.String(store.SystemName), store.AttrOperation.String(x.op.name))
	if x.target.database != "" {
		span.SetAttributes(store.AttrDatabase.String(x.target.database))
	}
	if x.target.container != "" {
		span.SetAttributes(store.AttrContainer.String(x.target.container))
	}
}

// endSpan ends the span with what was answered.
func (x *exchange) endSpan(span trace.Span, err error) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("http.request.method", method(x.r.Method)), attribute.String("millrace.activity", x.activity),
		attribute.Int("http.response.status_code", x.status))
	if x.status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, http.StatusText(x.status))
		if err != nil {
			span.RecordError(err)
		}
	}
}

// method is that of a request, where it is one that HTTP knows: anybody can send any word.
func method(of string) string {
	switch of {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return of
	}
	return "_OTHER"
}
