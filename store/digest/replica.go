package digest

import (
	"sync"

	"github.com/millrace/millrace/feed"
)

// Replica compares the digests of one replica with the owner's, one after the other. The zero value awaits none. It may be
// used by several goroutines.
type Replica struct {
	mu     sync.Mutex
	of     feed.LSN // that is computed, or was last: 0 is none
	own    *Digest  // nil: not known yet
	owners *Digest  // likewise
}

// Begin says that the replica's digest as of an LSN is computed. What is not compared until then is forgotten: who computes for
// longer than until the next order passes that over, and must not forget what the owner has told of this one.
func (r *Replica) Begin(of feed.LSN) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of, r.own, r.owners = of, nil, nil
}

// Verdict says how a replica compares with its owner as of one commit.
type Verdict struct {
	LSN feed.LSN
	// Differ names what differs, for people; "" if nothing does.
	Differ string
}

// Own takes the replica's own digest. The verdict is nil if the owner's is not known.
func (r *Replica) Own(d Digest) *Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.LSN != r.of {
		return nil
	}
	r.own = &d
	return r.judgeLocked()
}

// Told takes a digest of the owner. The verdict is nil if it is not the one that is awaited, or the replica's own is not known.
func (r *Replica) Told(d Digest) *Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.LSN != r.of {
		return nil
	}
	r.owners = &d
	return r.judgeLocked()
}

// judgeLocked compares, once.
func (r *Replica) judgeLocked() *Verdict {
	if r.own == nil || r.owners == nil {
		return nil
	}
	v := &Verdict{r.of, r.own.Differ(*r.owners)}
	r.of, r.own, r.owners = 0, nil, nil
	return v
}
