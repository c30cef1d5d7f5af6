package parquetsink_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/processors/project/parquetsink"
)

// memory is an ObjectStore as a bucket is one, in memory: crashes can be tried at
// every step of it in little time.
type memory struct {
	mu      sync.Mutex
	objects map[string]object
}

type object struct {
	data     []byte
	modified time.Time
}

func newMemory() *memory { return &memory{objects: map[string]object{}} }

func (m *memory) Get(_ context.Context, name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[name]
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return o.data, nil
}

func (m *memory) Put(_ context.Context, name string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[name] = object{slices.Clone(data), time.Now()}
	return nil
}

func (m *memory) PutExclusive(ctx context.Context, name string, data []byte) error {
	m.mu.Lock()
	_, there := m.objects[name]
	if !there {
		m.objects[name] = object{slices.Clone(data), time.Now()}
	}
	m.mu.Unlock()
	if there {
		return fmt.Errorf("%s: %w", name, fs.ErrExist)
	}
	return ctx.Err()
}

func (m *memory) List(_ context.Context, prefix, after string) iter.Seq2[parquetsink.Object, error] {
	m.mu.Lock()
	all := maps.Clone(m.objects)
	m.mu.Unlock()
	return func(yield func(parquetsink.Object, error) bool) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if !strings.HasPrefix(name, prefix) || name <= after {
				continue
			}
			if !yield(parquetsink.Object{Name: name, Modified: all[name].modified}, nil) {
				return
			}
		}
	}
}

func (m *memory) Delete(_ context.Context, names ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		delete(m.objects, name)
	}
	return nil
}

// names returns those of the objects in a folder.
func (m *memory) names(prefix string) (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.objects {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// copied returns a store of what is there now.
func (m *memory) copied() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memory{objects: maps.Clone(m.objects)}
}

// objects is what tests put between a sink and its storage.
type objects = parquetsink.ObjectStore

// errCrash is what a store answers after the crash.
var errCrash = errors.New("the process has been killed")

// crashing is a store that a process uses until it is killed at a step: the step
// happens, or does not, and nothing after it does.
type crashing struct {
	objects
	mu      sync.Mutex
	step    int
	at      int  // the step of the crash
	happens bool // the step at which it crashes happens, unheard
	crashed bool
}

func (c *crashing) do(f func() error) error {
	c.mu.Lock()
	c.step++
	now := c.step == c.at && !c.crashed
	dead := c.crashed
	c.crashed = c.crashed || now
	c.mu.Unlock()
	if dead || now && !c.happens {
		return errCrash
	}
	if err := f(); !now {
		return err
	}
	return errCrash
}

func (c *crashing) Get(ctx context.Context, name string) (data []byte, err error) {
	err = c.do(func() error { data, err = c.objects.Get(ctx, name); return err })
	return data, err
}

func (c *crashing) Put(ctx context.Context, name string, data []byte) error {
	return c.do(func() error { return c.objects.Put(ctx, name, data) })
}

func (c *crashing) PutExclusive(ctx context.Context, name string, data []byte) error {
	return c.do(func() error { return c.objects.PutExclusive(ctx, name, data) })
}

func (c *crashing) List(ctx context.Context, prefix, after string) iter.Seq2[parquetsink.Object, error] {
	return func(yield func(parquetsink.Object, error) bool) {
		if err := c.do(func() error { return nil }); err != nil {
			yield(parquetsink.Object{}, err)
			return
		}
		c.objects.List(ctx, prefix, after)(yield)
	}
}

// Delete removes objects one by one, so that a crash leaves some.
func (c *crashing) Delete(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := c.do(func() error { return c.objects.Delete(ctx, name) }); err != nil {
			return err
		}
	}
	return nil
}

// Tidy and RemoveViews are steps where the store has them.
func (c *crashing) Tidy(ctx context.Context, grace time.Duration) error {
	v, ok := c.objects.(*parquetsink.Dir)
	if !ok {
		return nil
	}
	return c.do(func() error { return v.Tidy(ctx, grace) })
}

func (c *crashing) RemoveViews(ctx context.Context) (removed bool, err error) {
	v, ok := c.objects.(*parquetsink.Dir)
	if !ok {
		return false, nil
	}
	err = c.do(func() error { removed, err = v.RemoveViews(ctx); return err })
	return removed, err
}

func (c *crashing) steps() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.step
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
