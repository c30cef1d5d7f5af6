package natsd_test

import (
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
