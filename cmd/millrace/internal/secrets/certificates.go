package secrets

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// How long certificates are good for.
const (
	caYears     = 10
	serverYears = 1
	// skew is for clocks that run behind.
	skew = time.Hour
)

// certificates makes a CA and the servers' certificate, each if it is not there. The CA's key is
// needed only where something is to be signed: whoever keeps it elsewhere can still have the
// credentials of a user made anew.
func (m *maker) certificates(servers []string) {
	if m.err != nil || there(m.path(FileCA)) && there(m.path(FileServer)) && there(m.path(FileServerKey)) {
		return
	}
	ca, err := m.authority()
	if err != nil {
		m.err = err
		return
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "millrace NATS"},
		NotAfter:    time.Now().AddDate(serverYears, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, // routes are both
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	for _, server := range servers {
		if ip := net.ParseIP(server); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, server)
		}
	}
	_, m.err = m.sign(template, ca, FileServer, FileServerKey)
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// authority reads the CA, or makes it. It replaces none whose key is away: whoever has a copy of the
// former one would not trust what the new one signs.
func (m *maker) authority() (*tls.Certificate, error) {
	if there(m.path(FileCA)) {
		if !there(m.path(FileCAKey)) {
			return nil, fmt.Errorf("%s, which signs the certificate of the servers, is not there: put it back, or delete %s to begin with another CA",
				m.path(FileCAKey), m.path(FileCA))
		}
		pair, err := tls.LoadX509KeyPair(m.path(FileCA), m.path(FileCAKey))
		if err != nil {
			return nil, fmt.Errorf("read the CA in %s: %w", m.dir, err)
		}
		return &pair, nil
	}
	return m.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "millrace CA"}, NotAfter: time.Now().AddDate(caYears, 0, 0),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, nil, FileCA, FileCAKey)
}

// sign makes a key and a certificate and writes both. Without a CA the
// certificate signs itself.
func (m *maker) sign(template *x509.Certificate, ca *tls.Certificate, certFile, keyFile string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	template.NotBefore = time.Now().Add(-skew)
	parent, signer := template, crypto.PrivateKey(key)
	if ca != nil {
		parent, signer = ca.Leaf, ca.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	// The key first: a CA's certificate that is there counts as the CA, and without its key
	// nobody could sign with it.
	m.write(keyFile, 0o600, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
	m.write(certFile, 0o644, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, errors.Join(m.err)
}
