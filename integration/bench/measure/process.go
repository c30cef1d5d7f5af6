//go:build linux

package measure

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Memory is what a process occupies, from the kernel's sums over its mappings.
type Memory struct {
	// RSS is all that is resident, in MiB.
	RSS float64
	// Anonymous is the part that is the process's own: heap, stacks, tables in
	// memory. It is what the kernel cannot take back.
	Anonymous float64
	// Mapped is the rest: pages of files, the binary's and the engine's tables,
	// which the kernel drops when it needs the room.
	Mapped float64
}

// MemoryOf reads the memory of a process.
func MemoryOf(pid int) (Memory, error) {
	kib, err := memoryFile(pid, "smaps_rollup")
	m := Memory{RSS: kib["Rss:"] / 1024, Anonymous: kib["Anonymous:"] / 1024}
	m.Mapped = m.RSS - m.Anonymous
	return m, err
}

// PeakOf returns the most that has ever been resident of a process, mapped files included, in MiB.
func PeakOf(pid int) (float64, error) {
	kib, err := memoryFile(pid, "status")
	return kib["VmHWM:"] / 1024, err
}

// memoryFile reads the sizes, in KiB, that a file of the kernel tells of a process.
func memoryFile(pid int, name string) (kib map[string]float64, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		return nil, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	kib = map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 3 && fields[2] == "kB" {
			kib[fields[0]], _ = strconv.ParseFloat(fields[1], 64)
		}
	}
	return kib, nil
}

// tick is the unit of the kernel's processor times.
const tick = 10 * time.Millisecond

// Watch measures how much of the machine was used by others while it was open.
type Watch struct {
	began time.Time
	busy  time.Duration
	ours  time.Duration
	roots []int
}

// StartWatch begins to watch. Others are all but this process, its children and
// the trees of processes under roots.
func StartWatch(roots ...int) *Watch {
	w := &Watch{began: time.Now(), roots: roots}
	w.busy, w.ours = busy(), ours(roots)
	return w
}

// Others returns the processor time that others used since StartWatch, in per
// cent of all processors.
func (w *Watch) Others() float64 {
	used := (busy() - w.busy) - (ours(w.roots) - w.ours)
	all := time.Since(w.began) * time.Duration(runtime.NumCPU())
	return 100 * max(float64(used)/float64(all), 0)
}

// Ours returns the processor time that this process, its children and the trees
// under roots have used since StartWatch.
func (w *Watch) Ours() time.Duration { return ours(w.roots) - w.ours }

// busy is the time that all processors together were not idle.
func busy() time.Duration {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(data), "\n")
	var sum time.Duration
	for i, field := range strings.Fields(line) {
		const idle, wait, steal = 4, 5, 8
		if i == 0 || i == idle || i == wait || i > steal {
			continue
		}
		n, _ := strconv.ParseInt(field, 10, 64)
		sum += time.Duration(n) * tick
	}
	return sum
}

// ours is the processor time of this process and of the trees under roots, with
// what their ended children used.
func ours(roots []int) time.Duration {
	parents, times := map[int]int{}, map[int]time.Duration{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		parent, used, ok := parseStat(string(data))
		if !ok {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parents[pid], times[pid] = parent, used
	}
	mine := map[int]bool{os.Getpid(): true}
	for _, pid := range roots {
		mine[pid] = true
	}
	var sum time.Duration
	for pid, used := range times {
		for at := pid; at > 1; at = parents[at] {
			if mine[at] {
				sum += used
				break
			}
		}
	}
	return sum
}

// parseStat reads the parent and the processor time, ended children's included, from a /proc/PID/stat.
func parseStat(stat string) (parent int, used time.Duration, ok bool) {
	// The name stands in parentheses and may hold anything.
	_, rest, ok := strings.Cut(stat, ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 15 {
		return 0, 0, false
	}
	parent, _ = strconv.Atoi(fields[1])
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		n, _ := strconv.ParseInt(field, 10, 64)
		used += time.Duration(n) * tick
	}
	return parent, used, true
}

// CPUOf returns the processor time that a process and its ended children have used; 0 if it is gone.
func CPUOf(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, used, _ := parseStat(string(data))
	return used
}
