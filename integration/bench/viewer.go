//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"

	"golang.org/x/sync/errgroup"
)

// viewer does what the console's script does in a browser. One goroutine uses it.
type viewer struct {
	home   string // URL of the console, without a path
	client *http.Client
}

// newViewer signs in.
func newViewer(ctx context.Context, home string) (*viewer, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, fmt.Errorf("keep cookies: %w", err)
	}
	v := &viewer{home: home, client: &http.Client{Jar: jar, Transport: &http.Transport{}}}
	// The page that signing in leads to is not asked for: it is what is measured.
	v.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	form := strings.NewReader(url.Values{"key": {masterKey}, "to": {"/"}}.Encode())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, home+"/sign-in", form)
	if err != nil {
		return nil, fmt.Errorf("sign in: %w", err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := v.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("sign in: %w", err)
	}
	_ = response.Body.Close() // the status says it all
	if response.StatusCode != http.StatusSeeOther {
		return nil, fmt.Errorf("sign in: status %d", response.StatusCode)
	}
	return v, nil
}

// close closes the viewer's connections.
func (v *viewer) close() { v.client.CloseIdleConnections() }

// ask asks for a page; of one that is shown already for its live part.
func (v *viewer) ask(ctx context.Context, path string, part bool) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, v.home+path, nil)
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", path, err)
	}
	if part {
		request.Header.Set("X-Part", "live")
	}
	response, err := v.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close() // it is not what was asked for
		return nil, fmt.Errorf("look at %s: status %d", path, response.StatusCode)
	}
	return response.Body, nil
}

// get returns a page as it is sent.
func (v *viewer) get(ctx context.Context, path string, part bool) ([]byte, error) {
	answer, err := v.ask(ctx, path, part)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(answer)
	return body, errors.Join(err, answer.Close())
}

// follow fetches the page again after each event until ctx ends; what comes while it does so is one event. It
// calls began when the first event has come, and show with what it has fetched.
func (v *viewer) follow(ctx context.Context, path string, began func(), show func([]byte)) error {
	events, err := v.ask(ctx, "/events", false)
	if err != nil {
		return err
	}
	came := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		defer func() { _ = events.Close() }() // nothing more is read
		lines := bufio.NewScanner(events)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "data:") {
				select {
				case came <- struct{}{}:
				default:
				}
			}
		}
		ended <- fmt.Errorf("the events have ended: %w", errors.Join(lines.Err(), io.ErrUnexpectedEOF))
	}()
	for first := true; ; first = false {
		select {
		case <-came:
		case err := <-ended:
			return err
		}
		if first {
			began()
		}
		body, err := v.get(ctx, path, true)
		if err != nil {
			return err
		}
		show(body)
	}
}

// viewers look at one page together.
type viewers struct {
	cancel context.CancelFunc
	group  *errgroup.Group
}

// lookAt has viewers follow a page until they leave, and waits until all do. show gets what each of them has fetched, by
// the goroutine of that one.
func lookAt(ctx context.Context, home, path string, show func(viewer int, body []byte)) (*viewers, error) {
	all := &viewers{}
	ctx, all.cancel = context.WithCancel(ctx)
	group, looking := errgroup.WithContext(ctx)
	all.group = group
	arrived := make(chan struct{}, consoleViewers)
	for i := range consoleViewers {
		v, err := newViewer(ctx, home)
		if err != nil {
			return nil, errors.Join(err, all.leave())
		}
		all.group.Go(func() error {
			defer v.close()
			err := v.follow(looking, path, func() { arrived <- struct{}{} }, func(body []byte) { show(i, body) })
			if ctx.Err() != nil {
				return nil // it has left
			}
			return err
		})
	}
	for range consoleViewers {
		select {
		case <-arrived:
		case <-looking.Done():
			return nil, errors.Join(context.Cause(looking), all.leave())
		}
	}
	return all, nil
}

// leave ends what lookAt began, and returns why somebody saw nothing more before that.
func (a *viewers) leave() error {
	a.cancel()
	return a.group.Wait()
}
