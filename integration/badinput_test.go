package integration_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store"
)

// imported is what millrace import prints of one file as JSON.
type imported struct {
	Format            string
	Written, Rejected int
	Rejections        []struct {
		Line   int
		Reason string
	}
}

// importJSON imports a file and returns what was printed of it, and on standard
// error.
func importJSON(t *testing.T, server, container, file string) (r imported, errs string, exit int) {
	t.Helper()
	out, errs, exit := command(t, "", nil, "import", container, file, "--server", server, "-o", "json")
	var all struct{ Imports []imported }
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("exit %d, %v\n%s%s", exit, err, out, errs)
	}
	if len(all.Imports) == 1 {
		r = all.Imports[0]
	}
	return r, errs, exit
}

// ids lists the ids of all items of a container, which are few.
func ids(t *testing.T, server, container string) (found []string) {
	t.Helper()
	out, errs, exit := command(t, "", nil, "export", container, "--server", server)
	if exit != 0 {
		t.Fatalf("export: exit %d\n%s", exit, errs)
	}
	for line := range strings.Lines(out) {
		var item struct{ ID string }
		if err := json.Unmarshal([]byte(line), &item); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		found = append(found, item.ID)
	}
	slices.Sort(found)
	return found
}

// badLines are lines of a file of items, and why they are rejected; "" if they
// are not.
var badLines = []struct{ line, reason string }{
	{`{"id":"first","categoryId":"c"}`, ""},
	{`{"id":"cut","categoryId":"c"`, `the end of the text where a comma or } must stand`},
	{``, ""},
	{`   `, ""},
	{`{"categoryId":"c","name":"nameless"}`, `item has no id; a string member "id" is expected`},
	{`{"id":7,"categoryId":"c"}`, `item has no id; a string member "id" is expected`},
	{`{"id":"","categoryId":"c"}`, `an id must not be empty`},
	{`{"id":"..","categoryId":"c"}`, `the id ".." is not allowed: a URL drops it from its path, so no SDK could address the item; choose another id`},
	{`{"id":"` + strings.Repeat("i", 1024) + `","categoryId":"c"}`, `the id has 1024 bytes, more than 1023`},
	{`{"id":"` + strings.Repeat("i", 1023) + `","categoryId":"c"}`, ""},
	{`["an","array"]`, `an item is a JSON object, not an array`},
	{`not JSON at all`, `an item is a JSON object, not 'n'`},
	{`{"id":"trailing","categoryId":"c",}`, `'}' where the name of a member must stand`},
	{`{"id":"one","categoryId":"c"} {"id":"two","categoryId":"c"}`, `an object after the end of the value`},
	{`{"id":"twice","id":"twice","categoryId":"c"}`, `the object has a member "id" already`},
	{`{"id":"number","categoryId":"c","price":NaN}`, `'N' where a value must stand`},
	{"{\"id\":\"text\",\"categoryId\":\"c\",\"name\":\"\xff\"}", `byte 0xFF is not UTF-8`},
	{`{"id":"deep","categoryId":"c","d":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, `nested more than 128 deep`},
	{`{"id":"key","categoryId":"` + strings.Repeat("k", 2049) + `"}`, `strings of 2049 bytes, at most 2048`},
	{`{"id":"keyless"}`, ""},                     // it has the partition key of all items without one
	{`{"id":"object","categoryId":{"a":1}}`, ""}, // and so has this
	{sized("exact", store.ItemBytesMax), ""},
	{sized("large", store.ItemBytesMax+1), `the item has 2097153 bytes, more than 2097152`},
	{sized("huge", 3*store.ItemBytesMax), `larger than 4194304 bytes; an item has at most 2097152`},
	{`{"id":"last","categoryId":"c"}`, ""},
	{`{"id":"unfinished","categoryId":"c","name":"the disk was fu`, `the text ends within a string`},
}

// sized is an item of n bytes.
func sized(id string, n int) string {
	head := fmt.Sprintf(`{"id":%q,"categoryId":"c","fill":"`, id)
	return head + strings.Repeat("x", n-len(head)-2) + `"}`
}

// TestBadInput_BrokenLinesAreRejectedOneByOne imports a file of which most lines
// are broken, plain and gzipped: each is told with its line and the reason, and
// the others are written.
func TestBadInput_BrokenLinesAreRejectedOneByOne(t *testing.T) {
	t.Parallel()
	server := upOnce(t)
	mustRun(t, server, "apply", "-f", "../configs/webstore/product.yaml")
	var text []byte
	var good []string
	for _, l := range badLines {
		text = append(append(text, l.line...), '\n')
		var item struct{ ID string }
		if l.reason == "" && strings.TrimSpace(l.line) != "" {
			if err := json.Unmarshal([]byte(l.line), &item); err != nil {
				t.Fatal(err)
			}
			good = append(good, item.ID)
		}
	}
	slices.Sort(good)
	text = bytes.TrimSuffix(text, []byte("\n"))
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	if _, err := zip.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"items.ndjson": text, "items.ndjson.gz": zipped.Bytes()} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			r, errs, exit := importJSON(t, server, "product", file)
			rejected := map[int]string{}
			for _, x := range r.Rejections {
				rejected[x.Line] = x.Reason
			}
			n := 0
			for i, l := range badLines {
				reason, is := rejected[i+1]
				switch {
				case l.reason == "" && is:
					t.Errorf("line %d is rejected: %s", i+1, reason)
				case l.reason == "":
				case !strings.Contains(reason, l.reason):
					t.Errorf("line %d is rejected with %q, want %q", i+1, reason, l.reason)
				case !strings.Contains(errs, fmt.Sprintf("%s:%d: rejected: %s\n", file, i+1, reason)):
					t.Errorf("standard error does not tell of line %d:\n%s", i+1, errs)
				default:
					n++
				}
			}
			if exit != 1 || r.Format != "lines" || r.Rejected != n || r.Written != len(good) || !strings.Contains(errs, "next: correct them") {
				t.Errorf("exit %d, %d written, %d rejected; want 1, %d and %d\n%s", exit, r.Written, r.Rejected, len(good), n, errs)
			}
			if diff := cmp.Diff(good, ids(t, server, "product")); diff != "" {
				t.Errorf("the container holds (-want +got)\n%s", diff)
			}
			if _, err := os.Stat(file + ".import"); err == nil {
				t.Error("the import is done and leaves its state behind")
			}
		})
	}
}

// TestBadInput_FilesThatCannotBeRead imports files that end too early or are
// none: what stands before is written, the rest is asked for.
func TestBadInput_FilesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	server := upOnce(t)
	mustRun(t, server, "apply", "-f", "../configs/webstore/product.yaml")
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	for i := range 5000 {
		fmt.Fprintf(zip, `{"id":"z%d","categoryId":"%x"}`+"\n", i, i*7919)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, c := range []struct {
		name, content string
		exit          int
		says          string
		written       *regexp.Regexp // of the ids
	}{
		{"cut.json", `[{"id":"a1","categoryId":"c"},{"id":"a2","categoryId":"c"},{"id":"a3"`, 2, "line 1: the file ends inside the array", regexp.MustCompile(`^a[12]$`)},
		{"string.json", "[{\"id\":\"s1\",\"categoryId\":\"c\n\"},\n{\"id\":\"s2\",\"categoryId\":\"c\"}]", 1, "string.json:1: rejected: a string does not end in its line", regexp.MustCompile(`^s2$`)},
		{"behind.json", `[{"id":"b1","categoryId":"c"}] {"id":"b2"}`, 2, `'{' behind the end of the array`, regexp.MustCompile(`^b1$`)},
		{"cut.gz", zipped.String()[:zipped.Len()/2], 2, "unexpected EOF", regexp.MustCompile(`^z\d+$`)},
		{"hello.txt", "hello\n", 2, "line 1: begins with 'h'; a JSON array of items, or an item in each line, is expected", nil},
		{"text.json", `"hello"`, 2, `begins with '"'`, nil},
		{"empty.json", "", 0, "", nil},
		{"nothing.json", "[]", 0, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := ids(t, server, "product")
			file := filepath.Join(dir, c.name)
			writeFile(t, file, c.content)
			_, errs, exit := command(t, "", nil, "import", "product", file, "--server", server)
			if exit != c.exit || !strings.Contains(errs, c.says) {
				t.Errorf("exit %d, want %d and %q\n%s", exit, c.exit, c.says, errs)
			}
			written := 0
			for _, id := range ids(t, server, "product") {
				switch {
				case slices.Contains(before, id):
				case c.written == nil || !c.written.MatchString(id):
					t.Errorf("%s was written", id)
				default:
					written++
				}
			}
			if (c.written != nil) != (written > 0) {
				t.Errorf("%d items were written", written)
			}
		})
	}
	if out, errs, exit := command(t, "", nil, "import", "product", dir, "--server", server); exit != 2 || !strings.Contains(errs, "is a directory") {
		t.Errorf("a directory: exit %d\n%s%s", exit, out, errs)
	}
}

// TestBadInput_NothingStartsOnWrongFlags gives the roles flags that cannot be
// meant: they say what is wrong and what is expected, exit with 2, and leave no
// directory behind.
func TestBadInput_NothingStartsOnWrongFlags(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	config := filepath.Join(t.TempDir(), "millrace.yaml")
	writeFile(t, config, "store:\n  diskReserve: much\nleases: {ttl: 7}\n")
	for _, c := range []struct {
		name string
		args []string
		says []string
	}{
		{"an unknown flag", []string{"up", "--prot", "1"}, []string{"unknown flag: --prot", "millrace up --help"}},
		{"a port that is no number", []string{"up", "--port", "http"}, []string{`"http"`, `"--port"`}},
		{"a port that is too high", []string{"up", "--port", "70000"}, []string{"70000 is not a port"}},
		{"an argument", []string{"up", "now"}, []string{`"now"`, "usage: millrace up"}},
		{"an unknown key", []string{"up", "--set", "store.queueMaxx=1"}, []string{"there is no key store.queueMaxx"}},
		{"a value that is none", []string{"up", "--set", "store.queueMax=many"}, []string{`"many" is not a number`}},
		{"a key without a value", []string{"up", "--set", "store.queueMax"}, []string{"KEY=VALUE is expected"}},
		{"a value that is too small", []string{"up", "--port", "-1", "--listen", "off", "--set", "leases.ttl=1ms"}, []string{"ttl 1ms is below 200ms"}},
		{"a value that is too large", []string{"up", "--port", "-1", "--listen", "off", "--set", "store.pageItemsMax=5000"}, []string{"store.pageItemsMax is 5000; 1 to 2000 are allowed"}},
		{"a negative size", []string{"up", "--port", "-1", "--listen", "off", "--set", "nats.maxPayload=-1"}, []string{"maxPayload"}},
		{"an unknown durability", []string{"up", "--durability", "floppy"}, []string{`durability is "floppy"; disk or replicas`}},
		{"an address that is none", []string{"up", "--listen", "nowhere"}, []string{`http.listen is "nowhere"; host:port`}},
		{"an unknown log level", []string{"up", "--log-level", "loud"}, []string{"loud", "debug, info, warn or error"}},
		{"a configuration that is not there", []string{"up", "--config", "/nonexistent.yaml"}, []string{"/nonexistent.yaml"}},
		{"a broken configuration", []string{"up", "--config", config}, []string{config + ":2:16: ", config + ":3:15: "}},
		{"no server", []string{"status", "--wait", "0s", "--server", "nats://127.0.0.1:" + strconv.Itoa(freePort(t))}, []string{"connect to NATS at", "next: "}},
		{"a server that is no URL", []string{"worker", "--server", "nowhere at all"}, []string{"nowhere at all"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := c.args
			if args[0] != "worker" {
				args = append(args, "--dir", dir)
			}
			out, errs, exit := command(t, "", nil, args...)
			if exit != 2 || out != "" {
				t.Errorf("exit %d, want 2, and standard output %q", exit, out)
			}
			for _, want := range c.says {
				if !strings.Contains(errs, want) {
					t.Errorf("want %q in\n%s", want, errs)
				}
			}
		})
	}
}

// TestBadInput_WhatIsTakenIsNamed starts a second process on what the first one
// uses: it says what, and by whom, and the first goes on undisturbed.
func TestBadInput_WhatIsTakenIsNamed(t *testing.T) {
	t.Parallel()
	dir, port, http := t.TempDir(), freePort(t), freePort(t)
	server := "nats://127.0.0.1:" + strconv.Itoa(port)
	first := spawn(t, "up", "--dir", dir, "--port", strconv.Itoa(port), "--listen", "127.0.0.1:"+strconv.Itoa(http))
	mustRun(t, server, "apply", "-f", "../configs/webstore")
	foreign, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	_, foreignPort, err := net.SplitHostPort(foreign.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		says string
	}{
		{"the directory", []string{"up", "--dir", dir, "--port", "-1", "--listen", "off"}, fmt.Sprintf("directory %s is in use by process %d", dir, first.Cmd.Process.Pid)},
		{"the directory, by a store", []string{"store", "--dir", dir, "--server", server, "--listen", "off"}, fmt.Sprintf("is in use by process %d", first.Cmd.Process.Pid)},
		{"the port", []string{"up", "--dir", t.TempDir(), "--port", strconv.Itoa(port), "--listen", "off"}, "127.0.0.1:" + strconv.Itoa(port)},
		{"a port of another program", []string{"up", "--dir", t.TempDir(), "--port", foreignPort, "--listen", "off"}, foreign.Addr().String()},
		{"the address of http", []string{"up", "--dir", t.TempDir(), "--port", "-1", "--listen", "127.0.0.1:" + strconv.Itoa(http)}, "127.0.0.1:" + strconv.Itoa(http)},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, errs, exit := command(t, "", nil, c.args...)
			if exit != 2 || !strings.Contains(errs, c.says) || !strings.Contains(errs, "next: ") {
				t.Errorf("exit %d, want 2 and %q\n%s%s", exit, c.says, out, errs)
			}
		})
	}
	mustRun(t, server, "verify")
}

// TestBadInput_UnknownContainerIsNamed asks every verb that takes a container for
// one that is not there.
func TestBadInput_UnknownContainerIsNamed(t *testing.T) {
	t.Parallel()
	server := upOnce(t)
	file := filepath.Join(t.TempDir(), "items.ndjson")
	writeFile(t, file, `{"id":"a"}`+"\n")
	for _, args := range [][]string{
		{"import", "nosuch", file},
		{"export", "nosuch"},
		{"query", "nosuch"},
		{"query", "nosuch", "--key", "k", "--id", "i"},
		{"feed", "nosuch"},
		{"get", "container", "nosuch"},
		{"describe", "container", "nosuch"},
		{"delete", "container", "nosuch"},
		{"query", "elsewhere/nosuch"},
		{"query", "nosuch", "--database", "elsewhere"},
	} {
		t.Run(strings.Join(args[:2], " "), func(t *testing.T) {
			database := "default"
			if strings.Contains(strings.Join(args, " "), "elsewhere") {
				database = "elsewhere"
			}
			out, errs, exit := command(t, "", nil, append(args, "--server", server)...)
			if exit != 1 || out != "" || !strings.Contains(errs, "container "+database+"/nosuch does not exist") || !strings.Contains(errs, "next: ") {
				t.Errorf("exit %d, want 1\n%s%s", exit, out, errs)
			}
		})
	}
}
