package browser_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// patience is how long something may take to show.
const patience = time.Minute

// tab is a tab of a browser.
type tab struct {
	t    *testing.T
	ctx  context.Context // it is the tab
	home string
}

func open(t *testing.T, home string) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.NoSandbox)
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	return &tab{t: t, ctx: ctx, home: home}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatalf("%v\n%s", err, b.text())
	}
}

func (b *tab) text() string {
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

func (b *tab) visit(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.home + path))
}

// until waits until an expression of the page is true. It is asked again and again from here: the
// page's own policy forbids a script that would wait inside.
func (b *tab) until(expression string) {
	b.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for {
		is, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if err == nil && is { // an error: it is being loaded
			return
		}
		select {
		case <-end:
			b.t.Fatalf("not so after %s: %s\n%s", patience, expression, b.text())
		case <-tick.C:
		}
	}
}

// sees waits until the page has a text.
func (b *tab) sees(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("document.readyState === 'complete' && document.body.innerText.includes(%q)", text))
}

// press presses the button with a text.
func (b *tab) press(text string) {
	b.t.Helper()
	b.click(fmt.Sprintf(`//button[normalize-space()=%q]`, text))
}

// click clicks on what a selector finds. A page that shows what goes on replaces its parts: one that
// was found and is replaced before it is clicked on is looked for again.
func (b *tab) click(selector string) {
	b.t.Helper()
	end := time.Now().Add(patience)
	for {
		err := chromedp.Do(b.ctx, chromedp.Click(selector))
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "Could not find node") || time.Now().After(end) {
			b.t.Fatalf("click on %s: %v\n%s", selector, err, b.text())
		}
	}
}

func (b *tab) signIn() {
	b.t.Helper()
	b.sees("millrace keys show")
	b.do(chromedp.SendKeys("input[name=key]", masterKey), chromedp.Submit("input[name=key]"))
	b.until("document.querySelector('h1')?.innerText !== 'Sign in' && document.querySelector('nav')")
}

const titles = `apiVersion: millrace/v1
kind: Pipeline
metadata: {name: category-titles}
spec:
  source: {container: productMeta, where: type = "category"}
  cascade:
    into: product
    match: {categoryId: id}
    set: {categoryTitle: name}
`

// itemBytesMax is how much an item may have.
const itemBytesMax = 2 << 20

// TestConsole clicks through the console: each part goes on where the one before ended.
func TestConsole(t *testing.T) {
	chromium(t)
	s := start(t)
	s.put("productMeta", `{"id": "c1", "type": "category", "name": "Bikes"}`)
	s.put("product", `{"id": "p1", "categoryId": "c1", "name": "Mountain"}`)
	b := open(t, s.home)
	const of = "/pipelines/default/category-names"

	t.Run("sign in", func(t *testing.T) {
		b.t = t
		b.visit(of)
		b.judge()
		b.signIn()
		b.sees("category-names")
	})
	t.Run("a rename is seen arriving", func(t *testing.T) {
		b.t = t
		b.visit(of)
		b.sees("Copies changed")
		const copies = "document.evaluate('//dt[.=\"Copies changed\"]/following-sibling::dd', document).iterateNext()?.innerText"
		b.until(copies + " === '1'")
		b.do(chromedp.Evaluate[chromedp.Void]("window.here = true"))
		s.put("productMeta", `{"id": "c1", "type": "category", "name": "Cycles"}`)
		b.until(copies + " === '2' && window.here")
	})
	t.Run("a dead letter is retried", func(t *testing.T) {
		b.t = t
		b.visit("/dead-letters")
		b.sees("There are no dead letters")
		s.put("product", fmt.Sprintf(`{"id": "p2", "categoryId": "c2", "pad": %q}`, strings.Repeat("x", itemBytesMax-500)))
		s.put("productMeta", fmt.Sprintf(`{"id": "c2", "type": "category", "name": %q}`, strings.Repeat("long ", 200)))
		b.until(`document.querySelector("a[href^='/dead-letters/default/category-names/']")`)
		b.judge()
		b.click(`a[href^='/dead-letters/default/category-names/']`)
		b.sees("What was given up")
		b.judge()
		b.press("Drop…")
		b.sees("Drop dead letters?")
		b.judge()
		b.click(`//a[.="Do nothing"]`)
		b.sees("Retry all of category-names")
		s.put("product", `{"id": "p2", "categoryId": "c2"}`)
		b.press("Retry all of category-names")
		b.sees("There are no dead letters of this pipeline")
	})
	t.Run("a plan is applied", func(t *testing.T) {
		b.t = t
		b.visit("/plan")
		b.judge()
		b.do(chromedp.SetValue("textarea[name=text]", strings.Replace(titles, "into: product", "into: produkt", 1)))
		b.press("Plan")
		b.sees("did you mean product?")
		b.judge()
		b.do(chromedp.SetValue("textarea[name=text]", titles))
		b.press("Plan")
		b.sees("Apply this plan")
		b.judge()
		b.press("Apply this plan")
		b.sees("category-titles created")
		b.judge()
		b.visit("/work")
		b.judge()
	})
	t.Run("a pipeline is verified", func(t *testing.T) {
		b.t = t
		b.visit(of)
		b.press("Verify")
		b.sees("equal")
		b.judge()
	})
	t.Run("an item's versions are seen, with keys and on a phone", func(t *testing.T) {
		b.t = t
		b.visit("/containers/default/product/item?key=c1&id=p1")
		b.click(`//a[.="Its last versions"]`)
		b.sees("Versions of p1")
		b.until(`document.querySelectorAll("table.versions th[scope=rowgroup]").length >= 3 && document.querySelector("table.versions").innerText.includes("category-names")`)
		b.judge()
		// On a phone the table is moved in its own frame, which the keys reach, and the page stays where it is.
		b.do(chromedp.EmulateViewport(360, 640))
		b.until("document.documentElement.scrollWidth <= 360")
		b.do(chromedp.Focus(".scroll"), chromedp.KeyEvent(kb.ArrowRight))
		b.until("document.querySelector('.scroll').scrollLeft > 0")
		b.judge()
		b.do(chromedp.Clear("input[name=limit]"), chromedp.SendKeys("input[name=limit]", "1"+kb.Enter))
		b.sees("There are older versions")
		b.click(`//a[.="Go on from there"]`)
		b.until(`new URLSearchParams(location.search).get("before") && document.querySelector("table.versions th[scope=rowgroup]")`)
		b.judge()
		b.visit("/containers/default/product/item?key=c1&id=none")
		b.sees("No such item")
		b.judge()
		b.click(`//a[starts-with(., "versions of")]`)
		b.sees("read to its first commit")
		b.do(chromedp.EmulateReset())
	})
	t.Run("axe-core finds nothing on the other screens", func(t *testing.T) {
		b.t = t
		axe(t)
		const product = "/containers/default/product"
		for _, path := range []string{
			"/", of, "/map", "/heat", "/nodes", "/containers", product, product + "/item?key=c1&id=p1", product + "/item?new", "/query?container=default%2Fproduct&q=SELECT+*+FROM+c",
			"/query?container=default%2Fproduct&explain=1&q=SELECT+*+FROM+c+WHERE+c.categoryId+%3D+%22c1%22+ORDER+BY+c.name", "/none",
		} {
			b.visit(path)
			b.until("document.readyState === 'complete'")
			b.judge()
		}
	})
	t.Run("the server is killed and comes back", func(t *testing.T) {
		b.t = t
		b.visit("/")
		b.sees("category-names")
		s.Kill()
		b.until("document.body.classList.contains('away')")
		s.run()
		// Sessions are in the memory of the process: the page finds the way to sign in by itself.
		b.sees("Sign in")
		b.signIn()
		b.sees("category-names")
	})
}
