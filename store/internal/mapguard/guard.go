//go:build linux && (amd64 || arm64)

package mapguard

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Supported says whether Install guards on this system.
const Supported = true

const (
	// slots is how many Records may be open in one process at a time.
	slots = 64
	// replaced is how many pages that were replaced last the handler remembers, for threads
	// that met the same fault at the same time.
	replaced = 64
	// retriesMax bounds how often the handler lets instructions try again because another
	// thread has just replaced their page, from one page that is replaced to the next. Without
	// a bound a fault that is none of ours, at an address where a page was replaced before,
	// would be tried for ever; with one for the process, such a fault would leave none.
	retriesMax = 1 << 20
)

// shared is what the handler works with. The assembly knows the fields by name; those
// that change are changed under Lock, and only by assembly, which is never preempted: a
// goroutine that was stopped while it holds the lock would stop every thread with a fault.
// Fields with a capital are those that no Go code names.
type shared struct {
	next       uintptr // the runtime's handler
	mask       uintptr // cuts an address to that of its page
	pageSize   uintptr
	retriesMax uintptr
	yes        uintptr // a '1', as it stands in a Record

	Lock    uintptr
	kinds   [2]uint64 // of faults: what read, what wrote
	faults  uint64    // all; counted last
	Retries uint64
	Pages   [replaced]uintptr // a ring
	records [slots]slot
}

// slot is the handler's side of a Record.
type slot struct {
	fd   uint32 // plus one; 0 is none
	Told uint32 // which kinds of faults its file tells of
}

var guard shared

// handlerAddress returns where the handler is.
func handlerAddress() uintptr

// setSlot puts a file descriptor plus one into a slot, under the handler's lock. When it has
// returned, the one before is not used any more.
func setSlot(s *slot, fd uint32)

// action is the kernel's struct sigaction.
type action struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// Install guards the shared mappings of the process, from now on and for its whole life. The
// error says that the process is not guarded, and why. Further calls return what the first did.
func Install() error { return install() }

var install = sync.OnceValue(func() error {
	size := uintptr(os.Getpagesize())
	if err := canAsk(size); err != nil {
		return err
	}
	var a action
	if err := sigaction(nil, &a); err != nil {
		return err
	}
	const ignored, sigInfo = 1, 4
	if a.handler <= ignored || a.flags&sigInfo == 0 {
		return errors.New("mapguard: the Go runtime does not handle SIGBUS in this process")
	}
	guard.next, guard.mask, guard.pageSize, guard.retriesMax, guard.yes = a.handler, ^(size - 1), size, retriesMax, '1'
	a.handler = handlerAddress()
	return sigaction(&a, nil)
})

// canAsk tries whether the kernel tells shared mappings from private ones.
func canAsk(size uintptr) error {
	for _, kind := range []int{unix.MAP_SHARED, unix.MAP_PRIVATE} {
		page, err := unix.MmapPtr(-1, 0, nil, size, unix.PROT_READ, kind|unix.MAP_ANON)
		if err != nil {
			return fmt.Errorf("mapguard: mmap: %w", err)
		}
		again, err := unix.MremapPtr(page, 0, nil, size, unix.MREMAP_MAYMOVE)
		if err == nil {
			_ = unix.MunmapPtr(again, size) // a page of address space at most
		}
		_ = unix.MunmapPtr(page, size)
		if (err == nil) != (kind == unix.MAP_SHARED) {
			return fmt.Errorf("mapguard: the kernel does not tell shared mappings from private ones: mremap: %w", err)
		}
	}
	return nil
}

func sigaction(set, old *action) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGBUS),
		uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), unsafe.Sizeof(set.mask), 0, 0)
	if errno != 0 {
		return fmt.Errorf("mapguard: rt_sigaction: %w", errno)
	}
	return nil
}

// Count is how many pages were replaced in the process until now. It only grows, and costs an
// atomic load.
func Count() uint64 { return atomic.LoadUint64(&guard.faults) }

// Met returns the faults that the process has met until now: all that Count had counted before.
func Met() Faults {
	return Faults{Reads: atomic.LoadUint64(&guard.kinds[recordReads]), Writes: atomic.LoadUint64(&guard.kinds[recordWrites])}
}

// watch lets the handler write to a file from now on; false if there is no place for it.
func watch(fd int) (*slot, bool) {
	watching.Lock()
	defer watching.Unlock()
	for i := range guard.records {
		if s := &guard.records[i]; s.fd == 0 {
			setSlot(s, uint32(fd)+1)
			return s, true
		}
	}
	return nil, false
}

// unwatch ends watch. The file descriptor may be closed when it has returned.
func unwatch(s *slot) {
	watching.Lock()
	defer watching.Unlock()
	setSlot(s, 0)
}

// rewatch lets the handler tell again what it told already.
func rewatch(s *slot) { setSlot(s, s.fd) }

// watching is held to look for a free slot.
var watching sync.Mutex
