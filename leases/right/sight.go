package right

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/leases/bucket"
)

// Node is a node as its key tells.
type Node struct {
	Node        string `json:"node"`
	Incarnation string `json:"incarnation,omitempty"`
	Host        string `json:"host,omitempty"`
	State       State  `json:"state,omitempty"`
	// DeposedBy is the node/incarnation that has deposed this incarnation, for the reason DeposedWhy; empty: nobody has.
	DeposedBy  string `json:"deposedBy,omitempty"`
	DeposedWhy string `json:"deposedWhy,omitempty"`
	// Still is Sight.Still.
	Still time.Duration `json:"stillNs"`
	// Level is the feature level that the node can read.
	Level int `json:"level,omitempty"`
	// Trust is how long its right holds after the sending of a renewal.
	Trust time.Duration `json:"trustNs,omitempty"`
	// Unreadable says why its key cannot be read; what only the key tells is missing then.
	Unreadable string `json:"unreadable,omitempty"`
}

// Sight is what this process sees of the keys of its group, by one watch. Its methods are safe for concurrent use.
//
// It is the ground of suspicions, on which no answer rests. It may be late, and it says nothing of the time in which it
// could not see: this process's own key is written several times a second, and as long as the watch shows each of
// these writes it shows all that was written before.
//
//	own renewal, sent at 10.00 s, shown at 10.01 s     all other keys are known as of 10.00 s
//	own renewal, sent at 10.15 s, shown at 10.16 s     who did not change was still for these 150 ms
//	nothing is shown for two intervals                 nobody is known to be still: it begins at 0 again
type Sight struct {
	own    *Right
	store  bucket.Store
	cfg    *Config
	seen   chan struct{} // closed when all keys were seen once
	moved  chan struct{} // holds a token: what Changed tells of
	seenBy sync.Once     // closes seen

	mu    sync.Mutex // guards what follows
	nodes map[string]*sighted
	sees  bool          // a watch has shown all keys, and goes on
	upTo  time.Duration // as of when all keys are known, by Config.Now
	most  time.Duration // the longest trust that any key has stated
}

// sighted is the key of one node.
type sighted struct {
	*found
	since time.Duration // as of when it stands still
}

// NewSight returns the sight of the group of own, by whose renewals it knows that it sees. It sees nothing before Run, nor
// when own has ended.
func NewSight(own *Right) *Sight {
	return &Sight{
		own: own, store: own.key.store, cfg: &own.cfg, nodes: map[string]*sighted{},
		seen: make(chan struct{}), moved: make(chan struct{}, 1),
	}
}

// Changed returns a channel that holds a token when a key was seen to be another incarnation's, deposed, or in another
// state. It is for one reader.
func (s *Sight) Changed() <-chan struct{} { return s.moved }

func (s *Sight) tellChanged() {
	select {
	case s.moved <- struct{}{}:
	default:
	}
}

// blindness is how long nothing may be shown before this counts as time in which it could not see.
func (s *Sight) blindness() time.Duration { return 2 * s.cfg.RenewInterval }

// Still returns how long the node of a key has certainly not written it, up to the last time when this process is known
// to have seen everything. It is 0 for a node without a key, and while this process does not see, or its own renewals are
// not stored: when nobody's are, silence means nothing.
func (s *Sight) Still(node string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.still(s.nodes[node], s.cfg.Now())
}

// still is called with mu held.
func (s *Sight) still(n *sighted, now time.Duration) time.Duration {
	if n == nil || !s.sees || now-s.upTo > s.blindness() {
		return 0
	}
	return max(s.upTo-n.since, 0)
}

// Nodes returns all nodes that have a key, this one among them, ordered by name.
func (s *Sight) Nodes() []Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	nodes := make([]Node, 0, len(s.nodes))
	for name, seen := range s.nodes {
		n := Node{Node: name, Still: s.still(seen, now)}
		if rec := seen.rec; rec != nil {
			n.Incarnation, n.Host, n.State, n.Level, n.Trust = rec.Incarnation, rec.Host, rec.State, rec.Level, rec.trust()
			if rec.Deposed != nil {
				n.DeposedBy, n.DeposedWhy = rec.Deposed.By, rec.Deposed.Why
			}
		} else {
			n.Unreadable = seen.err.Error()
		}
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Node, b.Node) })
	return nodes
}

// Wait returns how long a successor waits before it serves: Config.Wait, or seven sixths of the longest trust of any node
// that was seen, if that is longer. Not that of the deposed node alone, because who takes over from one that died in its own
// wait waits for the one before too, whom it does not know:
//
//	a   trusts its right for 2 s
//	b   deposes a, takes over from it, and dies
//	c   deposes b, takes over from it, and waits: for a
//
// It is asked for when the wait begins.
func (s *Sight) Wait() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.cfg.Wait, waitFor(s.most))
}

func (s *Sight) noteTrust(rec *record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = max(s.most, rec.trust())
}

// guess returns the key of a node as it was seen last; nil if it should be read.
func (s *Sight) guess(node string) *found {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[node]; n != nil && n.rec != nil {
		return n.found
	}
	return nil
}

// Run watches the keys until ctx ends, and returns nil then.
func (s *Sight) Run(ctx context.Context) error {
	pause := s.cfg.retry()
	patience := s.cfg.Trust
	for ctx.Err() == nil {
		if s.watchOnce(ctx, patience) {
			pause.reset()
			patience = s.cfg.Trust
		} else {
			patience = min(2*patience, patienceMax)
		}
		s.goBlind()
		pause.wait(ctx)
	}
	return nil
}

// patienceMax bounds how long the opening of a watch is waited for.
const patienceMax = 10 * time.Second

// watchOnce opens one watch and looks by it until it ends, or is silent. It reports whether it has shown all keys. patience
// bounds that, because a server that falls silent loses the request; it grows with each failure, since the bucket may merely
// be slow.
func (s *Sight) watchOnce(ctx context.Context, patience time.Duration) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opened := time.AfterFunc(patience, cancel)
	defer opened.Stop()
	updates, err := s.store.Watch(ctx, keysOf(s.cfg.Group))
	if err != nil {
		s.cfg.Log.DebugContext(ctx, "watch of the nodes' keys not opened", "error", err)
		return false
	}
	ticker := time.NewTicker(s.cfg.RenewInterval)
	defer ticker.Stop()
	// The first entries go to a map of their own, which takes the place of the old one when it is whole: so a key that
	// was deleted while there was no watch does not stay.
	first := map[string]*sighted{}
	shown := false
	for {
		select {
		case u, ok := <-updates:
			switch {
			case !ok:
				return shown
			case u.Ready:
				opened.Stop()
				shown = true
				s.begin(first)
			case shown:
				s.apply(u.Entry)
			default:
				first[nodeOf(u.Key)] = &sighted{found: read(u.Entry)}
			}
		case <-ticker.C:
			if shown && s.isSilent() {
				s.cfg.Log.InfoContext(ctx, "watch of the nodes' keys was silent; made anew")
				return true
			}
		case <-ctx.Done():
			return shown
		}
	}
}

// begin makes first what is seen. All stands still as of now: when the keys were written is not known.
func (s *Sight) begin(first map[string]*sighted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(first, func(_ string, n *sighted) bool { return n.missing() })
	s.nodes, s.sees, s.upTo = first, true, s.cfg.Now()
	for node, n := range first {
		n.since = s.upTo
		s.note(node, n.found)
	}
	s.seenBy.Do(func() { close(s.seen) })
	s.tellChanged()
}

// goBlind notes that there is no watch.
func (s *Sight) goBlind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sees = false
}

// isSilent reports whether writes of this process are stored, and the watch does not show them: a consumer that falls silent
// reports no error.
func (s *Sight) isSilent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own.lastStored()-s.upTo > s.blindness()
}

// apply applies a change of a key.
func (s *Sight) apply(e bucket.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	node := nodeOf(e.Key)
	f := read(e)
	old := s.nodes[node]
	same := old != nil && old.sameAs(f)
	switch {
	case old != nil && e.Revision <= old.Revision:
		return
	case f.missing():
		delete(s.nodes, node)
		s.tellChanged()
		return
	case old != nil && !old.movedTo(f):
		old.found = f
	default:
		s.nodes[node] = &sighted{found: f, since: s.cfg.Now()}
	}
	s.note(node, f)
	if !same {
		s.tellChanged()
	}
}

// sameAs reports whether two states of a key differ in nothing but renewals.
func (n *sighted) sameAs(f *found) bool {
	a, b := n.rec, f.rec
	return a != nil && b != nil && a.Incarnation == b.Incarnation && (a.Deposed == nil) == (b.Deposed == nil) && a.State == b.State
}

// movedTo reports whether the node itself has written its key. That it was deposed, or stored again as it was, is no sign
// of life.
func (n *sighted) movedTo(f *found) bool {
	return n.rec == nil || f.rec == nil || n.rec.Incarnation != f.rec.Incarnation || n.rec.Write != f.rec.Write
}

// note takes from a key what concerns all: its trust, and if it is this process's own, as of when everything was
// seen. It is called with mu held.
func (s *Sight) note(node string, f *found) {
	if f.rec == nil {
		return
	}
	s.most = max(s.most, f.rec.trust())
	if node != s.cfg.Node {
		return
	}
	if f.rec.Incarnation != s.own.incarnation || f.rec.Deposed != nil {
		s.own.nudge() // its write finds out whether it was deposed
		return
	}
	if t, ok := s.own.begun(f.rec.Write); ok {
		s.see(t.start)
		s.own.shown(f, t)
	}
}

// see notes that all that was written before a moment has been seen. It is called with mu held.
func (s *Sight) see(upTo time.Duration) {
	if upTo <= s.upTo {
		return
	}
	if upTo-s.upTo > s.blindness() {
		for _, n := range s.nodes {
			n.since = max(n.since, upTo)
		}
	}
	s.upTo = upTo
}
