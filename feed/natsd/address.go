package natsd

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millrace/millrace/feed/atomicfile"
)

// ReadAddress returns the URL of the server that listens and takes the credentials in a
// directory. The error is fs.ErrNotExist if there is none. A process that was killed leaves its
// URL until the next one: whoever connects learns that nobody listens.
func ReadAddress(credentials string) (string, error) {
	data, err := os.ReadFile(filepath.Join(credentials, FileAddress))
	if err != nil {
		return "", fmt.Errorf("read where the server listens: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// tellAddress writes where a server listens to a file beside the credentials.
func (s *Server) tellAddress(n *server.Server) error {
	if s.cfg.DontListen {
		return nil
	}
	at, err := url.Parse(n.ClientURL())
	if err != nil {
		return err
	}
	// Every address of the machine: the loopback is one of them.
	if ip := net.ParseIP(at.Hostname()); ip != nil && ip.IsUnspecified() {
		at.Host = net.JoinHostPort("localhost", at.Port())
	}
	return atomicfile.WriteMkdir(filepath.Join(s.cfg.Credentials, FileAddress), []byte(at.String()+"\n"))
}
