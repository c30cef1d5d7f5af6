package gateway

import (
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
	"time"
)

const (
	// certificateLifeDefault is the default of Config.CertificateLife.
	certificateLifeDefault = 365 * 24 * time.Hour
	// renewAgain is the pause before a renewal is tried again that failed.
	renewAgain = time.Minute
)

// Certificate is what the server shows: the configured one, or one that is made here,
// signed by an authority that is made here too, and renewed when two thirds of its
// life are over. Safe for concurrent use.
type Certificate struct {
	authority *authority // nil: configured
	hosts     []string
	life      time.Duration
	dir       string
	now       func() time.Time
	log       *slog.Logger

	mu     sync.Mutex
	pair   *tls.Certificate
	failed time.Time // the last renewal that failed
}

// openCertificate reads the configured certificate, or the one that was made at an
// earlier start, or makes one.
func openCertificate(c *Config) (*Certificate, error) {
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("gateway.cert and gateway.key: %w", err)
		}
		return &Certificate{pair: &pair}, nil
	}
	now := c.Now
	if now == nil {
		now = time.Now
	}
	made := &Certificate{hosts: c.hosts(), life: c.CertificateLife, dir: c.Dir, now: now, log: c.Logger}
	_, missing := os.Stat(filepath.Join(c.Dir, authorityFile))
	a, isNew, err := openAuthority(c.Dir, made.hosts, now())
	if err != nil {
		return nil, err
	}
	made.authority = a
	pair, err := tls.LoadX509KeyPair(filepath.Join(c.Dir, leafFile), filepath.Join(c.Dir, leafKeyFile))
	switch {
	case err == nil && made.serves(&pair):
		made.pair = &pair
		return made, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the gateway's own certificate: %w; delete %s and %s in %s, and a new one is made", err, leafFile, leafKeyFile, c.Dir)
	}
	if isNew && (missing == nil || err == nil) {
		made.tellOfAuthority(missing == nil)
	}
	return made, made.renew()
}

// tellOfAuthority tells that what clients trusted so far is replaced.
func (c *Certificate) tellOfAuthority(anew bool) {
	why := "the certificate of the version before could sign for any name, for ten years"
	if anew {
		why = "the authority before does not cover a name by which this node is reached, or runs out"
	}
	c.log.Warn("the gateway has a new authority; clients that trust a copy of the file before must be given this one, and those that run be started again",
		slog.String("file", c.authority.file), slog.String("why", why))
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

// serves tells whether a certificate is signed by the authority and good for all hosts.
func (c *Certificate) serves(pair *tls.Certificate) bool {
	if c.due(pair.Leaf) || pair.Leaf.CheckSignatureFrom(c.authority.cert) != nil {
		return false
	}
	for _, host := range c.hosts {
		if pair.Leaf.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

// due tells whether two thirds of the life of a certificate are over.
func (c *Certificate) due(leaf *x509.Certificate) bool {
	life := min(c.life, leaf.NotAfter.Sub(leaf.NotBefore.Add(backdate)))
	return c.now().After(leaf.NotAfter.Add(-life / 3))
}

// renew makes a new certificate in place of the one that is there. c.mu is held, or c
// is not shared yet.
func (c *Certificate) renew() error {
	cert, key, err := c.authority.makeLeaf(c.hosts, c.now(), c.life)
	if err != nil {
		return err
	}
	// With the authority behind it the file does for clients that trust cert.pem, which
	// was its own authority in earlier versions.
	cert = append(cert, c.authority.pem...)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("the gateway's own certificate: %w", err)
	}
	certFile, keyFile := filepath.Join(c.dir, leafFile), filepath.Join(c.dir, leafKeyFile)
	// A start between the two would find a pair that does not match; so the old
	// certificate goes first, and what is missing is made anew.
	if err := os.Remove(certFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the gateway's own certificate: %w", err)
	}
	if err := errors.Join(writeSecret(keyFile, key), writeSecret(certFile, cert)); err != nil {
		return err
	}
	c.pair = &pair
	return nil
}

// get returns the certificate for a handshake; tls.Config asks it for each.
func (c *Certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.authority == nil || !c.due(c.pair.Leaf) || c.now().Sub(c.failed) < renewAgain {
		return c.pair, nil
	}
	if err := c.renew(); err != nil {
		// A third of its life is left to mend the cause.
		c.failed = c.now()
		c.log.Error("the gateway's certificate cannot be renewed; trying again", slog.Time("until", c.pair.Leaf.NotAfter), slog.Any("error", err))
		return c.pair, nil
	}
	c.log.Info("the gateway's certificate was renewed", slog.Time("until", c.pair.Leaf.NotAfter))
	return c.pair, nil
}
