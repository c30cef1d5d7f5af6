package ports

import "testing"

// TestFree_GivesEachPortOnce asks for more than a block has.
func TestFree_GivesEachPortOnce(t *testing.T) {
	had := map[int]bool{}
	for range 3 * blockPorts {
		port := Free(t)
		if had[port] || port < first || port >= first+many {
			t.Fatalf("port %d", port)
		}
		had[port] = true
	}
	if len(blocks) < 3 { // each is kept, so that no other process takes it
		t.Errorf("%d blocks", len(blocks))
	}
}
