package atomicfile

import (
	"log/slog"
	"os"
	"sync"
	"time"
)

// lookInterval is the least time between two checks whether a file has changed.
const lookInterval = time.Second

// Follower holds what a file says, and reads the file again when it has changed. Safe for
// concurrent use.
type Follower[T any] struct {
	what string // the file holds, for the log
	path string // "": what it holds is fixed
	read func(path string) (T, error)
	log  *slog.Logger

	mu     sync.Mutex
	holds  T
	looked time.Time
	stamp  stamp
}

// stamp reports whether a file is another than before.
type stamp struct {
	modified time.Time
	size     int64
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size()}
}

// Follow reads a file for the first time, and returns the error of read if there is one. The log
// is told of later changes, and of errors then, which leave what is held as it is; what names
// it there, such as "the gateway's keys".
func Follow[T any](what, path string, read func(path string) (T, error), log *slog.Logger) (*Follower[T], error) {
	f := &Follower[T]{what: what, path: path, read: read, log: log}
	f.stamp = stampOf(path) // before it is read: a change meanwhile is seen at the next check
	var err error
	if f.holds, err = read(path); err != nil {
		return nil, err
	}
	f.looked = time.Now()
	return f, nil
}

// Fixed returns a Follower of no file, which holds the same for ever.
func Fixed[T any](holds T) *Follower[T] { return &Follower[T]{holds: holds} }

// Now returns what the file says. At most once a second it checks whether the file has
// changed. If it cannot be read, what was held before is returned.
func (f *Follower[T]) Now() T {
	held, before, due := f.due(time.Now())
	if !due {
		return held
	}
	now := stampOf(f.path)
	if now == before {
		return held
	}
	// Read without the lock: others go on with what is held.
	read, err := f.read(f.path)
	if err != nil {
		f.log.Error("a file cannot be read; what it said before stays in force", slog.String("of", f.what), slog.String("file", f.path), slog.Any("error", err))
		return held
	}
	f.mu.Lock()
	f.stamp, f.holds = now, read
	f.mu.Unlock()
	f.log.Info("a file has changed and was read again", slog.String("of", f.what), slog.String("file", f.path))
	return read
}

// due returns what is held, and whether this caller has to check the file now. Of
// concurrent callers it tells one only.
func (f *Follower[T]) due(now time.Time) (held T, before stamp, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if due = f.path != "" && now.Sub(f.looked) >= lookInterval; due {
		f.looked = now
	}
	return f.holds, f.stamp, due
}
