package natsd

import (
	"context"
	"fmt"
	"log/slog"
)

// logger writes the server's messages to slog. The messages are the server's
// own sentences, so they go into an attribute.
type logger struct {
	log *slog.Logger
	// fatal holds the first message that the server calls fatal: what keeps it
	// from starting.
	fatal chan string
}

func (l *logger) write(level slog.Level, format string, v []any) {
	ctx := context.Background()
	if l.log.Enabled(ctx, level) {
		l.log.LogAttrs(ctx, level, "nats-server", slog.String("message", fmt.Sprintf(format, v...)))
	}
}

// Noticef takes what the server tells about its normal life.
func (l *logger) Noticef(format string, v ...any) { l.write(slog.LevelDebug, format, v) }

// Warnf takes warnings.
func (l *logger) Warnf(format string, v ...any) { l.write(slog.LevelWarn, format, v) }

// Errorf takes errors.
func (l *logger) Errorf(format string, v ...any) { l.write(slog.LevelError, format, v) }

// Debugf takes details.
func (l *logger) Debugf(format string, v ...any) { l.write(slog.LevelDebug, format, v) }

// Tracef takes protocol traces, which are never switched on.
func (l *logger) Tracef(format string, v ...any) { l.write(slog.LevelDebug, format, v) }

// Fatalf takes what keeps the server from running. Open returns it, so it is
// not logged as well.
func (l *logger) Fatalf(format string, v ...any) {
	select {
	case l.fatal <- fmt.Sprintf(format, v...):
	default:
		l.write(slog.LevelError, format, v)
	}
}
