//go:build linux

package measure

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine is what a figure depends on beside the code.
type Machine struct {
	CPU        string `json:"cpu"`
	Processors int    `json:"processors"`
	MemoryMiB  int64  `json:"memoryMiB"`
	Kernel     string `json:"kernel"`
	Go         string `json:"go"`
	FileSystem string `json:"fileSystem"`
	// SyncP50 and SyncP99 are how long it takes to append 4 KiB to a file and
	// have the disk confirm it (fdatasync), in milliseconds.
	SyncP50 float64 `json:"syncP50ms"`
	SyncP99 float64 `json:"syncP99ms"`
	// Modes name how each system was told to make writes durable.
	Modes []string `json:"modes"`
}

// Inspect looks at the machine, and at the disk that holds dir.
func Inspect(dir string) (Machine, error) {
	m := Machine{Processors: runtime.NumCPU(), Go: runtime.Version()}
	m.CPU = fieldOf("/proc/cpuinfo", "model name")
	var kib int64
	if _, err := fmt.Sscanf(fieldOf("/proc/meminfo", "MemTotal"), "%d", &kib); err == nil {
		m.MemoryMiB = kib >> 10
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:])
	}
	var err error
	if m.FileSystem, err = fileSystem(dir); err != nil {
		return m, err
	}
	syncs, err := syncs(dir, 500)
	if err != nil {
		return m, fmt.Errorf("measure the disk's sync in %s: %w", dir, err)
	}
	m.SyncP50, m.SyncP99 = Milliseconds(syncs.Quantile(0.5)), Milliseconds(syncs.Quantile(0.99))
	return m, nil
}

// fieldOf returns the first value of a "name : value" file of the kernel.
func fieldOf(path, field string) string {
	f, err := os.Open(path)
	if err != nil {
		return "unknown"
	}
	defer func() { _ = f.Close() }() // only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == field {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// fileSystem names the file system of dir. Memory is refused: it makes every
// sync free, and with it every comparison void.
func fileSystem(dir string) (string, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return "", fmt.Errorf("look at the file system of %s: %w", dir, err)
	}
	switch uint32(s.Type) {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return "", fmt.Errorf("%s lies in memory, where a sync costs nothing: name a directory on a disk with -dir", dir)
	case unix.EXT4_SUPER_MAGIC:
		return "ext4", nil
	case unix.XFS_SUPER_MAGIC:
		return "xfs", nil
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs", nil
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs", nil
	}
	return fmt.Sprintf("type %#x", uint32(s.Type)), nil
}

// syncs appends n times 4 KiB to a file in dir and syncs each.
func syncs(dir string, n int) (Latencies, error) {
	f, err := os.Create(filepath.Join(dir, "sync-time"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = errors.Join(f.Close(), os.Remove(f.Name())) }() // nobody needs it
	block := make([]byte, 4096)
	times := make(Latencies, 0, n)
	for range n {
		start := time.Now()
		if _, err := f.Write(block); err != nil {
			return nil, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return nil, err
		}
		times = append(times, time.Since(start))
	}
	return times, nil
}

// Markdown writes the machine as a list.
func (m *Machine) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "- CPU: %s, %d processors; %s MiB of memory; %s; %s\n",
		m.CPU, m.Processors, Number(float64(m.MemoryMiB)), m.Kernel, m.Go)
	fmt.Fprintf(&b, "- disk: %s; appending 4 KiB and syncing takes %s ms (p99 %s ms)\n", m.FileSystem, Number(m.SyncP50), Number(m.SyncP99))
	for _, mode := range m.Modes {
		fmt.Fprintf(&b, "- %s\n", mode)
	}
	b.WriteString("- figures are medians [lowest..highest] of the rounds; ratios are taken round by round\n")
	_, err := io.WriteString(w, b.String())
	return err
}
