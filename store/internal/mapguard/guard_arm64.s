//go:build linux

#include "go_asm.h"
#include "textflag.h"

#define SYS_pwrite64 68
#define SYS_sched_yield 124
#define SYS_munmap 215
#define SYS_mremap 216
#define SYS_mmap 222

#define SIGBUS 7
#define BUS_ADRERR 2
#define siginfo_code 8
#define siginfo_addr 16
#define ucontext_records 464 // uc_mcontext.__reserved: records of a magic number, a size and data
#define ucontext_recordsEnd (464+4096)
#define ESR_MAGIC 0x45535201 // the processor's code of the fault
#define ESR_WnR 6

// func handlerAddress() uintptr
TEXT ·handlerAddress(SB), NOSPLIT, $0-8
	MOVD	$handler<>(SB), R0
	MOVD	R0, ret+0(FP)
	RET

// func setSlot(s *slot, fd uint32)
TEXT ·setSlot(SB), NOSPLIT, $0-12
	MOVD	s+0(FP), R9
	MOVWU	fd+8(FP), R10
	MOVD	$·guard+shared_Lock(SB), R4
	MOVD	$1, R6
lock:
	LDAXR	(R4), R5
	CBNZ	R5, busy
	STLXR	R6, (R4), R7
	CBNZW	R7, lock
	MOVW	R10, slot_fd(R9)
	MOVW	ZR, slot_Told(R9)
	STLR	ZR, (R4)
	RET
busy:
	MOVD	$SYS_sched_yield, R8
	SVC
	B	lock

// handler is called by the kernel, on the signal stack: R0 signal, R1 siginfo, R2 ucontext, R30
// where to return. The kernel restores all registers when it returns; what it passes on needs
// those, g (R28) and RSP. System calls change R0.
//
// R9 the guard, R10 siginfo, R11 ucontext, R12 the page, R13 whether it was to be written (0 or
// 1), R14 the lock.
TEXT handler<>(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVD	$·guard(SB), R9
	MOVWU	siginfo_code(R1), R3
	CMPW	$BUS_ADRERR, R3
	BNE	pass
	MOVD	R1, R10
	MOVD	R2, R11
	MOVD	siginfo_addr(R1), R12
	MOVD	shared_mask(R9), R3
	AND	R3, R12

	// A fault of which the kernel does not tell whether it wrote counts as one that read: that
	// is the worse.
	MOVD	ZR, R13
	ADD	$ucontext_records, R2, R4
	ADD	$ucontext_recordsEnd, R2, R5
code:
	CMP	R5, R4
	BHS	lock
	MOVWU	0(R4), R6
	MOVWU	4(R4), R7
	CBZ	R7, lock
	MOVD	$ESR_MAGIC, R3
	CMP	R3, R6
	BEQ	coded
	ADD	R7, R4
	B	code
coded:
	MOVD	8(R4), R13
	UBFX	$ESR_WnR, R13, $1, R13

lock:
	ADD	$shared_Lock, R9, R14
	MOVD	$1, R6
try:
	LDAXR	(R14), R5
	CBNZ	R5, busy
	STLXR	R6, (R14), R7
	CBNZW	R7, try
	B	locked
busy:
	MOVD	$SYS_sched_yield, R8
	SVC
	B	try

locked:
	// Is it a shared mapping? mremap from a size of zero duplicates one and refuses another.
	MOVD	R12, R0
	MOVD	ZR, R1
	MOVD	shared_pageSize(R9), R2
	MOVD	$1, R3 // MREMAP_MAYMOVE
	MOVD	ZR, R4
	MOVD	$SYS_mremap, R8
	SVC
	CMN	$4095, R0
	BHS	private
	MOVD	shared_pageSize(R9), R1
	MOVD	$SYS_munmap, R8
	SVC

	// Tell each Record that does not tell of this kind of fault yet.
	ADD	$shared_records, R9, R15
	MOVD	$const_slots, R6
	MOVD	$1, R7
	LSL	R13, R7
record:
	MOVWU	slot_fd(R15), R0
	CBZ	R0, next
	MOVWU	slot_Told(R15), R5
	TST	R7, R5
	BNE	next
	SUB	$1, R0
	ADD	$shared_yes, R9, R1
	MOVD	$1, R2
	MOVD	R13, R3
	MOVD	$SYS_pwrite64, R8
	SVC
	CMP	$1, R0
	BNE	next // it is tried again at the next fault
	ORR	R7, R5
	MOVW	R5, slot_Told(R15)
next:
	ADD	$slot__size, R15
	SUBS	$1, R6
	BNE	record

	// Count it before anybody can see the page.
	ADD	$shared_kinds, R9, R4
	MOVD	(R4)(R13<<3), R5
	ADD	$1, R5
	MOVD	R5, (R4)(R13<<3)
	ADD	$shared_faults, R9, R3
	MOVD	(R3), R5
	ADD	$shared_Pages, R9, R4
	AND	$(const_replaced-1), R5, R6
	MOVD	R12, (R4)(R6<<3)
	ADD	$1, R5
	STLR	R5, (R3)
	DMB	$0xb // ISH
	MOVD	ZR, shared_Retries(R9)

	MOVD	R12, R0
	MOVD	shared_pageSize(R9), R1
	MOVD	$3, R2 // PROT_READ|PROT_WRITE
	MOVD	$0x32, R3 // MAP_PRIVATE|MAP_FIXED|MAP_ANONYMOUS
	MOVD	$-1, R4
	MOVD	ZR, R5
	MOVD	$SYS_mmap, R8
	SVC
	CMP	R12, R0
	BNE	unlock_pass
	STLR	ZR, (R14)
	RET

private:
	// Another thread may have replaced the page since this one met the fault.
	MOVD	shared_Retries(R9), R3
	MOVD	shared_retriesMax(R9), R4
	CMP	R4, R3
	BHS	unlock_pass
	ADD	$shared_Pages, R9, R4
	MOVD	$const_replaced, R6
look:
	MOVD.P	8(R4), R5
	CMP	R12, R5
	BEQ	again
	SUBS	$1, R6
	BNE	look

unlock_pass:
	STLR	ZR, (R14)
	MOVD	$SIGBUS, R0
	MOVD	R10, R1
	MOVD	R11, R2
pass:
	MOVD	shared_next(R9), R3
	B	(R3)

again:
	ADD	$1, R3
	MOVD	R3, shared_Retries(R9)
	STLR	ZR, (R14)
	RET
