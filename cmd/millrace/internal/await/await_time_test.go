package await_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/cmd/millrace/internal/await"
	"github.com/millrace/millrace/store"
)

// told counts what is told of a wait.
type told struct{ waits, ends int }

func (w *told) tell(_ string, _ time.Duration, err error) {
	if err == nil {
		w.ends++
		return
	}
	w.waits++
}

// TestUntil_TriesEverySecondAndSaysSo has something that comes after half a minute.
func TestUntil_TriesEverySecondAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w told
		began, tries := time.Now(), 0
		err := await.Until(t.Context(), w.tell, "it", func(context.Context) error {
			if tries++; time.Since(began) < 30*time.Second {
				return fmt.Errorf("ask: %w", nats.ErrNoResponders)
			}
			return nil
		})
		if err != nil || tries != 31 || w.waits != 6 || w.ends != 1 {
			t.Errorf("%v after %d tries; told %+v", err, tries, w)
		}
	})
}

// TestUntil_ALostRequestIsNotWaitedForForLong asks somebody who answers only the
// second time: the first try is given up.
func TestUntil_ALostRequestIsNotWaitedForForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w told
		began, tries := time.Now(), 0
		err := await.Until(t.Context(), w.tell, "it", func(ctx context.Context) error {
			if tries++; tries == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		if took := time.Since(began); err != nil || took > 10*time.Second || w.waits != 1 {
			t.Errorf("%v after %v; told %+v", err, took, w)
		}
	})
}

// TestUntil_EndsWithTheLastError stops because its time is over.
func TestUntil_EndsWithTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var w told
		err := await.Until(ctx, w.tell, "the quorum", func(context.Context) error { return nats.ErrNoServers })
		if !errors.Is(err, nats.ErrNoServers) || err.Error() != "waited 10s for the quorum: nats: no servers available for connection" {
			t.Error(err)
		}
	})
}

// TestUntil_ATryCutOffHidesNoReason ends in the middle of a try.
func TestUntil_ATryCutOffHidesNoReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
		defer cancel()
		var w told
		err := await.Until(ctx, w.tell, "NATS", func(ctx context.Context) error {
			if w.waits == 0 {
				return nats.ErrNoServers
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, nats.ErrNoServers) {
			t.Error(err)
		}
	})
}

// TestPasses tells what is on its way from what has to be repaired.
func TestPasses(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for _, test := range []struct {
		name string
		err  error
		want bool
	}{
		{"nobody listens yet", refused, true},
		{"a request was lost", context.DeadlineExceeded, true},
		{"JetStream has no leader", &jetstream.APIError{Code: 503, ErrorCode: 10008}, true},
		{"too few servers for the replicas", &jetstream.APIError{Code: 400, ErrorCode: 10005}, true},
		{"a partition has no owner yet", &store.NoOwnerError{}, true},
		{"stopped", context.Canceled, false},
		{"credentials are refused", fmt.Errorf("connect: %w", nats.ErrAuthorization), false},
		{"the certificate is not trusted", &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, false},
		{"a server alone cannot hold replicas", &jetstream.APIError{Code: 500, ErrorCode: 10074}, false},
		{"no such container", &store.NoContainerError{}, false},
	} {
		if got := await.Passes(test.err); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// TestPasses_AServerThatPingsDuringTheHandshake has a server whose ping interval is over
// before the client, on a slow machine, has said all that it says first.
func TestPasses_AServerThatPingsDuringTheHandshake(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- pingFirst(listener) }()
	_, err = nats.Connect("nats://" + listener.Addr().String())
	if err == nil || !await.Passes(err) {
		t.Errorf("%v is taken for what does not pass", err)
	}
	if err := errors.Join(<-served, listener.Close()); err != nil {
		t.Error(err)
	}
}

// pingFirst shakes one client's hand and answers its first PING with one of its own.
func pingFirst(listener net.Listener) error {
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the client ends it
	if _, err := io.WriteString(conn, `INFO {"server_id":"S","version":"2.12.0","proto":1,"max_payload":1048576}`+"\r\n"); err != nil {
		return err
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if lines.Text() == "PING" {
			_, err := io.WriteString(conn, "PING\r\nPONG\r\n")
			return err
		}
	}
	return errors.New("the client has not said PING")
}
