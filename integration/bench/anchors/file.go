//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/millrace/millrace/integration/bench/dataset"
)

// appended is a file that orders are appended to, with the new count of their customer, and a map of counts. It is the least that can
// be done: it parses nothing, indexes nothing, and has no checkpoint.
type appended struct {
	file   *os.File
	w      *bufio.Writer
	orders int64
	counts map[string]int64
}

const appendBuffer = 1 << 20

func (a *appended) open(_ context.Context, dir string, shop *dataset.Shop) (err error) {
	a.counts = make(map[string]int64, shop.Customers())
	if a.file, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return err
	}
	a.w = bufio.NewWriterSize(a.file, appendBuffer)
	return nil
}

// commit appends a group and syncs it.
func (a *appended) commit(group []*job) error {
	for _, j := range group {
		a.orders++
		a.counts[j.customer]++
		if _, err := fmt.Fprintf(a.w, "%s\n%s %d\n", j.item, j.customer, a.counts[j.customer]); err != nil {
			return err
		}
	}
	if err := a.w.Flush(); err != nil {
		return err
	}
	return syscall.Fdatasync(int(a.file.Fd()))
}

func (a *appended) totals(context.Context) (orders, counted int64, err error) {
	for _, n := range a.counts {
		counted += n
	}
	return a.orders, counted, nil
}

func (a *appended) close() error {
	if a.file == nil {
		return nil
	}
	return a.file.Close()
}

// file is an appended file with one writer, which clients queue for.
type file struct {
	appended
	queue
}

func (f *file) open(ctx context.Context, dir string, shop *dataset.Shop) error {
	if err := f.appended.open(ctx, dir, shop); err != nil {
		return err
	}
	f.start(groupMax, f.commit)
	return nil
}

func (f *file) close() error {
	f.stop()
	return f.appended.close()
}

// fileByCaller is an appended file without a writer of its own: who finds nobody writing writes for all that wait, on its own goroutine, and
// then hands the next group to one of those who wait.
type fileByCaller struct {
	appended
	mu      sync.Mutex
	writing bool
	waiting []*job
}

// errLead is no failure: it tells a client that waits to write the next group.
var errLead = errors.New("write the next group")

func (f *fileByCaller) client(context.Context) (place, error) {
	done := make(chan error, 1)
	return func(_ context.Context, customer, order string, item []byte) error {
		j := &job{customer, order, item, done}
		f.mu.Lock()
		f.waiting = append(f.waiting, j)
		lead := !f.writing
		f.writing = true
		f.mu.Unlock()
		if !lead {
			if err := <-done; !errors.Is(err, errLead) {
				return err
			}
		}
		return f.lead(j)
	}, nil
}

// lead writes the group that mine is in.
func (f *fileByCaller) lead(mine *job) error {
	f.mu.Lock()
	group := f.waiting
	f.waiting = nil
	f.mu.Unlock()
	err := f.commit(group)
	f.mu.Lock()
	if len(f.waiting) > 0 {
		f.waiting[0].done <- errLead
	} else {
		f.writing = false
	}
	f.mu.Unlock()
	for _, j := range group {
		if j != mine {
			j.done <- err
		}
	}
	return err
}
