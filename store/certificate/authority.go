package certificate

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
	"io/fs"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/feed/atomicfile"
)

const (
	// authorityLife is how long an authority that is made here is valid.
	authorityLife = 10 * 365 * 24 * time.Hour
	// authorityRest is the validity that an authority must have left to be used again: a
	// year for a leaf, and a month in which clients get the next authority.
	authorityRest = 395 * 24 * time.Hour
	// backdate is how long before it was made a certificate becomes valid, for clients whose
	// clocks are behind.
	backdate = time.Hour
)

// The files of what is made here, in Config.Dir.
const (
	authorityFile    = "ca.pem"
	authorityKeyFile = "ca-key.pem"
	leafFile         = "cert.pem"
	leafKeyFile      = "key.pem"
)

// authority signs the certificates that a node makes for itself. Clients are told to trust it.
// It is constrained to the names and addresses by which clients reach the node, so a thief of
// its key can pretend to be this node and no other.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte // of cert
	// keyPEM is set by newAuthority alone.
	keyPEM []byte
	file   string // holds pem; "" if it is kept in memory alone
}

// openAuthority reads the authority that was made at an earlier start. It makes one if there is
// none, if it runs out, or if it may not sign for one of hosts. made says that it is new, so
// that clients must be given it. Without dir it is made, and kept in memory alone.
func openAuthority(dir string, hosts []string, now time.Time) (a *authority, made bool, err error) {
	if dir == "" {
		a, err = newAuthority(hosts, now)
		return a, true, err
	}
	file, keyFile := filepath.Join(dir, authorityFile), filepath.Join(dir, authorityKeyFile)
	pair, err := tls.LoadX509KeyPair(file, keyFile)
	switch {
	case err == nil:
		key, ok := pair.PrivateKey.(crypto.Signer)
		if ok && pair.Leaf.IsCA && permitsAll(pair.Leaf, hosts) && pair.Leaf.NotAfter.Sub(now) >= authorityRest {
			text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Leaf.Raw})
			return &authority{cert: pair.Leaf, key: key, pem: text, file: file}, false, nil
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, false, fmt.Errorf("the node's own authority: %w; delete %s and %s, and a new one is made", err, file, keyFile)
	}
	if a, err = newAuthority(hosts, now); err != nil {
		return nil, false, err
	}
	a.file = file
	// The key first: a certificate without its key would be refused at the next start.
	if err := errors.Join(atomicfile.WriteMkdir(keyFile, a.keyPEM), atomicfile.WriteMkdir(file, a.pem)); err != nil {
		return nil, false, err
	}
	return a, true, nil
}

// newAuthority makes an authority for hosts.
func newAuthority(hosts []string, now time.Time) (*authority, error) {
	certPEM, keyPEM, err := makeAuthority(hosts, now)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("the node's own authority: %w", err)
	}
	return &authority{cert: pair.Leaf, key: pair.PrivateKey.(crypto.Signer), pem: certPEM, keyPEM: keyPEM}, nil
}

// permitsAll reports whether an authority may sign for all hosts.
func permitsAll(ca *x509.Certificate, hosts []string) bool {
	for _, host := range hosts {
		if !permits(ca, host) {
			return false
		}
	}
	return true
}

func permits(ca *x509.Certificate, host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		for _, network := range ca.PermittedIPRanges {
			if network.Contains(ip) {
				return true
			}
		}
		return false
	}
	for _, domain := range ca.PermittedDNSDomains {
		if strings.EqualFold(domain, host) {
			return true
		}
	}
	return false
}

// makeAuthority makes an authority that may sign for hosts, for loopback addresses and
// for nothing else, and no other authority.
func makeAuthority(hosts []string, now time.Time) (certPEM, keyPEM []byte, err error) {
	template, err := newTemplate("millrace authority", now, authorityLife)
	if err != nil {
		return nil, nil, err
	}
	template.KeyUsage = x509.KeyUsageCertSign
	// Path length 0: what it signs cannot sign further certificates. Critical: a client that
	// does not know such constraints must refuse it.
	template.IsCA, template.MaxPathLenZero = true, true
	template.PermittedDNSDomainsCritical = true
	template.PermittedIPRanges = []*net.IPNet{
		{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)},
		{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)},
	}
	for _, host := range hosts {
		ip := net.ParseIP(host)
		switch {
		case ip == nil:
			template.PermittedDNSDomains = append(template.PermittedDNSDomains, host)
		case ip.IsLoopback():
		case ip.To4() != nil:
			template.PermittedIPRanges = append(template.PermittedIPRanges, &net.IPNet{IP: ip.To4(), Mask: net.CIDRMask(32, 32)})
		default:
			template.PermittedIPRanges = append(template.PermittedIPRanges, &net.IPNet{IP: ip, Mask: net.CIDRMask(128, 128)})
		}
	}
	return sign(template, nil)
}

// makeLeaf makes the certificate that the server shows for hosts.
func (a *authority) makeLeaf(hosts []string, now time.Time, life time.Duration) (certPEM, keyPEM []byte, err error) {
	template, err := newTemplate("millrace", now, life)
	if err != nil {
		return nil, nil, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return sign(template, a)
}

func newTemplate(name string, now time.Time, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(life),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}, nil
}

// sign makes a key for a template, and a certificate that a signs; if a is nil, the certificate
// signs itself.
func sign(template *x509.Certificate, a *authority) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	parent, signer := template, crypto.Signer(key)
	if a != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
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
