package store

import (
	"context"
	"errors"
	"strconv"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/millrace/millrace/feed"
)

const instrumentation = "github.com/millrace/millrace/store"

// tracer follows the provider that the process sets, also later.
var tracer = otel.Tracer(instrumentation)

// The attributes of spans, by OpenTelemetry's semantic conventions of databases where they have one.
const (
	AttrSystem     = attribute.Key("db.system.name")
	AttrDatabase   = attribute.Key("db.namespace")
	AttrContainer  = attribute.Key("db.collection.name")
	AttrOperation  = attribute.Key("db.operation.name")
	AttrStatusCode = attribute.Key("db.response.status_code") // of an answer that refuses
	AttrPartition  = attribute.Key("millrace.partition")
	AttrLSN        = attribute.Key("millrace.lsn")
	AttrStandby    = attribute.Key("millrace.standby") // of an answer from a copy, and not by the owner
)

// SystemName is the value of AttrSystem.
const SystemName = "millrace"

// Attributes are those by which spans name a container.
func (i *ContainerInfo) Attributes() []attribute.KeyValue {
	return []attribute.KeyValue{AttrSystem.String(SystemName), AttrDatabase.String(i.Database), AttrContainer.String(i.Name)}
}

// background marks contexts.
type background struct{}

// Background marks ctx as that of a loop which looks after something again and again: what is asked
// under it is part of a trace that it has, and begins none. A process that has nothing to do exports
// nothing then.
func Background(ctx context.Context) context.Context {
	return context.WithValue(ctx, background{}, true)
}

// traced tells whether a request under ctx has a span.
func traced(ctx context.Context) bool {
	return ctx.Value(background{}) == nil || trace.SpanContextFromContext(ctx).IsValid()
}

// NoSpan stands for a span where there is none.
var NoSpan trace.Span = noop.Span{}

// startSpan begins the span of a request, if it has one.
func startSpan(ctx context.Context, r *Request, info *ContainerInfo) (context.Context, trace.Span) {
	if !traced(ctx) {
		return ctx, NoSpan
	}
	ctx, span := tracer.Start(ctx, r.spanName(), asClient...)
	if span.IsRecording() {
		DescribeRequest(span, r, info)
	}
	return ctx, span
}

// DescribeRequest gives a span what a request asks for, and of which container; nil: it is not known.
func DescribeRequest(span trace.Span, r *Request, info *ContainerInfo) {
	span.SetAttributes(AttrPartition.String(r.Partition.String()), AttrOperation.String(r.name()))
	if info != nil {
		span.SetAttributes(info.Attributes()...)
	}
}

// endSpan ends the span of a request with what came of it.
func endSpan(span trace.Span, resp *Response, err error) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	DescribeAnswer(span, resp, err)
}

// DescribeAnswer gives the span of a request the LSN of its answer, and the status if it was refused.
func DescribeAnswer(span trace.Span, resp *Response, err error) {
	if status := statusOf(resp, err); status != 0 {
		span.SetAttributes(AttrStatusCode.String(strconv.Itoa(int(status))))
	}
	if lsn := resp.lsn(); lsn != 0 {
		span.SetAttributes(AttrLSN.Int64(int64(lsn)))
	}
}

// statusOf is the status of what was refused, 0 if nothing was.
func statusOf(resp *Response, err error) Status {
	if refused, ok := errors.AsType[*Error](err); ok {
		return refused.Status
	}
	if resp == nil {
		return 0
	}
	if resp.Err != nil {
		return resp.Err.Status
	}
	if t := resp.Transact; t != nil && t.Failed {
		for i := range t.Results {
			// In a batch the others say only that one of them failed.
			if s := t.Results[i].Status; s >= 400 && s != StatusFailedDependency {
				return s
			}
		}
	}
	return 0
}

// lsn is that of the commit on which an answer rests, where it tells one.
func (r *Response) lsn() feed.LSN {
	switch {
	case r == nil:
	case r.Transact != nil:
		return r.Transact.LSN
	case r.PatchMany != nil:
		return r.PatchMany.LSN
	case r.Repair != nil:
		return r.Repair.LSN
	case r.Fold != nil:
		return r.Fold.LSN
	case r.PutRows != nil:
		return r.PutRows.LSN
	}
	return 0
}

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
