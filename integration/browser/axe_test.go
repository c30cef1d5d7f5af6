package browser_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// axeSource is the script of axe-core, installed as its lock file says, once.
var axeSource = sync.OnceValues(func() (string, error) {
	script := filepath.Join("js", "node_modules", "axe-core", "axe.min.js")
	lock, err := os.ReadFile(filepath.Join("js", "package-lock.json"))
	if err != nil {
		return "", err
	}
	// What was installed last is said by the lock file beside it.
	mark := filepath.Join("js", "node_modules", ".millrace-lock")
	if done, err := os.ReadFile(mark); err != nil || !bytes.Equal(done, lock) {
		cmd := exec.Command("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
		cmd.Dir = "js"
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("npm ci: %w: %s", err, bytes.TrimSpace(out))
		}
		if err := os.WriteFile(mark, lock, 0o644); err != nil {
			return "", err
		}
	}
	source, err := os.ReadFile(script)
	return string(source), err
})

// axe skips a test that is about nothing else, where axe-core cannot be had.
func axe(t *testing.T) string {
	t.Helper()
	source, err := axeSource()
	if err != nil {
		t.Skipf("axe-core cannot be had: %v", err)
	}
	return source
}

// judge fails the test for each violation that axe-core finds on the page, in light and in dark.
// Where axe-core cannot be had, it judges nothing; the test of the other screens says so.
func (b *tab) judge() {
	b.t.Helper()
	source, err := axeSource()
	if err != nil {
		return
	}
	const run = `axe.run().then(r => r.violations.map(v => v.id + ": " + v.help + "\n" + v.nodes.map(n => "  " + n.html + "\n    " + n.failureSummary).join("\n")))`
	for _, scheme := range []string{"light", "dark"} {
		b.do(
			func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
				_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
					Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
				})
				return chromedp.Void{}, err
			},
			chromedp.Evaluate[chromedp.Void](source+"; 0"),
		)
		violations, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]string](run, chromedp.EvalAwaitPromise))
		if err != nil {
			b.t.Fatal(err)
		}
		if len(violations) > 0 {
			where, _, _ := strings.Cut(b.text(), "\n")
			b.t.Errorf("%s, %s:\n%s", where, scheme, strings.Join(violations, "\n"))
		}
	}
}
