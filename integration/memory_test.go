//go:build linux

package integration_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/webstore"
)

// TestMemoryLimit_IsKept imports a shop under all pipelines of the WebStore into a
// process with a limit, and looks at the most that it ever had in memory, mapped files
// included: it is below the limit, and every copy equals its source.
func TestMemoryLimit_IsKept(t *testing.T) {
	if testing.Short() {
		t.Skip("it imports 16,000 items")
	}
	const limit, customers = 400, 6_000 // MiB
	port := strconv.Itoa(freePort(t))
	server := "nats://127.0.0.1:" + port
	node := spawn(t, "up", "--dir", t.TempDir(), "--port", port, "--listen", "off", "--set", fmt.Sprintf("memory.limit=%dMiB", limit))
	mustRun(t, server, "apply", "-f", "../configs/webstore")
	shop := webstore.New(webstore.Config{Seed: 19, Customers: customers})
	dir := t.TempDir()
	for container, items := range map[string]func(put func(any)){
		"productMeta": func(put func(any)) {
			for c := range shop.Config().Categories {
				put(shop.Category(c+1, nil))
			}
			for n := range shop.Config().Tags {
				put(shop.Tag(n+1, nil))
			}
		},
		"product": func(put func(any)) {
			for p := range shop.Config().Products {
				put(shop.Product(p+1, nil))
			}
		},
		"customer": func(put func(any)) {
			for c := range customers {
				put(shop.Customer(c + 1))
				for _, order := range shop.Orders(c + 1) {
					put(order)
				}
			}
		},
	} {
		var lines bytes.Buffer
		items(func(item any) {
			lines.Write(webstore.JSON(item))
			lines.WriteByte('\n')
		})
		name := filepath.Join(dir, container+".ndjson")
		writeFile(t, name, lines.String())
		mustRun(t, server, "import", container, name)
	}
	mustRun(t, server, "verify", "--settle", "5m")
	if peak := processKiB(t, node.Cmd.Process.Pid, "VmHWM"); peak >= limit<<10 {
		t.Errorf("%d MiB were resident, the limit is %d MiB", peak>>10, limit)
	}
}

// TestMemory_TheWebStoreByDefault imports the WebStore's data set into a process with the
// default configuration, under all of its pipelines, and looks at the most that it ever had
// in memory, mapped files included.
func TestMemory_TheWebStoreByDefault(t *testing.T) {
	if testing.Short() {
		t.Skip("it imports 50,000 items")
	}
	// 340 to 378 MB were seen with 2 processors. The rest is room for what merges map for a moment on a busy machine.
	const most = 440_000_000 // bytes
	names := [][2]string{{"productMeta", "productMeta.json"}, {"product", "product.json"}, {"customer", "customer-full.ndjson.gz"}}
	for i := range names {
		names[i][1] = webstoreFile(t, names[i][1])
	}
	port := strconv.Itoa(freePort(t))
	server := "nats://127.0.0.1:" + port
	node := spawn(t, "up", "--dir", t.TempDir(), "--port", port, "--listen", "off")
	mustRun(t, server, "apply", "-f", "../configs/webstore")
	for _, name := range names {
		mustRun(t, server, "import", name[0], name[1])
	}
	mustRun(t, server, "verify", "--settle", "5m")
	peak := processKiB(t, node.Cmd.Process.Pid, "VmHWM") << 10
	t.Logf("%d MB were resident at most", peak/1_000_000)
	if peak >= most {
		t.Errorf("%d MB were resident, expected less than %d", peak/1_000_000, most/1_000_000)
	}
}

// processKiB reads a size of a process from /proc, such as VmRSS, what is resident now,
// or VmHWM, the most that ever was; both with mapped files.
func processKiB(t *testing.T, pid int, name string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(status) {
		var kib int
		if _, err := fmt.Sscanf(string(line), name+": %d kB", &kib); err == nil {
			return kib
		}
	}
	t.Fatalf("no %s in\n%s", name, status)
	return 0
}
