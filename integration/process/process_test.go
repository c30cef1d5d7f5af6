package process_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/process"
)

// TestFollow_LongLines starts a program that says more in a line than a pipe holds, and then that it
// is ready.
func TestFollow_LongLines(t *testing.T) {
	t.Parallel()
	const script = `head -c 300000 /dev/zero | tr '\0' x; echo; echo it is ready after 1s; head -c 300000 /dev/zero | tr '\0' y`
	var log process.Log
	p, err := process.Start(exec.CommandContext(t.Context(), "sh", "-c", script), &log)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AwaitReady(time.Minute); err != nil {
		t.Fatalf("it is not ready; what it said has %d bytes", len(log.String()))
	}
	select {
	case <-p.Ended:
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	x, y := strings.Repeat("x", 300_000), strings.Repeat("y", 300_000)
	if got := log.String(); got != x+"\nit is ready after 1s\n"+y+"\n" {
		t.Errorf("the log has %d bytes", len(got))
	}
}
