//go:build unix && !linux

package postgres

import "os/exec"

// run starts cmd. ended is closed when it has ended.
func run(cmd *exec.Cmd) (pid int, ended chan struct{}, err error) {
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // that it ended is all there is to know
	}()
	return cmd.Process.Pid, ended, nil
}

// children returns none: a server's workers end by themselves when they see that
// it has died.
func children(int) []int { return nil }

func alive(int) bool { return false }
