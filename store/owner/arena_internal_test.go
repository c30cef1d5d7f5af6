package owner

import "testing"

// TestArena_PiecesGrowWithWhatIsTaken takes small things: the first piece is small, for a
// decision of one item, and later ones double, for one of thousands. What is large gets
// room of its own.
func TestArena_PiecesGrowWithWhatIsTaken(t *testing.T) {
	var a arena
	want := arenaLeast
	for range 10 {
		a.keep(make([]byte, 100))
		if cap(a.bytes) != want {
			t.Fatalf("a piece of %d bytes, want %d", cap(a.bytes), want)
		}
		for cap(a.bytes)-len(a.bytes) >= 100 {
			a.keep(make([]byte, 100))
		}
		want = min(2*want, arenaBytes)
	}
	if got := a.room(arenaBytes + 1); cap(got) > arenaBytes {
		t.Error("a large thing got a piece that is kept")
	}
	var b arena
	if b.keep(make([]byte, arenaLeast+1)); cap(b.bytes) != arenaLeast+1 {
		t.Errorf("the first piece has %d bytes, and took %d", cap(b.bytes), arenaLeast+1)
	}
	if cap(b.undoRoom()) != splicesLeast {
		t.Errorf("room for %d splices, want %d", cap(b.splices), splicesLeast)
	}
}
