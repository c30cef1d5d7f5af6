package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/millrace/millrace/store"
)

// httpStopTimeout bounds how long a request for metrics may take at the end.
const httpStopTimeout = 2 * time.Second

// Run does what the roles say until ctx ends. Then it stops in order: workers
// finish what is under way and hand their leases over, then stores do. An error
// tells why the node stopped by itself. Call Close after it. Both together take no
// longer than Config.DrainTimeout from the end of ctx, whatever hangs; what did not
// end in time keeps running, and Close tells of it.
func (n *Node) Run(ctx context.Context) error {
	var errs failures
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// Each layer runs under a context that ends only when those above it are done.
	// What they ask again and again begins no trace; what clients and changes cause does.
	ctx = store.Background(ctx)
	background := context.WithoutCancel(ctx)
	var serving, storing, working sync.WaitGroup
	storeCtx, stopStore := context.WithCancel(background)
	defer stopStore()
	watchCtx, stopWatch := context.WithCancel(background)
	defer stopWatch()

	web := n.web()
	if n.listener != nil {
		serving.Go(func() {
			if err := web.Serve(n.listener); !errors.Is(err, http.ErrServerClosed) {
				errs.add(fmt.Errorf("http: %w", err))
				stop(err)
			}
		})
	}
	if n.console != nil {
		serving.Go(func() { n.console.Run(watchCtx) })
	}
	serving.Go(func() { n.watch.run(watchCtx) })
	serving.Go(func() { n.memory.Run(watchCtx, n.trim()) })
	if n.keeper != nil {
		serving.Go(func() { n.keeper.Run(watchCtx) })
	}
	if n.owners != nil {
		storing.Go(func() { errs.run(stop, "store", func() error { return n.owners.Run(storeCtx) }) })
		storing.Go(func() { n.standbys.Run(storeCtx, n.owners) })
	}
	if n.supervisor != nil {
		working.Go(func() { errs.run(stop, "worker", func() error { return n.supervisor.Run(ctx) }) })
	}
	if n.gateway != nil {
		working.Go(func() { errs.run(stop, "gateway", func() error { return n.gateway.Run(ctx) }) })
	}
	<-ctx.Done()
	end := n.stop()
	n.log.Info("stopping", slog.Duration("drainTimeout", end.timeout))
	n.watch.stopping.Store(true)
	end.step("workers and gateway", shareWork, working.Wait, nil)
	stopStore()
	end.step("store", shareStore, storing.Wait, n.serving)
	stopWatch()
	end.step("health and metrics", shareHTTP, func() {
		shutdown, cancel := context.WithTimeout(background, httpStopTimeout)
		defer cancel()
		if err := web.Shutdown(shutdown); err != nil {
			n.log.Debug("http", slog.Any("error", errors.Join(err, web.Close())))
		}
		serving.Wait()
	}, nil)
	if end.clean() {
		n.log.Info("stopped", slog.Duration("took", time.Since(end.began)))
	}
	return errs.err()
}

// failures gathers the errors of several goroutines.
type failures struct {
	mu   sync.Mutex
	errs []error
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
}

// run runs one layer; an error stops the node.
func (f *failures) run(stop context.CancelCauseFunc, what string, layer func() error) {
	if err := layer(); err != nil {
		err = fmt.Errorf("%s: %w", what, err)
		f.add(err)
		stop(err)
	}
}

func (f *failures) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.errs...)
}
