package memory_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/cmd/millrace/internal/memory"
)

// TestKeeper_TrimsWhatIsMapped maps a file that is larger than the part of mapped files
// and reads all of it: the keeper has it trimmed, and leaves it alone afterwards.
func TestKeeper_TrimsWhatIsMapped(t *testing.T) {
	size := int(memory.Mapped(0)) + 64<<20
	name := filepath.Join(t.TempDir(), "mapped")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	sum := byte(0)
	for i := 0; i < size; i += os.Getpagesize() {
		sum += data[i]
	}
	if sum != 0 {
		t.Fatal("a hole is not empty")
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	k := memory.Keep(0, slog.New(slog.DiscardHandler))
	trims := 0
	k.Run(ctx, func() error { // ends when it is asked to, below
		trims++
		stop()
		return unix.Madvise(data, unix.MADV_DONTNEED)
	})
	if trims != 1 {
		t.Errorf("%d trims, want one", trims)
	}
	if err := unix.Munmap(data); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
