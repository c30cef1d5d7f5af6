package postgres

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// run starts cmd, which is killed if this process dies. ended is closed when cmd
// has ended.
func run(cmd *exec.Cmd) (pid int, ended chan struct{}, err error) {
	// The signal comes when the thread that started cmd ends: it is kept.
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error, 1)
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // that it ended is all there is to know
		}
	}()
	if err := <-started; err != nil {
		return 0, nil, err
	}
	return cmd.Process.Pid, ended, nil
}

// children returns the processes that parent has started.
func children(parent int) []int {
	var pids []int
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		if _, ppid, ok := stat(name); ok && ppid == parent {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// alive reports whether a process is there and not a zombie.
func alive(pid int) bool {
	state, _, ok := stat("/proc/" + strconv.Itoa(pid) + "/stat")
	return ok && state != 'Z' && state != 'X'
}

// stat reads the state and the parent from a process's stat file, see proc(5).
func stat(name string) (state byte, ppid int, ok bool) {
	data, err := os.ReadFile(name)
	if err != nil {
		return 0, 0, false
	}
	// The name of the program, in parentheses, may hold anything.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 2 {
		return 0, 0, false
	}
	ppid, err = strconv.Atoi(string(fields[1]))
	return fields[0][0], ppid, err == nil
}
