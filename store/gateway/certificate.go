package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	// certificateLife is how long a certificate that is made here holds.
	certificateLife = 10 * 365 * 24 * time.Hour
	// certificateRest is the life that one must have left to be used again.
	certificateRest = 30 * 24 * time.Hour
)

// Certificate is what the server shows.
type Certificate struct {
	pair       tls.Certificate
	file       string
	selfSigned bool // made here
}

// openCertificate reads the configured certificate, or the one that was made at an
// earlier start, or makes one.
func openCertificate(c *Config) (*Certificate, error) {
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("gateway.cert and gateway.key: %w", err)
		}
		return &Certificate{pair: pair, file: c.Cert}, nil
	}
	certFile, keyFile := filepath.Join(c.Dir, "cert.pem"), filepath.Join(c.Dir, "key.pem")
	hosts := c.hosts()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	switch {
	case err == nil && serves(pair.Leaf, hosts):
		return &Certificate{pair, certFile, true}, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the gateway's own certificate: %w; delete %s and %s, and a new one is made", err, certFile, keyFile)
	}
	cert, key, err := makeCertificate(hosts, time.Now())
	if err != nil {
		return nil, err
	}
	// The key first: a certificate without its key would be refused at the next start.
	if err := errors.Join(writeSecret(keyFile, key), writeSecret(certFile, cert)); err != nil {
		return nil, err
	}
	if pair, err = tls.X509KeyPair(cert, key); err != nil {
		return nil, fmt.Errorf("the gateway's own certificate: %w", err)
	}
	return &Certificate{pair, certFile, true}, nil
}

// hosts are the names by which clients reach the server.
func (c *Config) hosts() []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if name, err := os.Hostname(); err == nil && name != "" {
		hosts = append(hosts, name)
	}
	if host, _, err := net.SplitHostPort(c.Listen); err == nil && host != "" {
		if ip := net.ParseIP(host); ip == nil || !ip.IsUnspecified() && !ip.IsLoopback() {
			hosts = append(hosts, host)
		}
	}
	if c.public != nil {
		hosts = append(hosts, c.public.Hostname())
	}
	return hosts
}

// serves tells whether a certificate is still good for all hosts.
func serves(leaf *x509.Certificate, hosts []string) bool {
	if time.Until(leaf.NotAfter) < certificateRest {
		return false
	}
	for _, host := range hosts {
		if leaf.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

// makeCertificate makes a certificate that signs itself, which is its own authority:
// whoever trusts its file trusts it.
func makeCertificate(hosts []string, now time.Time) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "millrace"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}
