package node

import (
	"context"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/configs"
)

// NewLogger returns a logger that writes to w as cfg says, and that adds trace_id
// and span_id where a message belongs to a span.
func NewLogger(w io.Writer, cfg configs.Log) *slog.Logger {
	options := &slog.HandlerOptions{Level: cfg.SlogLevel()}
	if cfg.Format == "json" {
		return slog.New(traced{slog.NewJSONHandler(w, options)})
	}
	return slog.New(traced{slog.NewTextHandler(w, options)})
}

// traced adds the ids of the span in a message's context.
type traced struct{ slog.Handler }

func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{h.Handler.WithAttrs(attrs)} }

func (h traced) WithGroup(name string) slog.Handler { return traced{h.Handler.WithGroup(name)} }
