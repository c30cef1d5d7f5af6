package processors

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/millrace/millrace/store"
)

// What heals by design is no warning, such as the start of a transactional aggregate,
// whose rule an owner puts in force a moment later; what lasts is one.
func TestRetry_WhatHealsByDesignIsNoWarning(t *testing.T) {
	t.Parallel()
	notYet := fmt.Errorf("fold: %w", &store.Error{Status: store.StatusUnavailable, Message: "the rule is not in force here yet", RetryAfter: 50 * time.Millisecond})
	for _, c := range []struct {
		name     string
		err      error
		attempts int
		lasts    time.Duration
		want     slog.Level
	}{
		{"a rule that comes into force", notYet, 1, 0, slog.LevelDebug},
		{"a rule that comes into force, often asked for", notYet, StuckAttempts, time.Second, slog.LevelDebug},
		{"a rule that does not", notYet, 100, healsFor, slog.LevelWarn},
		{"no owner", &store.NoOwnerError{}, 1, 0, slog.LevelWarn},
		{"a failure that does not say when to come again", errors.New("x"), 1, 0, slog.LevelWarn},
		{"the same, again and again", errors.New("x"), StuckAttempts, time.Second, slog.LevelError},
	} {
		if got := retryLevel(c.err, c.attempts, c.lasts); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
