package integration_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
)

// Blocks of shell on the pages for users are fences. A fence marked "sh run" is run by
// TestPages_CommandsDoWhatTheySay. Another one has its reason in a comment on the line before it,
// which readers do not see, and at least its flags and arguments are known:
//
//	<!-- not run: needs Docker -->
//	```sh

// fence is a block of a page.
type fence struct {
	at     string // page:line
	mark   string // sh, sh run, text
	reason string // why it is not run; "" if the page does not say
	code   string
}

// page is a page for users.
type page struct {
	name   string // below the root
	fences []fence
	spans  []string // code between single backquotes, of the text around the fences
	// loose are lines of indented blocks that are typed into a shell, with their places.
	loose []string
}

var (
	fenceLine  = regexp.MustCompile("^( *)```(.*)$")
	reasonLine = regexp.MustCompile(`^ *<!-- not run: (.+) -->$`)
	spanText   = regexp.MustCompile("`(millrace [^`]+)`")
	typedLine  = regexp.MustCompile(`^ {4,}(\$ |(millrace|make|docker|kubectl|helm|export|curl|ssh|sudo|systemctl|nats|rm|install) )`)
)

// readPage divides a page.
func readPage(t *testing.T, name string) *page {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	p := &page{name: name}
	var text strings.Builder
	var open *fence
	indent, reason := "", ""
	for i, line := range strings.Split(string(data), "\n") {
		m := fenceLine.FindStringSubmatch(line)
		switch {
		case open == nil && m != nil:
			open, indent = &fence{at: fmt.Sprintf("%s:%d", name, i+1), mark: strings.TrimSpace(m[2]), reason: reason}, m[1]
		case m != nil:
			p.fences = append(p.fences, *open)
			open = nil
		case open != nil:
			open.code += strings.TrimPrefix(line, indent) + "\n"
		default:
			if typedLine.MatchString(line) {
				p.loose = append(p.loose, fmt.Sprintf("%s:%d: %s", name, i+1, strings.TrimSpace(line)))
			}
			text.WriteString(line + " ")
		}
		reason = ""
		if m := reasonLine.FindStringSubmatch(line); m != nil {
			reason = m[1]
		}
	}
	if open != nil {
		t.Fatalf("%s: the fence does not end", open.at)
	}
	for _, m := range spanText.FindAllStringSubmatch(text.String(), -1) {
		p.spans = append(p.spans, strings.Join(strings.Fields(m[1]), " "))
	}
	return p
}

// userPages are the README and the pages below docs and deploy that tell users what to type.
func userPages(t *testing.T) []*page {
	t.Helper()
	var pages []*page
	for _, pattern := range []string{"README.md", "docs/*.md", "deploy/*.md", "deploy/*/*.md"} {
		names, err := filepath.Glob(filepath.Join(root(t), pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("no page %s: %v", pattern, err)
		}
		for _, name := range names {
			below, err := filepath.Rel(root(t), name)
			if err != nil {
				t.Fatal(err)
			}
			pages = append(pages, readPage(t, below))
		}
	}
	return pages
}

// readmeFences are run by tests of their own.
var readmeFences = []string{"sh up", "sh run", "sh sdk", "sh java", "sh endpoint"}

func TestPages_EachBlockIsRunOrSaysWhyNot(t *testing.T) {
	t.Parallel()
	for _, p := range userPages(t) {
		for _, line := range p.loose {
			t.Errorf("%s: what is typed into a shell stands in a fence", line)
		}
		for _, f := range p.fences {
			if f.mark != "sh" && !strings.HasPrefix(f.mark, "sh ") {
				continue
			}
			isRun := f.mark == "sh run" || p.name == "README.md" && slices.Contains(readmeFences, f.mark)
			switch {
			case isRun && f.reason != "":
				t.Errorf("%s: it is run, and the page says that it is not", f.at)
			case !isRun && f.reason == "":
				t.Errorf("%s: mark it \"sh run\", or say why it cannot be run: <!-- not run: ... -->", f.at)
			}
		}
	}
}

// preparation is what a page takes for granted, and what its commands print.
type preparation struct {
	script string
	// paths are those of the page that stand for others here: in the node's directory, or if they
	// are absolute beside it.
	paths []string
	await func(data string) error
	says  []string
}

var preparations = map[string]preparation{
	"docs/analytics.md": {
		script: `millrace apply -f configs/webstore
echo '{"id": "s1", "type": "salesOrder", "customerId": "u1", "orderDate": "2026-01-02T03:04:05", "details": []}' | millrace import customer -`,
		paths: []string{"analytics/orders"},
		await: func(data string) error {
			_, err := os.Stat(filepath.Join(data, "analytics", "orders", "_delta_log"))
			return err
		},
		says: []string{"pipeline default/analytics paused", "pipeline default/analytics resumed"},
	},
	"docs/backup.md": {
		script: `echo '{"id": "p1", "pk": "a"}' | millrace import things - --partition-key /pk`,
		paths:  []string{"/mnt/backup", "/var/lib/millrace"},
		says:   []string{"with 1 entry"},
	},
	"docs/security.md": {},
	"docs/test.md":     {says: []string{"tests passed"}},
}

// TestPages_CommandsDoWhatTheySay types the fences of each page, one after the other, into a terminal
// beside a node of its own.
func TestPages_CommandsDoWhatTheySay(t *testing.T) {
	ran := map[string]bool{}
	for _, p := range userPages(t) {
		var scripts []string
		for _, f := range p.fences {
			if f.mark == "sh run" && p.name != "README.md" { // which has a test of its own
				scripts = append(scripts, f.code)
			}
		}
		if len(scripts) == 0 {
			continue
		}
		ran[p.name] = true
		t.Run(p.name, func(t *testing.T) {
			port := strconv.Itoa(freePort(t))
			t.Setenv("MILLRACE_NATS_PORT", port)
			t.Setenv("MILLRACE_SERVER", "nats://127.0.0.1:"+port)
			t.Setenv("MILLRACE_HTTP_LISTEN", "127.0.0.1:"+strconv.Itoa(freePort(t)))
			t.Setenv("PATH", filepath.Dir(millrace(t))+":"+os.Getenv("PATH"))
			data := t.TempDir()
			t.Setenv("MILLRACE_DIR", data)
			forgetUser(t)
			dir := spawn(t, "up", "--dir", data).dir
			if err := os.Symlink(filepath.Join(root(t), "configs"), filepath.Join(dir, "configs")); err != nil {
				t.Fatal(err)
			}
			before := preparations[p.name]
			typeInto(t, dir, before.script)
			if before.await != nil {
				poll.Until(t, func() error { return before.await(data) })
			}
			script := strings.Join(scripts, "\n")
			for _, path := range before.paths {
				place := data
				if filepath.IsAbs(path) {
					place = dir
				}
				script = strings.ReplaceAll(script, path, filepath.Join(place, path))
			}
			out := typeInto(t, dir, script)
			for _, want := range before.says {
				if !strings.Contains(out, want) {
					t.Errorf("the commands of %s do not show %q:\n%s", p.name, want, out)
				}
			}
		})
	}
	for name := range preparations {
		if !ran[name] {
			t.Errorf("%s has no fence that is run", name)
		}
	}
}

// typeInto types a script into a terminal and returns what it shows.
func typeInto(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	cmd.WaitDelay = time.Minute
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\nshows\n%s", err, script, out.String())
	}
	return out.String()
}

// TestPages_CommandsAreKnown looks at every command of the binary on the pages, in fences that are not
// run and in the text too: its verb is there and has the flags.
func TestPages_CommandsAreKnown(t *testing.T) {
	t.Parallel()
	known := &verbs{t: t, help: map[string]string{}}
	found := 0
	for _, p := range userPages(t) {
		for _, f := range p.fences {
			typed := f.mark == "sh" || strings.HasPrefix(f.mark, "sh ")
			code := f.code
			switch {
			case f.mark == "text":
				code = synopsis(code)
			case !typed:
				continue
			}
			for _, words := range commandsIn(code) {
				found++
				if err := known.know(words); err != nil {
					t.Errorf("%s: millrace %s: %v", f.at, strings.Join(words, " "), err)
				}
				if !typed {
					continue
				}
				// The binary reads the values of flags too, before it tells of itself.
				if out, errs, exit := command(t, "", nil, append(slices.Clone(words), "--help")...); exit != 0 {
					t.Errorf("%s: millrace %s: exit %d\n%s%s", f.at, strings.Join(words, " "), exit, out, errs)
				}
			}
		}
		for _, span := range p.spans {
			for _, words := range commandsIn(synopsis(span)) {
				found++
				if err := known.know(words); err != nil {
					t.Errorf("%s: `%s`: %v", p.name, span, err)
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d commands were found on the pages", found)
	}
}

// verbs are what the binary tells of its verbs.
type verbs struct {
	t    *testing.T
	help map[string]string
}

func (v *verbs) of(path string) string {
	v.t.Helper()
	if text, ok := v.help[path]; ok {
		return text
	}
	text, errs, exit := command(v.t, "", nil, append(strings.Fields(path), "--help")...)
	if exit != 0 {
		text = errs
	}
	v.help[path] = text
	return text
}

// know returns what is not known of a command: its verb, or a flag.
func (v *verbs) know(words []string) error {
	v.t.Helper()
	path, rest := "", words
	for len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		if path != "" && !strings.Contains(v.of(path), "Available Commands:") {
			break
		}
		path, rest = strings.TrimSpace(path+" "+rest[0]), rest[1:]
		if !strings.Contains(v.of(path), "Usage:\n  millrace "+path) {
			return errors.New("there is no such verb")
		}
	}
	for _, word := range rest {
		name, _, _ := strings.Cut(word, "=")
		if !strings.HasPrefix(name, "-") || name == "-" || name == "--" {
			continue
		}
		if !regexp.MustCompile(`(?m)^ +(-\w, )?` + regexp.QuoteMeta(name) + `\b|^ +` + regexp.QuoteMeta(name) + `, `).MatchString(v.of(path)) {
			return fmt.Errorf("it has no flag %s", name)
		}
	}
	return nil
}

// synopsis is a synopsis in which what | divides are words of one command.
func synopsis(text string) string { return strings.ReplaceAll(text, "|", " ") }

// commandsIn returns the words behind millrace wherever it is a command: at the beginning of a line,
// behind |, ; and &, and in $( and (. Of a synopsis the brackets are left out, and of what a variable
// holds nothing is known.
//
//	echo '{}' | millrace import product - && X=$(millrace keys show primary)   [import product -] [keys show primary]
func commandsIn(code string) [][]string {
	var all [][]string
	for line := range strings.Lines(strings.ReplaceAll(code, "\\\n", " ")) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
		for _, words := range simpleCommands(line) {
			for len(words) > 0 && strings.Contains(words[0], "=") { // variables of the one command
				words = words[1:]
			}
			if len(words) > 0 && words[0] == "millrace" {
				all = append(all, words[1:])
			}
		}
	}
	return all
}

// simpleCommands divides a line of shell into simple commands and their words, without comments and
// redirections.
func simpleCommands(line string) [][]string {
	var all [][]string
	var words []string
	word, quote, some := "", rune(0), false
	endWord := func() {
		if some {
			words = append(words, word)
		}
		word, some = "", false
	}
	endCommand := func() {
		endWord()
		if at := slices.IndexFunc(words, func(w string) bool { return strings.ContainsAny(w[:min(1, len(w))], "<>") }); at >= 0 {
			words = words[:at]
		}
		if len(words) > 0 {
			all = append(all, words)
		}
		words = nil
	}
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word += string(c)
		case c == '\'' || c == '"':
			quote, some = c, true
		case c == '#' && !some:
			endCommand()
			return all
		case strings.ContainsRune("|;&()", c):
			endCommand()
		case strings.ContainsRune(" \t[]…", c):
			endWord()
		default:
			word, some = word+string(c), true
		}
	}
	endCommand()
	return all
}
