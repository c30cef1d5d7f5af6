package script

import "syscall"

// limitProcess has the system refuse memory beyond what a script may have, with room for the process itself, and makes a
// process that crashes leave no core, which would hold what scripts read.
func limitProcess(memoryBytes int64) {
	room := uint64(excessOf*2*memoryBytes + 512<<20)
	// What is refused here is refused nowhere else, and the other bounds hold.
	_ = syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: room, Max: room})
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
}
