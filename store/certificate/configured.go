package certificate

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"
)

// files is what tells the configured files from those that are put in their place. A Secret of
// Kubernetes is a link that is moved, so the files that are told apart are those behind links.
type files struct{ cert, key fs.FileInfo }

// stat looks at the configured files; one that is not there is nil.
func (c *Config) stat() files {
	var f files
	f.cert, _ = os.Stat(c.Cert) // reading it says what is wrong
	f.key, _ = os.Stat(c.Key)
	return f
}

func (f files) equal(o files) bool { return sameFile(f.cert, o.cert) && sameFile(f.key, o.key) }

func sameFile(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// openConfigured reads the configured certificate.
func openConfigured(cfg Config) (*Certificate, error) {
	c := &Certificate{cfg: cfg, files: cfg.stat(), looked: cfg.Now()}
	pair, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key)
	if err != nil {
		return nil, fmt.Errorf("%[1]s.cert and %[1]s.key: %[2]w", cfg.Section, err)
	}
	c.pair.Store(&pair)
	return c, nil
}

// lookLocked reads the configured certificate again if its files have changed. Where they cannot be
// used, the certificate before goes on: the certificate may be there before its key is.
func (c *Certificate) lookLocked() {
	now := c.cfg.Now()
	if now.Sub(c.looked) < lookAgain {
		return
	}
	c.looked = now
	// Looked at before they are read: what changes meanwhile is read by the next look.
	found := c.cfg.stat()
	again := !c.failed.IsZero() && now.Sub(c.failed) >= renewAgain
	if found.equal(c.files) && !again {
		return
	}
	c.files = found
	before := c.pair.Load()
	pair, err := tls.LoadX509KeyPair(c.cfg.Cert, c.cfg.Key)
	if err == nil {
		err = holds(&pair, now)
	}
	if err != nil {
		c.failed = now
		c.cfg.Logger.Error("a certificate whose files have changed cannot be used; the one before goes on", slog.String("of", c.cfg.Section),
			slog.String("cert", c.cfg.Cert), slog.String("key", c.cfg.Key), slog.Time("until", before.Leaf.NotAfter), slog.Any("error", err))
		return
	}
	c.failed = time.Time{}
	// The whole chain: an intermediate may have been appended to the same leaf, or have been missing
	// while the file was being written.
	if slices.EqualFunc(before.Certificate, pair.Certificate, bytes.Equal) {
		return
	}
	c.pair.Store(&pair)
	c.cfg.Logger.Info("a certificate was read again", slog.String("of", c.cfg.Section), slog.String("cert", c.cfg.Cert), slog.Time("until", pair.Leaf.NotAfter))
}

// holds tells why clients would refuse a certificate now.
func holds(pair *tls.Certificate, now time.Time) error {
	switch leaf := pair.Leaf; {
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("it holds only from %s on", leaf.NotBefore)
	case now.After(leaf.NotAfter):
		return fmt.Errorf("it is over since %s", leaf.NotAfter)
	}
	return nil
}
