package feed

import (
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// cachedLogBytes bounds the commits of one log that a TailCache keeps, as they are stored: as many as a Tail
	// reads ahead. A tail that falls further behind reads from the stream.
	cachedLogBytes = 4 << 20
	// cachedBytes bounds them in all logs together.
	cachedBytes = 32 << 20
)

// TailCache keeps the commits that this process has appended last, for the tails of the same process: those that have
// not read them yet. See the package's documentation, Reading what this process appends. All logs that one process opens
// share one (LogConfig.Cache). It may be used concurrently.
type TailCache struct {
	logBytesMax, bytesMax int // cachedLogBytes and cachedBytes, which tests make smaller
	bytes                 atomic.Int64

	mu   sync.Mutex
	logs map[LogID]*cachedLog
}

// NewTailCache makes an empty TailCache.
func NewTailCache() *TailCache {
	return &TailCache{logBytesMax: cachedLogBytes, bytesMax: cachedBytes, logs: map[LogID]*cachedLog{}}
}

// hold returns what is kept of a log, for one who appends to it or reads it. Who holds it calls release.
func (c *TailCache) hold(id LogID) *cachedLog {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.logs[id]
	if l == nil {
		l = &cachedLog{cache: c, id: id, grown: make(chan struct{})}
		c.logs[id] = l
	}
	l.holders++
	return l
}

// release says that somebody needs a log no more; nothing is kept of one that nobody holds.
func (l *cachedLog) release() {
	l.cache.mu.Lock()
	defer l.cache.mu.Unlock()
	if l.holders--; l.holders == 0 {
		delete(l.cache.logs, l.id)
	}
}

// cachedLog is what a TailCache keeps of one log: commits without a gap, each of which the stream has acknowledged.
//
//	appended        … 40 41 42 43
//	tail A                     43      has read 42: 42 and below are dropped as soon as B has them
//	tail B                  42         gets 42 and 43 from here
//	tail C    12                       reads 12 to 43 from the stream, and keeps nothing here
type cachedLog struct {
	cache   *TailCache
	id      LogID
	holders int // guarded by the cache's lock

	mu sync.Mutex // guards what follows; the cache's lock is never taken under it
	// live says that the last append of this process succeeded, and that more are to come: what comes next is expected here.
	live    bool
	first   LSN // of commits[0], or of the next to come
	commits [][]byte
	bytes   int
	cursors []*tailCursor
	grown   chan struct{} // closed, and replaced, when something is added or live ends, if somebody has it
	waited  bool
}

// tailCursor is where a tail stands.
type tailCursor struct {
	log  *cachedLog
	next LSN // the LSN of the commit that the tail delivers next
}

// end is the LSN of the next commit to be appended.
func (l *cachedLog) end() LSN { return l.first + LSN(len(l.commits)) }

// add keeps a commit that was appended at lsn, for the tails that have not read it.
func (l *cachedLog) add(lsn LSN, data []byte) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.live || lsn != l.end() {
		l.clear(lsn)
	}
	l.live = true
	l.commits = append(l.commits, nil)
	if len(l.commits) > 1 || l.needed() == lsn {
		l.commits[len(l.commits)-1] = slices.Clone(data) // the caller uses its memory again
		l.count(len(data))
	}
	n := 0
	for over := max(l.bytes-l.cache.logBytesMax, int(l.cache.bytes.Load())-l.cache.bytesMax); over > 0 && n < len(l.commits); n++ {
		over -= len(l.commits[n])
	}
	l.drop(n)
	l.dropRead() // also where a tail lost just now what it stood before
	l.wake()
}

// stop says that this process may append no more, or that somebody else may have: what comes next is in the stream.
func (l *cachedLog) stop() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live {
		l.live = false
		l.clear(0)
		l.wake()
	}
}

// clear drops all commits; the next one to come is at lsn.
func (l *cachedLog) clear(lsn LSN) {
	l.drop(len(l.commits))
	l.first, l.commits = lsn, nil
}

// drop drops the first n commits.
func (l *cachedLog) drop(n int) {
	for i := range n {
		l.count(-len(l.commits[i]))
		l.commits[i] = nil // the array outlives the slice; the commit must not
	}
	l.commits = l.commits[n:]
	l.first += LSN(n)
}

func (l *cachedLog) count(bytes int) {
	l.bytes += bytes
	l.cache.bytes.Add(int64(bytes))
}

// needed is the LSN of the first commit that a tail needs. One that stands before the first that is here gets it from the
// stream.
func (l *cachedLog) needed() LSN {
	needed := l.end()
	for _, c := range l.cursors {
		if c.next >= l.first {
			needed = min(needed, c.next)
		}
	}
	return needed
}

// dropRead drops what no tail needs.
func (l *cachedLog) dropRead() { l.drop(int(l.needed() - l.first)) }

func (l *cachedLog) wake() {
	if l.waited {
		close(l.grown)
		l.grown, l.waited = make(chan struct{}), false
	}
}

// follow adds a tail whose next commit is at lsn. It closes the cursor.
func (l *cachedLog) follow(next LSN) *tailCursor {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &tailCursor{log: l, next: next}
	l.cursors = append(l.cursors, c)
	return c
}

// close removes the tail. It may be called twice.
func (c *tailCursor) close() {
	if c == nil || c.log == nil {
		return
	}
	l := c.log
	l.mu.Lock()
	l.cursors = slices.DeleteFunc(l.cursors, func(other *tailCursor) bool { return other == c })
	l.dropRead()
	l.mu.Unlock()
	c.log = nil
	l.release()
}

// move says that the tail's next commit is at lsn, wherever it has the one before from.
func (c *tailCursor) move(next LSN) {
	if c == nil || c.log == nil {
		return
	}
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	c.next = next
	c.log.dropRead()
}

// get returns the tail's next commit, nil if it is not here. It must not be changed.
func (c *tailCursor) get() []byte {
	if c == nil || c.log == nil {
		return nil
	}
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.next < l.first || c.next >= l.end() {
		return nil
	}
	return l.commits[c.next-l.first]
}

// await tells whether the tail's next commit is to be expected here, and returns what is closed when it is here, or when that
// may have changed. The channel is nil without a cache.
//
//	the tail                     the owner
//	get: 41 is not here
//	                             adds 41, for which nobody waits
//	await: closed already
func (c *tailCursor) await() (appended <-chan struct{}, follows bool) {
	if c == nil || c.log == nil {
		return nil, false
	}
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first <= c.next && c.next < l.end() {
		return closed, true
	}
	l.waited = true
	return l.grown, l.live && c.next == l.end()
}

// closed is a channel that is closed.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
