package gateway

import (
	"context"
	"testing"
)

// Pages that wait for a partition without an owner keep no others waiting for long.
func TestInTurn_APageThatTakesLongLosesItsTurn(t *testing.T) {
	t.Parallel()
	s := &Server{pages: make(chan struct{}, 2)}
	ctx, cancel := context.WithCancel(t.Context())
	stuck := make(chan error, cap(s.pages))
	for range cap(s.pages) {
		go func() {
			_, err := s.inTurn(&exchange{ctx: ctx}, func() ([]byte, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			stuck <- err
		}()
	}
	for range 2 * cap(s.pages) {
		if body, err := s.inTurn(&exchange{ctx: t.Context()}, func() ([]byte, error) { return []byte("page"), nil }); string(body) != "page" {
			t.Fatal(err)
		}
	}
	cancel()
	for range cap(s.pages) {
		if err := <-stuck; err == nil {
			t.Error("a page that was not made has a body")
		}
	}
	if n := len(s.pages); n != 0 {
		t.Errorf("%d turns are taken still", n)
	}
}
