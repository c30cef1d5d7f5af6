package gateway_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/store/gateway"
)

// The authority of the server's own is made once, and whoever trusts its file reaches
// the server by every name of this machine.
func TestListen_CertificateOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	dir := filepath.Join(t.TempDir(), "gateway")
	l, stop := listen(t, w, gateway.Config{Dir: dir, PublicURL: "https://db.example.com"})
	ca, leaf := contents(t, dir, "ca.pem"), contents(t, dir, "cert.pem")
	for _, name := range []string{"ca-key.pem", "key.pem"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	_, port, err := net.SplitHostPort(l.Address())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"localhost", "127.0.0.1"} {
		if err := get(t, w, trusting(t, l.Authority()), "https://"+net.JoinHostPort(host, port)); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if err := get(t, w, trusting(t, ""), "https://localhost:"+port); err == nil {
		t.Error("a client that does not trust the authority was answered")
	}
	stop()
	_, stop = listen(t, w, gateway.Config{Dir: dir, PublicURL: "https://db.example.com"})
	if contents(t, dir, "ca.pem") != ca || contents(t, dir, "cert.pem") != leaf {
		t.Error("a second start made another authority or certificate")
	}
	stop()
	// One that does not cover what clients reach it by is made anew.
	_, stop = listen(t, w, gateway.Config{Dir: dir, PublicURL: "https://other.example.com"})
	if contents(t, dir, "ca.pem") == ca || contents(t, dir, "cert.pem") == leaf {
		t.Error("a new name has the authority of before")
	}
	stop()
	// A given one is taken as it is.
	l, _ = listen(t, w, gateway.Config{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")})
	if l.Authority() != "" {
		t.Errorf("a given certificate counts as made here: %s", l.Authority())
	}
	if err := get(t, w, trusting(t, filepath.Join(dir, "ca.pem")), "https://"+l.Address()); err != nil {
		t.Error(err)
	}
}

// Whoever gets the authority's key can sign for this node and for nothing else.
func TestAuthority_SignsForThisNodeAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	dir := t.TempDir()
	listen(t, w, gateway.Config{Dir: dir, PublicURL: "https://db.example.com"})
	ca, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	served, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if served.Leaf.IsCA || served.Leaf.NotAfter.After(time.Now().AddDate(1, 0, 1)) {
		t.Errorf("what is shown is CA:%t until %s", served.Leaf.IsCA, served.Leaf.NotAfter)
	}
	trust := x509.NewCertPool()
	trust.AddCert(ca.Leaf)
	forge := func(isCA bool, parent *x509.Certificate, signer any, names ...string) (*x509.Certificate, *ecdsa.PrivateKey) {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "forged"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: isCA,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		for _, name := range names {
			if ip := net.ParseIP(name); ip != nil {
				template.IPAddresses = append(template.IPAddresses, ip)
			} else {
				template.DNSNames = append(template.DNSNames, name)
			}
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert, key
	}
	holds := func(cert *x509.Certificate, via ...*x509.Certificate) bool {
		between := x509.NewCertPool()
		for _, v := range via {
			between.AddCert(v)
		}
		_, err := cert.Verify(x509.VerifyOptions{Roots: trust, Intermediates: between})
		return err == nil
	}
	for name, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "127.0.0.9": true, "::1": true, "db.example.com": true,
		"example.com": false, "www.example.org": false, "10.0.0.1": false, "2001:db8::1": false,
	} {
		if cert, _ := forge(false, ca.Leaf, ca.PrivateKey, name); holds(cert) != want {
			t.Errorf("a certificate for %s holds: %t, want %t", name, !want, want)
		}
	}
	below, key := forge(true, ca.Leaf, ca.PrivateKey)
	if cert, _ := forge(false, below, key, "localhost"); holds(cert, below) {
		t.Error("another authority below this one holds")
	}
	if cert, _ := forge(false, served.Leaf, served.PrivateKey, "localhost"); holds(cert, served.Leaf) {
		t.Error("what is shown can sign")
	}
}

// A certificate is renewed under the feet of its clients when two thirds of its life
// are over, and a start after that goes on with it.
func TestCertificate_RenewsItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	dir := t.TempDir()
	var mu sync.Mutex
	var ahead time.Duration
	set := func(d time.Duration) { mu.Lock(); ahead = d; mu.Unlock() }
	now := func() time.Time { mu.Lock(); defer mu.Unlock(); return time.Now().Add(ahead) }
	const day = 24 * time.Hour
	l, stop := listen(t, w, gateway.Config{Dir: dir, Now: now})
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM([]byte(contents(t, dir, "ca.pem")))
	shown := func() *x509.Certificate {
		t.Helper()
		conn, err := tls.Dial("tcp", l.Address(), &tls.Config{RootCAs: trust, ServerName: "localhost", Time: now, MinVersion: tls.VersionTLS12})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }() // only looked at
		return conn.ConnectionState().PeerCertificates[0]
	}
	first := shown()
	set(240 * day)
	if !shown().Equal(first) {
		t.Error("renewed before two thirds of its life were over")
	}
	set(250 * day)
	second := shown()
	if second.Equal(first) || !shown().Equal(second) {
		t.Error("not renewed, or renewed at each handshake")
	}
	stop()
	l, _ = listen(t, w, gateway.Config{Dir: dir, Now: now})
	if !shown().Equal(second) {
		t.Error("another start does not go on with the renewed one")
	}
	for years := range 8 { // as long as the authority lasts, nobody has to learn of another
		set(time.Duration(years+1) * 365 * day)
		shown()
	}
}

// A directory of the version before, whose certificate was its own authority without
// constraints, gets an authority; whoever trusts its cert.pem by path goes on.
func TestCertificate_ReplacesOneThatSignsForAnyName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "millrace"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().AddDate(10, 0, 0), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true, IsCA: true,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if name, err := os.Hostname(); err == nil {
		template.DNSNames = append(template.DNSNames, name)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, _ := listen(t, w, gateway.Config{Dir: dir})
	for _, name := range []string{"ca.pem", "cert.pem"} {
		if err := get(t, w, trusting(t, filepath.Join(dir, name)), l.URL()); err != nil {
			t.Errorf("trusting %s: %v", name, err)
		}
	}
	shown, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	if err != nil || shown.Leaf.IsCA {
		t.Errorf("what is shown is still an authority, or %v", err)
	}
}

func contents(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
