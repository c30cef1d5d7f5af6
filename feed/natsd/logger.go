package natsd

import (
	"context"
	"fmt"
	"log/slog"
)

// logger writes the server's messages to slog. slog's message stays constant, so the server's
// own sentence goes into an attribute.
type logger struct {
	log *slog.Logger
	// fatal holds the first message that the server calls fatal, which is the reason why it
	// does not start.
	fatal chan string
}

func (l *logger) write(level slog.Level, format string, v []any) {
	ctx := context.Background()
	if l.log.Enabled(ctx, level) {
		l.log.LogAttrs(ctx, level, "nats-server", slog.String("message", fmt.Sprintf(format, v...)))
	}
}

// Noticef logs messages of the server's normal life, at debug level.
func (l *logger) Noticef(format string, v ...any) { l.write(slog.LevelDebug, format, v) }

// Warnf logs warnings.
func (l *logger) Warnf(format string, v ...any) { l.write(slog.LevelWarn, format, v) }

// Errorf logs errors.
func (l *logger) Errorf(format string, v ...any) { l.write(slog.LevelError, format, v) }

// Debugf logs details, at debug level.
func (l *logger) Debugf(format string, v ...any) { l.write(slog.LevelDebug, format, v) }

// Tracef logs protocol traces, which Millrace never switches on.
func (l *logger) Tracef(format string, v ...any) { l.write(slog.LevelDebug, format, v) }

// Fatalf receives the reason why the server cannot run. Open returns the first one as its
// error, so it is not logged; later ones are logged.
func (l *logger) Fatalf(format string, v ...any) {
	select {
	case l.fatal <- fmt.Sprintf(format, v...):
	default:
		l.write(slog.LevelError, format, v)
	}
}
