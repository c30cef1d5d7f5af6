//go:build amd64 || arm64

package steps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// helperEnv has the test binary install the filter and become the program of its arguments.
// Its value says which calls are steps.
const (
	helperEnv = "MILLRACE_TEST_STEPS"
	someCalls = "some"
	allCalls  = "all" // plain writes too
)

// socketFD is the helper's end of the socket over which it hands the listener on.
const socketFD = 3

// Main becomes the helper where this process is to be one, and returns otherwise.
func Main() {
	which := os.Getenv(helperEnv)
	if which == "" {
		return
	}
	if err := become(os.Args[1], os.Args[1:], which == allCalls); err != nil {
		fmt.Fprintln(os.Stderr, "steps:", err)
		os.Exit(1)
	}
}

// become runs the program below the filter, in this process.
func become(program string, args []string, writes bool) error {
	// A filter is of a thread, and goes to the program with the thread that executes it.
	runtime.LockOSThread()
	listener, err := install(writes)
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(socketFD, []byte{0}, unix.UnixRights(listener), nil, 0); err != nil {
		return fmt.Errorf("hand the listener on: %w", err)
	}
	_ = unix.Close(listener) // the program must not have them
	_ = unix.Close(socketFD)
	env := os.Environ()
	for i, e := range env {
		if strings.HasPrefix(e, helperEnv+"=") {
			env = append(env[:i], env[i+1:]...)
			break
		}
	}
	return syscall.Exec(program, args, env)
}

// calls are those that change files. What creates one is told apart by its flags. SYS_WRITE is
// one where a Watcher asks for it.
var calls = map[int32]string{
	unix.SYS_OPENAT: "create", unix.SYS_MKDIRAT: "mkdirat", unix.SYS_PWRITE64: "pwrite64", unix.SYS_FTRUNCATE: "ftruncate",
	unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_MSYNC: "msync",
	unix.SYS_WRITE: "write", unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat2", unix.SYS_LINKAT: "linkat", unix.SYS_UNLINKAT: "unlinkat",
}

// Where struct seccomp_data has what the filter looks at.
const (
	dataCall  = 0
	dataArch  = 4
	dataFlags = 16 + 2*8 // the third argument, its lower half
)

// program is the filter: all goes on but calls, which ask the listener.
func program(writes bool) []unix.SockFilter {
	arch := uint32(unix.AUDIT_ARCH_X86_64)
	if runtime.GOARCH == "arm64" {
		arch = unix.AUDIT_ARCH_AARCH64
	}
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	result := func(r uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: r}
	}
	equal := func(k int, otherwise uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(k), Jf: otherwise}
	}
	allow, ask := result(unix.SECCOMP_RET_ALLOW), result(unix.SECCOMP_RET_USER_NOTIF)
	all := []unix.SockFilter{
		load(dataArch), equal(int(arch), 1),
		{Code: unix.BPF_JMP | unix.BPF_JA, K: 1},
		allow,
		load(dataCall),
	}
	for nr := range calls {
		if nr != unix.SYS_OPENAT && (writes || nr != unix.SYS_WRITE) {
			all = append(all, equal(int(nr), 1), ask)
		}
	}
	return append(all, equal(unix.SYS_OPENAT, 3),
		load(dataFlags), unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.O_CREAT, Jf: 1}, ask, allow)
}

// install puts this thread below the filter and returns the listener.
func install(writes bool) (listener int, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("give up new privileges: %w", err)
	}
	filter := program(writes)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return 0, fmt.Errorf("seccomp: %w", errno)
	}
	return int(fd), nil
}

// unsupported tries it once, with a program that does nothing.
var unsupported = sync.OnceValue(func() string {
	program, err := exec.LookPath("true")
	if err != nil {
		return err.Error()
	}
	w := &Watcher{see: func(Call) Verdict { return Go }}
	cmd := w.command(program, nil)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := errors.Join(w.start(cmd), cmd.Wait()); err != nil {
		return fmt.Sprintf("%v: %s", err, strings.TrimSpace(said.String()))
	}
	return ""
})

func (w *Watcher) command(path string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), os.Args[0], append([]string{path}, args...)...)
	which := someCalls
	if w.Writes {
		which = allCalls
	}
	cmd.Env = append(os.Environ(), helperEnv+"="+which)
	return cmd
}

func (w *Watcher) start(cmd *exec.Cmd) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(pair[1]), "steps")
	cmd.ExtraFiles = []*os.File{theirs}
	err = cmd.Start()
	_ = theirs.Close() // the process has its own
	if err != nil {
		return errors.Join(err, unix.Close(pair[0]))
	}
	listener, err := receive(pair[0])
	if err = errors.Join(err, unix.Close(pair[0])); err != nil {
		_ = cmd.Process.Kill() // it may have ended
		return errors.Join(err, cmd.Wait())
	}
	go w.watch(listener, cmd.Process.Pid)
	return nil
}

// receive takes the listener from the helper.
func receive(socket int) (listener int, err error) {
	data, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	n, size, _, _, err := unix.Recvmsg(socket, data, rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, errors.New("the helper has ended")
	}
	messages, err := unix.ParseSocketControlMessage(rights[:size])
	if err != nil {
		return 0, err
	}
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil && len(fds) == 1 {
			return fds[0], nil
		}
	}
	return 0, errors.New("the helper has sent no listener")
}

// notice is struct seccomp_notif, and answer struct seccomp_notif_resp.
type notice struct {
	id     uint64
	thread uint32
	flags  uint32
	call   int32
	arch   uint32
	ip     uint64
	args   [6]uint64
}

type answer struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// watch asks see at each call until the process has ended.
func (w *Watcher) watch(listener, pid int) {
	defer unix.Close(listener) //nolint:errcheck // nobody listens any more
	for {
		fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if fds[0].Revents&unix.POLLIN == 0 {
			if fds[0].Revents != 0 {
				return // it hung up: nobody is left below the filter
			}
			continue
		}
		var n notice
		if errno := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); errno != 0 {
			continue // the thread that asked is gone
		}
		verdict := w.see(Call{calls[n.call], pathOf(pid, &n)})
		if verdict == Kill {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
			continue
		}
		a := answer{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		_ = ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a)) // it may have ended
		if verdict == KillAfter {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg))
	return errno
}

// pathOf tells which file a call is about.
func pathOf(pid int, n *notice) string {
	switch n.call {
	case unix.SYS_MSYNC:
		return ""
	case unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_FTRUNCATE:
		return fileOf(pid, int32(n.args[0]))
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT:
		return nameAt(pid, int32(n.args[2]), n.args[3])
	}
	return nameAt(pid, int32(n.args[0]), n.args[1])
}

func fileOf(pid int, fd int32) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
	if err != nil {
		return ""
	}
	return path
}

// nameAt reads a name from the memory of the process, relative to a directory of it.
func nameAt(pid int, dir int32, address uint64) string {
	mem, err := os.Open("/proc/" + strconv.Itoa(pid) + "/mem")
	if err != nil {
		return ""
	}
	defer mem.Close() //nolint:errcheck // it was only read
	name := make([]byte, unix.PathMax)
	size, _ := mem.ReadAt(name, int64(address)) // the page behind may not be there
	name, _, whole := bytes.Cut(name[:size], []byte{0})
	if !whole {
		return ""
	}
	path := string(name)
	if filepath.IsAbs(path) {
		return path
	}
	base := fileOf(pid, dir)
	if dir == unix.AT_FDCWD {
		if base, err = os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil {
			return ""
		}
	}
	return filepath.Join(base, path)
}
