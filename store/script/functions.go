package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Functions are functions that a process is ready to call. One goroutine uses them; others wait for another process.
type Functions struct {
	e      *Engine
	p      *process
	ctx    context.Context //nolint:containedctx // of the query that calls them, whose end is theirs
	cancel context.CancelFunc
}

// Load gets functions ready to be called, each body under its name, until Close. All calls together may take the time
// of limit, or until ctx ends; each may take what a script may. The error is as of Run.
func (e *Engine) Load(ctx context.Context, limit time.Duration, bodies map[string]string) (*Functions, error) {
	run := e.message()
	run.Functions, run.Env = bodies, environment{Pure: true, LogMax: logBytesMax}
	p, err := e.take(ctx)
	if err != nil {
		return nil, err
	}
	f := &Functions{e: e, p: p}
	f.ctx, f.cancel = context.WithTimeoutCause(ctx, limit, ErrTime)
	if _, err := f.talk(&toProcess{Run: run}); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Close gives back the process. It may be called twice.
func (f *Functions) Close() {
	if f.p == nil {
		return
	}
	f.cancel()
	f.e.giveBack(f.p)
	f.p = nil
}

// Call calls a function with arguments as JSON, nil for one that is undefined. It returns what the function returned as JSON,
// nil if that is undefined.
func (f *Functions) Call(name string, args [][]byte) ([]byte, error) {
	call := &callMessage{Name: name, Args: make([]json.RawMessage, len(args))}
	for i, arg := range args {
		if call.Args[i] = arg; arg == nil {
			call.Args[i] = json.RawMessage("null")
			call.Undefined = append(call.Undefined, i)
		}
	}
	done, err := f.talk(&toProcess{Call: call})
	if err != nil {
		if _, thrown := errors.AsType[*ThrownError](err); thrown {
			return nil, fmt.Errorf("udf.%s: encountered exception while executing function. Exception = %w", name, err)
		}
		return nil, fmt.Errorf("udf.%s: %w", name, err)
	}
	return done.Body, nil
}

// talk sends a message to the process, if nothing has ended it before.
func (f *Functions) talk(message *toProcess) (*doneMessage, error) {
	if f.ctx.Err() != nil {
		return nil, context.Cause(f.ctx)
	}
	done, err := f.p.talk(f.ctx, f.e.cfg.Time, message, nil)
	if err == nil {
		err = done.err()
	}
	return done, err
}
