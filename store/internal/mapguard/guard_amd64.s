//go:build linux

#include "go_asm.h"
#include "textflag.h"

#define SYS_mmap 9
#define SYS_munmap 11
#define SYS_pwrite64 18
#define SYS_sched_yield 24
#define SYS_mremap 25

#define SIGBUS 7
#define BUS_ADRERR 2
#define siginfo_code 8
#define siginfo_addr 16
#define ucontext_err 192 // gregs[REG_ERR]: the processor's code of a page fault

// func handlerAddress() uintptr
TEXT ·handlerAddress(SB), NOSPLIT, $0-8
	LEAQ	handler<>(SB), AX
	MOVQ	AX, ret+0(FP)
	RET

// func setSlot(s *slot, fd uint32)
TEXT ·setSlot(SB), NOSPLIT, $0-12
	MOVQ	s+0(FP), BX
	MOVL	fd+8(FP), R8
lock:
	MOVQ	$1, AX
	XCHGQ	AX, ·guard+shared_Lock(SB)
	TESTQ	AX, AX
	JZ	locked
	MOVL	$SYS_sched_yield, AX
	SYSCALL
	JMP	lock
locked:
	MOVL	R8, slot_fd(BX)
	MOVL	$0, slot_Told(BX)
	XORQ	AX, AX
	XCHGQ	AX, ·guard+shared_Lock(SB)
	RET

// handler is called by the kernel, on the signal stack: DI signal, SI siginfo, DX ucontext. The
// kernel restores all registers when it returns, so it may use any; what it passes on needs DI,
// SI, DX and SP. System calls change AX, CX and R11.
//
// R12 siginfo, R13 ucontext, R14 the page, R15 whether it was to be written (0 or 1).
TEXT handler<>(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	CMPL	siginfo_code(SI), $BUS_ADRERR
	JNE	pass
	MOVQ	SI, R12
	MOVQ	DX, R13
	MOVQ	siginfo_addr(SI), R14
	ANDQ	·guard+shared_mask(SB), R14
	MOVQ	ucontext_err(DX), R15
	SHRQ	$1, R15
	ANDQ	$1, R15

lock:
	MOVQ	$1, AX
	XCHGQ	AX, ·guard+shared_Lock(SB)
	TESTQ	AX, AX
	JZ	locked
	MOVL	$SYS_sched_yield, AX
	SYSCALL
	JMP	lock

locked:
	// Is it a shared mapping? mremap from a size of zero duplicates one and refuses another.
	MOVQ	R14, DI
	XORQ	SI, SI
	MOVQ	·guard+shared_pageSize(SB), DX
	MOVQ	$1, R10 // MREMAP_MAYMOVE
	MOVL	$SYS_mremap, AX
	SYSCALL
	CMPQ	AX, $-4095
	JCC	private
	MOVQ	AX, DI
	MOVQ	·guard+shared_pageSize(SB), SI
	MOVL	$SYS_munmap, AX
	SYSCALL

	// Tell each Record that does not tell of this kind of fault yet.
	LEAQ	·guard+shared_records(SB), BX
	MOVQ	$const_slots, R9
	MOVQ	R15, CX
	MOVL	$1, R8
	SHLL	CX, R8
record:
	MOVL	slot_fd(BX), DI
	TESTL	DI, DI
	JZ	next
	TESTL	R8, slot_Told(BX)
	JNZ	next
	DECL	DI
	LEAQ	·guard+shared_yes(SB), SI
	MOVQ	$1, DX
	MOVQ	R15, R10
	MOVL	$SYS_pwrite64, AX
	SYSCALL
	CMPQ	AX, $1
	JNE	next // it is tried again at the next fault
	ORL	R8, slot_Told(BX)
next:
	ADDQ	$slot__size, BX
	DECQ	R9
	JNZ	record

	// Count it before anybody can see the page.
	LEAQ	·guard+shared_kinds(SB), BX
	INCQ	(BX)(R15*8)
	MOVQ	·guard+shared_faults(SB), CX
	LEAQ	·guard+shared_Pages(SB), BX
	MOVQ	CX, AX
	ANDQ	$(const_replaced-1), AX
	MOVQ	R14, (BX)(AX*8)
	INCQ	CX
	MOVQ	CX, ·guard+shared_faults(SB)
	MOVQ	$0, ·guard+shared_Retries(SB)

	MOVQ	R14, DI
	MOVQ	·guard+shared_pageSize(SB), SI
	MOVQ	$3, DX // PROT_READ|PROT_WRITE
	MOVQ	$0x32, R10 // MAP_PRIVATE|MAP_FIXED|MAP_ANONYMOUS
	MOVQ	$-1, R8
	XORQ	R9, R9
	MOVL	$SYS_mmap, AX
	SYSCALL
	CMPQ	AX, R14
	JNE	unlock_pass
	XORQ	AX, AX
	XCHGQ	AX, ·guard+shared_Lock(SB)
	RET

private:
	// Another thread may have replaced the page since this one met the fault.
	MOVQ	·guard+shared_Retries(SB), CX
	CMPQ	CX, ·guard+shared_retriesMax(SB)
	JCC	unlock_pass
	LEAQ	·guard+shared_Pages(SB), BX
	MOVQ	$const_replaced, R9
look:
	CMPQ	R14, (BX)
	JEQ	again
	ADDQ	$8, BX
	DECQ	R9
	JNZ	look

unlock_pass:
	XORQ	AX, AX
	XCHGQ	AX, ·guard+shared_Lock(SB)
	MOVQ	R12, SI
	MOVQ	R13, DX
	MOVL	$SIGBUS, DI
pass:
	MOVQ	·guard+shared_next(SB), AX
	JMP	AX

again:
	INCQ	CX
	MOVQ	CX, ·guard+shared_Retries(SB)
	XORQ	AX, AX
	XCHGQ	AX, ·guard+shared_Lock(SB)
	RET
