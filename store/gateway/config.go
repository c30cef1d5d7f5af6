package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/certificate"
	"github.com/millrace/millrace/store/query"
	"github.com/millrace/millrace/store/script"
)

// ListenDefault is where millrace up listens, the port of the Azure Cosmos DB
// emulator.
const ListenDefault = "127.0.0.1:8081"

// Off switches a listener or TLS off.
const Off = "off"

// Limits of requests.
const (
	headerBytesMax = 64 << 10 // of all headers of one request
	bodyBytesMax   = 4 << 20  // of a batch; its operations are bounded by store.BatchBytesMax
	otherBytesMax  = 1 << 20  // of queries and declarations
	pageItemsMax   = 1000     // of one page of a feed, whatever the client asks
	pageBytesMax   = 4 << 20  // of one page of a feed
)

// regionBytesMax bounds the name of the region.
const regionBytesMax = 100

// Config tunes a Server. Zero fields take their defaults.
type Config struct {
	// Listen is the address of the Cosmos DB protocol; off is none. By default
	// millrace up listens at 127.0.0.1:8081, the port of the Cosmos DB emulator, and
	// millrace store does not listen.
	Listen string `yaml:"listen"`

	// PublicURL is what clients are told to connect to, such as
	// https://db.example.com. By default it is made from each request's Host.
	PublicURL string `yaml:"publicURL"`

	// TrustedProxies are addresses or networks, such as 10.0.0.0/8, whose
	// X-Forwarded-Host and X-Forwarded-Proto are believed. Without any, nobody is.
	TrustedProxies []string `yaml:"trustedProxies"`

	// TLS is on or off. With on and no Cert the node makes an authority at its first
	// start, which may sign for this node's names alone, keeps it in its directory,
	// tells how to trust it, and makes its certificates with it. Default on.
	TLS string `yaml:"tls"`

	// Cert and Key are files of a certificate, in PEM form. Files that change are read
	// again.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`

	// CertificateLife is how long a certificate holds that the node makes; it is
	// renewed when two thirds of it are over. Default 8760h, at least 3s.
	CertificateLife time.Duration `yaml:"certificateLife"`

	// KeyFile holds the master keys. It is made at the first start, readable for its
	// owner alone, and read again when it changes. By default it is
	// gateway/keys.json in the node's directory. Beside it, in the same folder, lie
	// application-keys.json and operator-keys.json, once there are such keys.
	KeyFile string `yaml:"keyFile"`

	// Keys are master keys that count instead of KeyFile, if any is set.
	Keys Keys `yaml:"keys"`

	// Partitions is the number of physical partitions of a container that a client
	// makes. Default 1, at most 256.
	Partitions int `yaml:"partitions"`

	// Strict refuses what Cosmos DB refuses although Millrace could serve it, so that what is
	// written here runs there; docs/gateway.md lists it. Default false.
	Strict bool `yaml:"strict"`

	// Region is the name of the one region that the account tells clients, which they compare with those that they
	// prefer. Default Local.
	Region string `yaml:"region"`

	// Consistency is the level of the account that clients are told, Session or Strong. Owners answer reads after
	// every write acknowledged before at either; at Strong no standby answers while a partition has no owner, unless a
	// request asks for less. Default Session.
	Consistency string `yaml:"consistency"`

	// ConnectionsMax bounds the connections. Beyond it one that has been idle
	// longest is closed for the new one; idle are those too that have shown no key,
	// or whose request was refused. Default 16384.
	ConnectionsMax int `yaml:"connectionsMax"`

	// RequestsMax bounds the requests that are carried out at once; one beyond it
	// takes the place of one whose client has taken nothing of its answer for 5s, which
	// is cut off, or is answered 429 if there is none. Default 1024.
	RequestsMax int `yaml:"requestsMax"`

	// BodiesMax bounds the bytes of the bodies of all requests under way; one that
	// needs more is answered 429. Default 268435456 (256 MiB), at least 8388608 (8 MiB).
	BodiesMax int64 `yaml:"bodiesMax"`

	// AnswersMax bounds the bytes of all answers that clients are taking. Where there is no
	// room for another, one whose client has taken nothing of it for 5s is cut off; if there
	// is none, a read of more than 64 KiB is answered 429. Shorter answers, and those to
	// writes, count and are sent all the same.
	// Pages of feeds wait for their turn to be made: as many are at once as have twice
	// their 4 MiB in it.
	// Default 268435456 (256 MiB), at least 8388608 (8 MiB).
	AnswersMax int `yaml:"answersMax"`

	// HeaderTimeout is how long a request's headers may take. Default 5s.
	HeaderTimeout time.Duration `yaml:"headerTimeout"`

	// BodyTimeout is how long headers and body together may take. Default 30s.
	BodyTimeout time.Duration `yaml:"bodyTimeout"`

	// RequestTimeout bounds the carrying out of a request. Default 10s.
	RequestTimeout time.Duration `yaml:"requestTimeout"`

	// AnswerTimeout is how long a client may take from the end of its headers to the
	// end of the answer. Default 1m.
	AnswerTimeout time.Duration `yaml:"answerTimeout"`

	// IdleTimeout closes a connection without requests. Default 2m.
	IdleTimeout time.Duration `yaml:"idleTimeout"`

	// Scripts bounds stored procedures, triggers and functions, which run in processes of
	// their own.
	Scripts script.Config `yaml:"scripts"`

	// Engine runs scripts. May be nil: they are not run.
	Engine *script.Engine `yaml:"-"`

	// Queries is what the process has for what its queries hold in memory, those over databases and
	// containers included. May be nil: no bound but those of each query.
	Queries *query.Room `yaml:"-"`

	// Dir is where the certificate and the keys are kept.
	Dir string `yaml:"-"`

	// Users names the pipelines that use a container, which is then not deleted.
	// May be nil.
	Users func(ctx context.Context, database, container string) ([]string, error) `yaml:"-"`

	// Now is the clock of certificates. Default time.Now.
	Now func() time.Time `yaml:"-"`

	// Drain bounds the finishing of requests that are under way when Run ends. Default 5s.
	Drain time.Duration `yaml:"-"`

	// Log opens the logs that change feeds read.
	Log feed.LogConfig `yaml:"-"`

	// Logger gets what an operator should know. Default slog.Default.
	Logger *slog.Logger `yaml:"-"`

	proxies []netip.Prefix
	public  *url.URL
}

// withDefaults fills in the defaults and returns all that is wrong.
func (c Config) withDefaults() (Config, error) {
	c.TLS = cmp.Or(c.TLS, "on")
	c.Partitions = cmp.Or(c.Partitions, 1)
	c.Region, c.Consistency = cmp.Or(c.Region, "Local"), cmp.Or(c.Consistency, levelSession)
	c.ConnectionsMax, c.RequestsMax = cmp.Or(c.ConnectionsMax, 16384), cmp.Or(c.RequestsMax, 1024)
	c.BodiesMax = cmp.Or(c.BodiesMax, 256<<20)
	c.AnswersMax = cmp.Or(c.AnswersMax, 256<<20)
	c.HeaderTimeout, c.BodyTimeout = cmp.Or(c.HeaderTimeout, 5*time.Second), cmp.Or(c.BodyTimeout, 30*time.Second)
	c.RequestTimeout, c.AnswerTimeout = cmp.Or(c.RequestTimeout, 10*time.Second), cmp.Or(c.AnswerTimeout, time.Minute)
	c.CertificateLife = cmp.Or(c.CertificateLife, certificate.LifeDefault)
	c.IdleTimeout, c.Drain = cmp.Or(c.IdleTimeout, 2*time.Minute), cmp.Or(c.Drain, drainDefault)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, c.check()
}

// Check returns all that is wrong with c, each error beginning with its key.
func (c *Config) Check() error {
	checked := *c
	_, err := checked.withDefaults()
	return err
}

func (c *Config) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("gateway."+format, args...)) }
	if c.Listen != "" && c.Listen != Off {
		if _, _, err := net.SplitHostPort(c.Listen); err != nil {
			bad("listen is %q; host:port, such as %s, or off is expected", c.Listen, ListenDefault)
		}
	}
	// YAML reads a bare on and off as booleans.
	switch c.TLS {
	case "true":
		c.TLS = "on"
	case "false":
		c.TLS = Off
	case "on", Off:
	default:
		bad("tls is %q; on or off is expected", c.TLS)
	}
	if strings.TrimSpace(c.Region) != c.Region || len(c.Region) > regionBytesMax || strings.ContainsFunc(c.Region, unicode.IsControl) {
		bad("region is %q; a name of %d bytes at most is expected, without control characters and without spaces around it", c.Region, regionBytesMax)
	}
	if c.Consistency != levelSession && c.Consistency != levelStrong {
		bad("consistency is %q; %s or %s is expected", c.Consistency, levelSession, levelStrong)
	}
	if (c.Cert == "") != (c.Key == "") {
		bad("cert and gateway.key go together")
	}
	if c.CertificateLife < certificate.LifeMin || c.CertificateLife > certificate.LifeDefault {
		bad("certificateLife is %s; 3s to %s are allowed", c.CertificateLife, certificate.LifeDefault)
	}
	if c.Partitions < 1 || c.Partitions > store.PartitionsMax {
		bad("partitions is %d; 1 to %d are allowed", c.Partitions, store.PartitionsMax)
	}
	for _, n := range []int{c.ConnectionsMax, c.RequestsMax} {
		if n < 1 {
			bad("connectionsMax and gateway.requestsMax must be at least 1")
			break
		}
	}
	if c.BodiesMax < 2*bodyBytesMax {
		bad("bodiesMax is %d; at least %d are needed", c.BodiesMax, 2*bodyBytesMax)
	}
	if c.AnswersMax < 2*bodyBytesMax {
		bad("answersMax is %d; at least %d are needed", c.AnswersMax, 2*bodyBytesMax)
	}
	for _, d := range []time.Duration{c.HeaderTimeout, c.BodyTimeout, c.RequestTimeout, c.AnswerTimeout, c.IdleTimeout} {
		if d < 0 {
			bad("headerTimeout and the other times must not be negative")
			break
		}
	}
	for _, err := range c.Scripts.Check() {
		bad("scripts.%w", err)
	}
	if err := c.Keys.check(); err != nil {
		bad("keys: %w", err)
	}
	for _, text := range c.TrustedProxies {
		prefix, err := parseNetwork(text)
		if err != nil {
			bad("trustedProxies: %q is no address or network, such as 10.0.0.0/8", text)
		}
		c.proxies = append(c.proxies, prefix)
	}
	if c.PublicURL != "" {
		u, err := url.Parse(c.PublicURL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" {
			bad("publicURL is %q; https://host or https://host:port is expected", c.PublicURL)
		}
		c.public = u
	}
	return errors.Join(errs...)
}

// certificate says which certificate the listener shows.
func (c *Config) certificate() certificate.Config {
	var more []string
	if c.public != nil {
		more = append(more, c.public.Hostname())
	}
	return certificate.Config{
		Section: "gateway", Cert: c.Cert, Key: c.Key, Dir: c.Dir, Hosts: certificate.Hosts(c.Listen, more...),
		Life: c.CertificateLife, Now: c.Now, Logger: c.Logger,
	}
}

// parseNetwork reads an address or a network.
func parseNetwork(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}
