// Command millrace keeps copies true: it stores JSON items in partitioned
// containers and keeps what is copied between them equal to its source.
//
// A file holds a verb. Every verb takes -o table|json|yaml and exits with 0, with
// 1 if the answer is bad news (a difference was found, an item was rejected, the
// thing asked for is not there), or with 2 if it could not be asked (a wrong
// flag, no server).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/millrace/millrace/store/script"
)

// version is set by the linker.
var version = ""

func main() {
	script.ServeIfAsked() // this process runs scripts for another one, and does nothing else
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks to stop, a second one finds no handler and kills.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr})
	stop()
	os.Exit(code)
}

// run carries out one command line and returns the exit code.
func run(ctx context.Context, args []string, s streams) int {
	a := &app{streams: s}
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return codeOK
	}
	if ctx.Err() != nil && isCanceled(err) {
		fmt.Fprintln(s.err, "stopped")
		if _, next, ok := strings.Cut(err.Error(), "\nnext: "); ok {
			fmt.Fprintln(s.err, "next: "+next)
		}
		return codeNotAsked
	}
	code, text := explain(err)
	fmt.Fprintln(s.err, text)
	return code
}
