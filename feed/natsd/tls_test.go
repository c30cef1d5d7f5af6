package natsd_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed/natsd"
)

func TestOpen_TLS(t *testing.T) {
	cert, key := certificate(t)
	s := open(t, natsd.Config{
		Port: natsd.PortRandom, User: "u", Password: "p", TLS: natsd.TLS{Cert: cert, Key: key, CA: cert}, Log: slog.New(slog.DiscardHandler),
	})
	in, err := s.Conn()
	if err != nil {
		t.Fatalf("in process: %v", err)
	}
	in.Close()
	if nc, err := nats.Connect(s.ClientURL(), nats.UserInfo("u", "p"), nats.RootCAs(cert)); err == nil {
		nc.Close()
		t.Error("a client without a certificate was let in")
	}
	out, err := nats.Connect(s.ClientURL(), nats.UserInfo("u", "p"), nats.RootCAs(cert), nats.ClientCert(cert, key), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	out.Close()
	if err := os.WriteFile(key, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := natsd.Open(t.Context(), natsd.Config{Dir: t.TempDir(), DontListen: true, TLS: natsd.TLS{Cert: cert, Key: key}}); err == nil {
		s.Close()
		t.Error("an empty key was taken")
	}
}

// What crosses the network readably is in the log: clients and routes, each by its own host.
func TestOpen_WarnsOfWhatHasNoTLS(t *testing.T) {
	const clients, routes = "listens beyond this machine without TLS", "takes routes of its cluster beyond this machine without TLS"
	cert, key := certificate(t)
	cluster := func(host string) natsd.Cluster {
		return natsd.Cluster{Name: "c", Host: host, Port: natsd.PortRandom, User: "u", Password: "p"}
	}
	for name, c := range map[string]struct {
		cfg             natsd.Config
		clients, routes bool
	}{
		"loopback":               {natsd.Config{}, false, false},
		"routes by default":      {natsd.Config{Cluster: cluster("")}, false, true},
		"routes of a host":       {natsd.Config{Cluster: cluster("0.0.0.0"), DontListen: true}, false, true},
		"routes on the loopback": {natsd.Config{Cluster: cluster("127.0.0.1")}, false, false},
		"all":                    {natsd.Config{Host: "0.0.0.0", Cluster: cluster("")}, true, true},
		"TLS":                    {natsd.Config{Host: "0.0.0.0", Cluster: cluster(""), TLS: natsd.TLS{Cert: cert, Key: key}}, false, false},
	} {
		var log bytes.Buffer
		c.cfg.Dir, c.cfg.Port, c.cfg.Log = t.TempDir(), natsd.PortRandom, slog.New(slog.NewTextHandler(&log, nil))
		// A cluster without routes to others does not start. What is readable is told before.
		if s, err := natsd.Open(t.Context(), c.cfg); err == nil {
			s.Close()
		}
		if told := log.String(); strings.Contains(told, clients) != c.clients || strings.Contains(told, routes) != c.routes {
			t.Errorf("%s: clients %v and routes %v are to be told; the log is\n%s", name, c.clients, c.routes, told)
		}
	}
}

// certificate writes one that is good for a server, a client and its own
// authority.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "millrace"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}
