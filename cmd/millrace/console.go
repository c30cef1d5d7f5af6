package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/console"
	"github.com/millrace/millrace/cmd/millrace/node"
)

// consoleStopTimeout bounds how long the last pages may take when the command ends.
const consoleStopTimeout = 2 * time.Second

func newConsole(a *app) *cobra.Command {
	var port int
	var browser bool
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Show in a browser where everything stands",
		Long: `Console serves pages for a browser on this machine: where every pipeline stands and
what is stuck, containers with their items, and SQL. It connects as every other
command does, to a cluster too, and runs until interrupted.

The address that it prints signs in the first browser that opens it, with the rights of
the command's credentials: those of read-only.json look and change nothing. millrace up
and millrace store serve the same pages at --listen, with TLS off the loopback; one
signs in there with a key of millrace keys show.`,
		Example: "  millrace console --server nats://10.0.0.7:4222 --creds read-only.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
				return a.serveConsole(ctx, s, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), browser)
			})
		},
	}
	cmd.Flags().IntVar(&port, "port", 0, "port on 127.0.0.1; 0 takes a free one")
	cmd.Flags().BoolVar(&browser, "browser", true, "open the address in a browser, where there is one")
	return cmd
}

// serveConsole serves the console until ctx ends.
func (a *app) serveConsole(ctx context.Context, s *session, address string, browser bool) error {
	// The console acts with the rights of its own connection, so a reader's console must not
	// offer what NATS would refuse.
	role := console.RoleWrite
	login, err := node.FindLogin(s.cfg)
	if err != nil {
		return err
	}
	if login.ReadOnly() {
		role = console.RoleRead
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("the console cannot listen: %w", err)
	}
	log := a.logger(s.cfg)
	c := console.New(&console.Config{
		Inspect:  *s.inspected(),
		Loopback: true, Logger: log,
	})
	server := &http.Server{Handler: c, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	ctx, end := context.WithCancel(ctx)
	defer end()
	done := make(chan error, 1)
	go func() {
		done <- server.Serve(listener)
		end() // the server has failed: end the command, which waits in c.Run
	}()
	url := "http://" + listener.Addr().String() + c.Ticket(role)
	if err := a.print(map[string]string{"url": url}, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "console: %s\nThe address signs in the first browser that opens it. Interrupt to end.\n", url)
		return err
	}); err != nil {
		return errors.Join(err, server.Close())
	}
	if browser {
		openBrowser(ctx, url, log)
	}
	c.Run(ctx)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), consoleStopTimeout)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		log.Debug("console", slog.Any("error", err))
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("console: %w", err)
	}
	return nil
}

// openBrowser opens url in the browser of the desktop. Where there is none, the address is printed
// anyway.
func openBrowser(ctx context.Context, url string, log *slog.Logger) {
	var opener string
	switch {
	case runtime.GOOS == "darwin":
		opener = "open"
	case os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "":
		opener = "xdg-open"
	default:
		return
	}
	go func() { // an opener may stay for as long as its browser
		if err := exec.CommandContext(ctx, opener, url).Run(); err != nil { //nolint:gosec // a fixed program
			log.Debug("no browser was opened", slog.Any("error", err))
		}
	}()
}
