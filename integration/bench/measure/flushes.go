//go:build linux

package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// flushesField is the place of the flushes that were done in a disk's stat file, from 0: see the kernel's
// Documentation/block/stat.rst. Kernels before 5.5 have fewer fields.
const flushesField = 15

// FlushesOf returns how often the disk that dir is on was told to make durable what it has in its cache, since it was attached.
// It is false where nobody counts that: without a disk, as in memory, or where the disk has no cache that could be lost.
func FlushesOf(dir string) (flushes uint64, counted bool, err error) {
	var stat syscall.Stat_t
	if err := syscall.Stat(dir, &stat); err != nil {
		return 0, false, fmt.Errorf("find the disk of %s: %w", dir, err)
	}
	major, minor := stat.Dev>>8&0xfff, stat.Dev&0xff|stat.Dev>>12&^0xff
	device, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", major, minor))
	if err != nil {
		return 0, false, nil //nolint:nilerr // no disk: a file system in memory, or one over others
	}
	if _, err := os.Stat(filepath.Join(device, "partition")); err == nil {
		device = filepath.Dir(device) // flushes are the whole disk's
	}
	if cache, err := os.ReadFile(filepath.Join(device, "queue", "write_cache")); err != nil || strings.TrimSpace(string(cache)) != "write back" {
		return 0, false, nil //nolint:nilerr // as above
	}
	data, err := os.ReadFile(filepath.Join(device, "stat"))
	if err != nil {
		return 0, false, fmt.Errorf("read what the disk of %s did: %w", dir, err)
	}
	fields := strings.Fields(string(data))
	if len(fields) <= flushesField {
		return 0, false, nil
	}
	flushes, err = strconv.ParseUint(fields[flushesField], 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("read what the disk of %s did: %w", dir, err)
	}
	return flushes, true, nil
}
