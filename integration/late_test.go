package integration_test

import (
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
)

// TestLateProcess_AloneKeepsItsLeases stops a process that is everything for longer
// than its leases last, as a machine without a free processor does. Nobody is there to
// take them, so it goes on with all of them when it runs again.
func TestLateProcess_AloneKeepsItsLeases(t *testing.T) {
	t.Parallel()
	const ttl = 7 * time.Second // a renewal may take a part of it on a busy machine
	port := freePort(t)
	server := "nats://127.0.0.1:" + strconv.Itoa(port)
	c := spawn(t, "up", "--dir", t.TempDir(), "--port", strconv.Itoa(port), "--listen", "off", "--set", "leases.ttl="+ttl.String())
	mustRun(t, server, "apply", "-f", "../pipelines/testdata/shop")
	lease := regexp.MustCompile(`"lease taken".* resource=(\S+)`)
	taken := func() (times, leases int) { // one whose work met an error at first is taken again
		names := map[string]bool{}
		all := lease.FindAllStringSubmatch(c.output(), -1)
		for _, m := range all {
			names[m[1]] = true
		}
		return len(all), len(names)
	}
	const leases = 1 + 4 + 4 + 1 + 2*(1+4) + 2 // partitions, with the dead letters; two pipelines' roles; the duties of one worker
	poll.Until(t, func() error {
		_, n := taken()
		return poll.Unless(n == leases, strconv.Itoa(n)+" leases are taken of "+strconv.Itoa(leases))
	})
	before, _ := taken()
	for range 3 {
		if err := c.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		<-time.After(ttl + time.Second) // time is what it loses
		if err := c.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		mustRun(t, server, "query", "-c", "productMeta", "SELECT VALUE COUNT(1) FROM c")
	}
	if n, _ := taken(); strings.Contains(c.output(), "lease lost") || n != before {
		t.Errorf("leases were lost, %d were taken again:\n%s", n-before, c.output())
	}
}
