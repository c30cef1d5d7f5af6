// Package mapguard keeps a process alive when a page of a file that is mapped into its
// memory cannot be had: the disk is full when the page is written for the first time, or
// cannot read it. Linux then sends SIGBUS to the thread, and the Go runtime ends the
// process, because that signal comes in a goroutine of whoever mapped the file.
//
// # Model
//
// Install puts a handler of SIGBUS before the runtime's:
//
//	fault in a shared mapping ──▶ told on disk ──▶ counted ──▶ a page of memory in
//	     (BUS_ADRERR)             (Records)        (Faults)    its place ──▶ goes on
//	any other ──▶ the runtime's handler, as if this one were not there
//
// The page of memory is private to the process and full of zeros. What is written to it is
// read back by this process and never reaches the file; what the file held there is not read
// any more. So a file that had a fault is not to be believed, by this process or the next
// one: this package keeps the process alive to say so, and does no more.
//
// # What it promises
//
// A fault is written to every open Record, and counted, before the instruction that met it
// goes on. So whoever compares Faults before and after he has read or synced knows whether
// what he got rests on such a page; msync and fsync do not tell, they pass over it. A process
// that is killed after the fault leaves the Record that says it, and as Records are written
// through to the disk, so does a machine that loses power.
//
// Only shared mappings of files are guarded. The heap, stacks, the executable and libraries
// are private mappings: a fault there ends the process as before. The kernel is asked which it
// is: mremap duplicates shared mappings only. Memory that the hardware lost (BUS_MCEERR) is not
// guarded either, nor is a system call that is passed such a page: it fails with EFAULT.
//
// # The chain
//
// The handler is installed by rt_sigaction with the flags, the mask and the restorer of the
// runtime's own, and only the address replaced; so it runs on the signal stack with all signals
// blocked, and what it passes on finds registers and stack as the kernel made them. It touches no
// stack, calls no Go, and needs no g. The runtime sets its handlers when the process starts; it
// touches that of SIGBUS again when it ends the process, and in a child before exec, to the
// default. A program that calls signal.Ignore or signal.Reset for SIGBUS undoes Install;
// signal.Notify does not. It is the same with cgo and the race detector: the handler that is
// found is the one that is called.
//
// On linux/amd64 and linux/arm64. Elsewhere Install does nothing and nothing is counted.
package mapguard
