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
	// cachedBytes bounds them in all logs together. Where there is more, the log that is appended to keeps nothing, and where there is
	// half as much, tails at the end of a log stay with their consumers.
	cachedBytes = 32 << 20
)

// TailCache keeps the commits that this process has appended last, for the tails of the same process: those that have
// not read them yet. See the package's documentation, Reading what this process appends. The logs of a process
// that are opened with one (LogConfig.Cache) share it. It may be used concurrently.
type TailCache struct {
	logBytesMax, bytesMax int // cachedLogBytes and cachedBytes, which tests make smaller
	bytes                 atomic.Int64
	taken                 atomic.Int64 // commits that tails had from here

	mu   sync.Mutex
	logs map[LogID]*cachedLog
}

// NewTailCache makes an empty TailCache.
func NewTailCache() *TailCache {
	return &TailCache{logBytesMax: cachedLogBytes, bytesMax: cachedBytes, logs: map[LogID]*cachedLog{}}
}

// hasRoom tells whether a tail may change over to the cache. Well below the bound: or it would go back to a consumer with
// the next commit that finds no room, and over and over.
func (c *TailCache) hasRoom() bool { return c.bytes.Load() <= int64(c.bytesMax/2) }

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
	// owner is who appended last, as far as this process knows, and goes on: what comes next is expected here. It is nil
	// where nobody does.
	owner   *Log
	first   LSN // of commits[0], or of the next to come
	commits [][]byte
	bytes   int
	cursors []*tailCursor
	grown   chan struct{} // closed, and replaced, when something is added or the owner stops, if somebody has it
	waited  bool
}

// tailCursor is where a tail stands.
type tailCursor struct {
	log  *cachedLog
	next LSN // the LSN of the commit that the tail delivers next
}

// endLocked is the LSN of the next commit to be appended.
func (l *cachedLog) endLocked() LSN { return l.first + LSN(len(l.commits)) }

// add keeps a commit that an owner has appended at lsn, for the tails that have not read it.
func (l *cachedLog) add(owner *Log, lsn LSN, data []byte) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner != nil && lsn < l.endLocked() {
		return // from one who was succeeded in this process before he came here
	}
	if l.owner == nil || lsn != l.endLocked() {
		l.clearLocked(lsn)
	}
	l.owner = owner
	waits := func(c *tailCursor) bool { return c.next == lsn }
	if len(l.commits) == 0 && (!l.cache.hasRoom() || !slices.ContainsFunc(l.cursors, waits)) {
		l.first = lsn + 1
		l.wakeLocked()
		return
	}
	l.commits = append(l.commits, slices.Clone(data)) // the caller uses its memory again
	l.countLocked(len(data))
	n := 0
	for over := l.bytes - l.cache.logBytesMax; over > 0 && n < len(l.commits)-1; n++ { // not the last one, however large it is
		over -= len(l.commits[n])
	}
	if l.cache.bytes.Load() > int64(l.cache.bytesMax) {
		n = len(l.commits)
	}
	l.dropLocked(n)
	l.dropReadLocked() // a tail that has lost what it stood before needs nothing any more
	l.wakeLocked()
}

// stop says that an owner appends no more, or that somebody else may have: what comes next is in the stream, unless another
// one in this process has appended since.
func (l *cachedLog) stop(owner *Log) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner == owner {
		l.owner = nil
		l.clearLocked(0)
		l.wakeLocked()
	}
}

// clearLocked drops all commits; the next one to come is at lsn.
func (l *cachedLog) clearLocked(lsn LSN) {
	l.dropLocked(len(l.commits))
	l.first, l.commits = lsn, nil
}

// dropLocked drops the first n commits.
func (l *cachedLog) dropLocked(n int) {
	for i := range n {
		l.countLocked(-len(l.commits[i]))
		l.commits[i] = nil // the array outlives the slice; the commit must not
	}
	l.commits = l.commits[n:]
	l.first += LSN(n)
}

func (l *cachedLog) countLocked(bytes int) {
	l.bytes += bytes
	l.cache.bytes.Add(int64(bytes))
}

// neededLocked is the LSN of the first commit that a tail needs. One that stands before the first that is here gets it from the
// stream.
func (l *cachedLog) neededLocked() LSN {
	needed := l.endLocked()
	for _, c := range l.cursors {
		if c.next >= l.first {
			needed = min(needed, c.next)
		}
	}
	return needed
}

// dropReadLocked drops what no tail needs.
func (l *cachedLog) dropReadLocked() { l.dropLocked(int(l.neededLocked() - l.first)) }

func (l *cachedLog) wakeLocked() {
	if l.waited {
		close(l.grown)
		l.grown, l.waited = make(chan struct{}), false
	}
}

// follow adds a tail whose next commit is at lsn. The tail closes the cursor, which releases the log.
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
	l.dropReadLocked()
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
	c.log.dropReadLocked()
}

// get returns the tail's next commit, nil if it is not here. It must not be changed.
func (c *tailCursor) get() []byte {
	if c == nil || c.log == nil {
		return nil
	}
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.next < l.first || c.next >= l.endLocked() {
		return nil
	}
	l.cache.taken.Add(1)
	return l.commits[c.next-l.first]
}

// await tells whether the tail's next commit is to be expected here, and returns what is closed when it is here, or when that
// may have changed. The channel is nil without a cache, and for a tail that is far behind.
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
	switch {
	case c.next < l.first:
		return nil, false // it is far behind
	case c.next < l.endLocked():
		return closed, true
	}
	l.waited = true
	return l.grown, l.owner != nil && c.next == l.endLocked() && l.cache.hasRoom()
}

// closed is a channel that is closed.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
