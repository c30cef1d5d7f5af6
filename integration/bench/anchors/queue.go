//go:build linux

package main

import (
	"context"
	"sync"
)

// job is an order on its way.
type job struct {
	customer, order string
	item            []byte
	done            chan error
}

// queue is where clients wait for one writer, which takes all that wait at a time.
type queue struct {
	jobs  chan *job
	ended sync.WaitGroup
}

// start starts the writer. Groups have most jobs at most.
func (q *queue) start(most int, commit func(group []*job) error) {
	q.jobs = make(chan *job, groupMax)
	q.ended.Go(func() {
		group := make([]*job, 0, most)
		for first := range q.jobs {
			group = append(group[:0], first)
			for waiting := len(q.jobs); waiting > 0 && len(group) < most; waiting-- {
				group = append(group, <-q.jobs)
			}
			err := commit(group)
			for _, j := range group {
				j.done <- err
			}
		}
	})
}

func (q *queue) client(context.Context) (place, error) {
	done := make(chan error, 1)
	return func(_ context.Context, customer, order string, item []byte) error {
		q.jobs <- &job{customer, order, item, done}
		return <-done
	}, nil
}

// stop ends the writer. Nobody may place an order any more.
func (q *queue) stop() {
	if q.jobs != nil {
		close(q.jobs)
		q.ended.Wait()
	}
}
