package owner

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/featurelevel"
)

// versions returns the format version of each commit of the log.
func (w *world) versions() []byte {
	w.t.Helper()
	stream, err := w.js.Stream(w.t.Context(), w.id.Stream())
	if err != nil {
		w.t.Fatal(err)
	}
	var all []byte
	for lsn := uint64(1); lsn <= stream.CachedInfo().State.LastSeq; lsn++ {
		m, err := stream.GetMsg(w.t.Context(), lsn)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, m.Data[0])
	}
	return all
}

// large writes an item of about 3 KB, which is easy to compress.
func (n *node) large(id int) {
	n.w.t.Helper()
	body := fmt.Sprintf(`{"id":"%d","a":"x","text":%q}`, id, strings.Repeat("a customer's whole item; ", 120))
	if _, err := n.one(pk(n.w.t, "x"), create(body)); err != nil {
		n.w.t.Fatal(err)
	}
}

// Commits are compressed once the data's level says that all releases read them, without a new
// term. A log of both kinds is replayed to the state that its owner has.
func TestI3_ALogOfPlainAndCompressedCommits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byA)
	dir := t.TempDir()
	n := w.start(dir)
	for i, level := range []int{0, 1, featurelevel.Trims, featurelevel.Compresses} {
		n.cfg.level.Set(level)
		n.large(i)
	}
	if _, err := n.one(pk(t, "x"), create(`{"id":"small","a":"x"}`)); err != nil {
		t.Fatal(err)
	}
	n.large(100)
	// Genesis and takeover are the first two.
	if got, want := w.versions(), []byte{1, 1, 1, 1, 1, 3, 1, 3}; !bytes.Equal(got, want) {
		t.Errorf("versions %v, want %v", got, want)
	}
	want, err := n.engine.Digest()
	if err != nil {
		t.Fatal(err)
	}
	lsn := n.state.Load().lsn
	if got := w.openAt(t.TempDir(), lsn); got != want {
		t.Errorf("digest of a rebuilt engine is %x, of the owner's %x", got, want)
	}
	// The next owner begins with nothing but the log, and goes on.
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	next := w.start(t.TempDir())
	next.cfg.level.Set(featurelevel.Newest)
	if !strings.Contains(next.read(pk(t, "x"), "100"), "whole item") {
		t.Error("an item of a compressed commit is not there")
	}
	next.large(101)
	if got := w.versions(); got[len(got)-1] != 3 {
		t.Errorf("versions %v", got)
	}
}

func TestCompressed_NotWhereItIsTurnedOff(t *testing.T) {
	t.Parallel()
	cfg, err := Config{CompressBytesMin: -1}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	cfg.level.Set(featurelevel.Newest)
	c := &feed.Commit{Transactions: []feed.Transaction{{Control: &feed.Control{Kind: "x", Data: make([]byte, 1<<20)}}}}
	if data := cfg.appendEncoded(nil, c); data[0] != 1 {
		t.Errorf("version %d", data[0])
	}
	cfg.CompressBytesMin = 1
	if data := cfg.appendEncoded(nil, c); data[0] != 3 {
		t.Errorf("version %d", data[0])
	}
}
