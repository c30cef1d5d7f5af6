// Package certificate has the certificates that a node's listeners show: those of the operator, or
// some that the node makes by itself.
//
//	authority (ten years, for this node's names alone) signs leaf (a year), renewed at two thirds
//	ca.pem, ca-key.pem                                       cert.pem, key.pem
//
// Clients are told to trust ca.pem, so a renewal is nothing to them. What is made lies in a directory
// of each listener's own, so that a thief of one authority's key pretends to be no other listener.
//
// It is no API: gateway and node use it, and it changes without notice.
package certificate

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/feed/atomicfile"
)

const (
	// LifeDefault is the default of Config.Life, and the most that it may be.
	LifeDefault = 365 * 24 * time.Hour
	// LifeMin is the least that Config.Life may be.
	LifeMin = 3 * time.Second
	// renewAgain is the pause before a failed renewal is tried again, or files that could not be
	// used and have not changed since.
	renewAgain = time.Minute
	// lookAgain is the pause between two looks at the configured files.
	lookAgain = 2 * time.Second
)

// Config says which certificate a listener shows.
type Config struct {
	// Section is the part of the configuration that is meant, such as gateway; messages name it.
	Section string
	// Cert and Key are files, in PEM form, of a certificate that was made elsewhere.
	Cert, Key string
	// Dir is where what is made here is kept. Empty: in memory alone.
	Dir string
	// Hosts are the names and addresses that a certificate that is made here is for.
	Hosts []string
	// Life is how long a certificate holds that is made here. Default LifeDefault.
	Life time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Logger is told of new authorities and of renewals. Default slog.Default.
	Logger *slog.Logger
}

// Certificate is the certificate of a listener: the configured one, or one that is made here.
// The former is read again when its files have changed. The latter is signed by an authority that
// is made here too, and is renewed when two thirds of its life are over. It is safe for concurrent
// use.
type Certificate struct {
	// Set once by Open.
	cfg       Config
	authority *authority // nil: the certificate is configured

	// pair is what handshakes are shown. Open stores it, then who holds mu.
	pair atomic.Pointer[tls.Certificate]

	// mu is held over the reading and writing of files. Handshakes do not wait for it as long as
	// they have a certificate that holds.
	mu     sync.Mutex
	failed time.Time // when a renewal failed last, or a reading of the configured files
	files  files     // as they were when they were read last
	looked time.Time // when they were looked at last
}

// Open reads the configured certificate, or the one that was made at an earlier start, or makes
// one.
func Open(cfg Config) (*Certificate, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Cert != "" {
		return openConfigured(cfg)
	}
	cfg.Life = cmp.Or(cfg.Life, LifeDefault)
	made := &Certificate{cfg: cfg}
	_, missing := os.Stat(filepath.Join(cfg.Dir, authorityFile))
	a, isNew, err := openAuthority(cfg.Dir, cfg.Hosts, cfg.Now())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Section, err)
	}
	made.authority = a
	if cfg.Dir == "" {
		return made, made.renew()
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(cfg.Dir, leafFile), filepath.Join(cfg.Dir, leafKeyFile))
	switch {
	case err == nil && made.serves(&pair):
		made.pair.Store(&pair)
		return made, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: the node's own certificate: %w; delete %s and %s in %s, and a new one is made", cfg.Section, err, leafFile, leafKeyFile, cfg.Dir)
	}
	if isNew && (missing == nil || err == nil) {
		made.tellOfAuthority(missing == nil)
	}
	if err := made.keep(&pair); err != nil {
		return nil, err
	}
	return made, nil
}

// TLS returns what a listener needs to show the certificate: HTTP/1.1 over TLS 1.2 or later.
func (c *Certificate) TLS() *tls.Config {
	return &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
}

// Authority returns the file of the authority that was made here, which clients must be told to
// trust; "" if the certificate is configured, or nothing is kept.
func (c *Certificate) Authority() string {
	if c.authority == nil {
		return ""
	}
	return c.authority.file
}

// Hosts are the names by which clients reach a listener: those of the loopback and of this machine,
// the address at which it listens, unless that is all of them, and more.
func Hosts(listen string, more ...string) []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if name, err := os.Hostname(); err == nil && name != "" {
		hosts = append(hosts, name)
	}
	if host, _, err := net.SplitHostPort(listen); err == nil && host != "" {
		if ip := net.ParseIP(host); ip == nil || !ip.IsUnspecified() && !ip.IsLoopback() {
			hosts = append(hosts, host)
		}
	}
	return append(hosts, more...)
}

// tellOfAuthority logs that clients need the new authority in place of the one they trust.
func (c *Certificate) tellOfAuthority(anew bool) {
	why := "the certificate of the version before could sign for any name, for ten years"
	if anew {
		why = "the authority before does not cover a name by which this node is reached, or runs out"
	}
	c.cfg.Logger.Warn("there is a new authority; clients that trust a copy of the file before must be given this one, and those that run be started again",
		slog.String("of", c.cfg.Section), slog.String("file", c.authority.file), slog.String("why", why))
}

// serves reports whether a certificate is signed by the authority, valid for all hosts, and not
// due for renewal.
func (c *Certificate) serves(pair *tls.Certificate) bool {
	if c.renewalDue(pair.Leaf) || pair.Leaf.CheckSignatureFrom(c.authority.cert) != nil {
		return false
	}
	for _, host := range c.cfg.Hosts {
		if pair.Leaf.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

// renewalDue reports whether two thirds of the life of a certificate are over.
func (c *Certificate) renewalDue(leaf *x509.Certificate) bool {
	// The configured life may be shorter than the one with which the certificate was made.
	life := min(c.cfg.Life, leaf.NotAfter.Sub(leaf.NotBefore.Add(backdate)))
	return c.cfg.Now().After(leaf.NotAfter.Add(-life / 3))
}

// renew makes a new certificate in place of the one that is there. c.mu is held, or c
// is not shared yet.
func (c *Certificate) renew() error {
	cert, key, err := c.authority.makeLeaf(c.cfg.Hosts, c.cfg.Now(), c.cfg.Life)
	if err != nil {
		return err
	}
	// The authority is appended to the file, so that clients which trust cert.pem itself, as
	// in earlier versions, trust the authority.
	cert = append(cert, c.authority.pem...)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s: the node's own certificate: %w", c.cfg.Section, err)
	}
	if c.cfg.Dir == "" {
		c.pair.Store(&pair)
		return nil
	}
	if err := c.write(cert, key); err != nil {
		return fmt.Errorf("%s: the node's own certificate: %w", c.cfg.Section, err)
	}
	c.pair.Store(&pair)
	return nil
}

// write puts a new pair in place of the one that is there. Both files are written aside first, so
// that a full disk leaves the old pair whole.
func (c *Certificate) write(cert, key []byte) error {
	certFile, keyFile := filepath.Join(c.cfg.Dir, leafFile), filepath.Join(c.cfg.Dir, leafKeyFile)
	newCert, newKey := certFile+".new", keyFile+".new"
	if err := errors.Join(atomicfile.WriteMkdir(newKey, key), atomicfile.WriteMkdir(newCert, cert)); err != nil {
		_ = os.Remove(newKey) // what is left is replaced by the next renewal
		_ = os.Remove(newCert)
		return err
	}
	// A crash between the two renames would leave a key that does not match the certificate.
	// So the old certificate is removed first, and the next start makes what is missing.
	if err := os.Remove(certFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(os.Rename(newKey, keyFile), os.Rename(newCert, certFile))
}

// keep makes a certificate at a start. If that fails, old goes on as long as it is valid and signed by
// the authority: a disk that is full must not keep a node from starting. Without such a one the
// error is returned.
func (c *Certificate) keep(old *tls.Certificate) error {
	err := c.renew()
	if err == nil || old.Leaf == nil || c.cfg.Now().After(old.Leaf.NotAfter) || old.Leaf.CheckSignatureFrom(c.authority.cert) != nil {
		return err
	}
	c.pair.Store(old)
	c.failed = c.cfg.Now()
	c.cfg.Logger.Error("a certificate cannot be renewed; the one before goes on", slog.String("of", c.cfg.Section), slog.Time("until", old.Leaf.NotAfter), slog.Any("error", err))
	return nil
}

// get returns the certificate for a handshake, and renews it or reads it again first if that is
// due. tls.Config calls it for each handshake. One of them looks; those that come meanwhile are
// shown the certificate before, so that a slow disk stops no more than one.
func (c *Certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if !c.mu.TryLock() {
		if pair := c.pair.Load(); c.authority == nil || c.cfg.Now().Before(pair.Leaf.NotAfter) {
			return pair, nil
		}
		c.mu.Lock() // clients would refuse the one before
	}
	defer c.mu.Unlock()
	if c.authority == nil {
		c.lookLocked()
		return c.pair.Load(), nil
	}
	before := c.pair.Load()
	if !c.renewalDue(before.Leaf) || c.cfg.Now().Sub(c.failed) < renewAgain {
		return before, nil
	}
	if err := c.renew(); err != nil {
		// A third of its life is left to mend the cause.
		c.failed = c.cfg.Now()
		c.cfg.Logger.Error("a certificate cannot be renewed; trying again", slog.String("of", c.cfg.Section), slog.Time("until", before.Leaf.NotAfter), slog.Any("error", err))
		return before, nil
	}
	made := c.pair.Load()
	c.cfg.Logger.Info("a certificate was renewed", slog.String("of", c.cfg.Section), slog.Time("until", made.Leaf.NotAfter))
	return made, nil
}
