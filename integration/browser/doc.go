// Package browser clicks through the console in a headless Chromium, on the real binary, and has
// axe-core judge every screen. It is a module of its own, because what drives the browser is no part
// of the product. Run it with
//
//	cd integration/browser && go test ./...
//
// Without Chromium the tests are skipped and say so; so is the judgement of axe-core where npm
// cannot install it. MILLRACE_TEST_CHROMIUM names another browser, and MILLRACE_TEST_BINARY a
// binary that was built already.
package browser
