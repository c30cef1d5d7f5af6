package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/configs"
)

// MaxPayloadMin is the least max_payload of a NATS server that Millrace works
// with: a commit must fit into one message.
const MaxPayloadMin = 7 << 20

// PayloadError says that a NATS server takes too small messages.
type PayloadError struct {
	Server string
	Bytes  int64
}

func (e *PayloadError) Error() string {
	return fmt.Sprintf("the NATS server at %s takes messages of at most %d bytes; set max_payload: 8MB in its configuration", e.Server, e.Bytes)
}

// Connect connects to the NATS servers of cfg as login says. The connection finds
// its way back by itself for ever. Callers close it. The error is a
// *CredentialsError if the credentials are not good. more are applied last.
func Connect(ctx context.Context, cfg *configs.Config, login *Login, name string, log *slog.Logger, more ...nats.Option) (*nats.Conn, error) {
	options := []nats.Option{
		nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 100*time.Millisecond), nats.Timeout(dialTimeout),
		nats.ReconnectBufSize(16 << 20),
		// The client asks for signs of life; the wire judges what comes.
		nats.SetCustomDialer(&dialer{silenceMax: cfg.Connect.SilenceMax}), nats.PingInterval(cfg.Connect.SilenceMax / 3), nats.MaxPingsOutstanding(1 << 20),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("the NATS server cannot be reached; trying again", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) { log.Info("connected to NATS again", "server", Redacted(nc.ConnectedUrl())) }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			attrs := []any{"error", err}
			if sub != nil {
				attrs = append(attrs, "subject", sub.Subject)
			}
			log.Warn("NATS", attrs...)
		}),
		// Credentials may be replaced: who is refused tries again, with the new ones.
		nats.IgnoreAuthErrorAbort(),
		login.option(),
	}
	secure, err := tlsConfig(cfg.Connect)
	if err != nil {
		return nil, err
	}
	if secure != nil {
		options = append(options, nats.Secure(secure))
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	nc, err := nats.Connect(cfg.Server, append(options, more...)...)
	if err != nil {
		return nil, login.refused(cfg.Server, fmt.Errorf("connect to NATS at %s: %w", Redacted(cfg.Server), withoutSecrets(err)))
	}
	if n := nc.MaxPayload(); n < MaxPayloadMin {
		server := Redacted(nc.ConnectedUrl())
		nc.Close()
		return nil, &PayloadError{server, n}
	}
	return nc, nil
}

// tlsConfig reads the files; it is nil if none is named.
func tlsConfig(how configs.Connect) (*tls.Config, error) {
	if how.CA == "" && how.Cert == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if how.CA != "" {
		pem, err := os.ReadFile(how.CA)
		if err != nil {
			return nil, fmt.Errorf("connect.ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("connect.ca: no certificate in %s", how.CA)
		}
	}
	if how.Cert != "" {
		if how.Key == "" {
			return nil, errors.New("connect.cert and connect.key go together")
		}
		pair, err := tls.LoadX509KeyPair(how.Cert, how.Key)
		if err != nil {
			return nil, fmt.Errorf("connect.cert: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
