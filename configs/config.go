package configs

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/gateway"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/s3"
)

// Defaults of Config that others name.
const (
	// DirDefault is the default of Config.Dir.
	DirDefault = "millrace-data"
	// ServerDefault is where the embedded NATS server of another process is.
	ServerDefault = "nats://127.0.0.1:4222"
	// HTTPDefault is the default of HTTP.Listen.
	HTTPDefault = "127.0.0.1:8082"
)

// The durabilities of Config.Durability.
const (
	DurabilityDisk     = "disk"
	DurabilityReplicas = "replicas"
)

// drainTimeoutDefault is the default of Config.DrainTimeout.
const drainTimeoutDefault = 10 * time.Second

// replicas is the number of copies that DurabilityReplicas asks for.
const replicas = 3

// Config is the configuration of one process. Zero fields take their defaults.
type Config struct {
	// Dir is the directory of all that the process keeps: the logs of the
	// embedded NATS server, the engine's cache, the node's identity. One process
	// uses it at a time. Default millrace-data.
	Dir string `yaml:"dir"`

	// Server is the URL of the NATS servers to connect to, several separated by
	// commas. millrace up has a server of its own and does not look at it.
	// Default nats://127.0.0.1:4222; for commands the server of the node that runs on
	// Dir, if there is one.
	Server string `yaml:"server"`

	// ServerConfigured says that Server was set and is not its default.
	ServerConfigured bool `yaml:"-"`

	// Connect says how to connect to Server.
	Connect Connect `yaml:"connect"`

	// Durability is what an acknowledged write outlives: disk, a power failure of
	// this machine, for each append is synced before it is acknowledged; replicas,
	// the loss of a machine, for which streams have three replicas in a NATS
	// cluster of three servers or more. Stores bring the streams and buckets that
	// are there to that number, whoever made them; none is ever lowered. Default
	// disk.
	Durability string `yaml:"durability"`

	// DurabilityConfigured says that Durability was set and is not its default.
	DurabilityConfigured bool `yaml:"-"`

	// DrainTimeout bounds a stop: what is under way is finished and handed over, and
	// what has not ended by then, such as a write to a disk that does not answer, is
	// named in the log and cut off. Nothing that was acknowledged is lost. Default
	// 10s, at least 1s.
	DrainTimeout time.Duration `yaml:"drainTimeout"`

	// Memory bounds the memory of the process.
	Memory Memory `yaml:"memory"`

	// HTTP is the listener for health, metrics and the console.
	HTTP HTTP `yaml:"http"`

	// Log says what is logged, to standard error.
	Log Log `yaml:"log"`

	// NATS tunes the embedded NATS server of millrace up.
	NATS natsd.Config `yaml:"nats"`

	// Feed tunes logs and their readers.
	Feed Feed `yaml:"feed"`

	// Leases tunes how processes share partitions and pipelines.
	Leases leases.Config `yaml:"leases"`

	// Engine tunes the key-value engine under the items.
	Engine engine.Config `yaml:"engine"`

	// Store tunes the owners of physical partitions.
	Store owner.Config `yaml:"store"`

	// Gateway is the Azure Cosmos DB protocol, by which applications read and write
	// items. It belongs to stores.
	Gateway gateway.Config `yaml:"gateway"`

	// Processors tunes what runs pipelines.
	Processors processors.Config `yaml:"processors"`

	// Cascade bounds the work of cascades.
	Cascade cascade.Limits `yaml:"cascade"`

	// Project bounds the work of projections.
	Project project.Limits `yaml:"project"`

	// Sinks tunes what writes the rows of projections.
	Sinks compile.SinkLimits `yaml:"sinks"`

	// Reconciler tunes the duties that one worker of the group has for all pipelines.
	Reconciler pipelines.ReconcilerConfig `yaml:"reconciler"`

	// Verify tunes the continuous verification, which one worker of the group does
	// for all. What it finds is told by millrace status and by metrics.
	Verify verify.ContinuousConfig `yaml:"verify"`
}

// Connect says how to connect to a NATS server.
type Connect struct {
	// Creds is a file with a user's credentials: admin.json or read-only.json, as
	// millrace up makes them in credentials in its directory, or one that nsc made.
	// By default it is admin.json of Dir, if Server is on this machine.
	Creds string `yaml:"creds"`

	// User and Password count instead, if they are set.
	User     string `yaml:"user"`
	Password string `yaml:"password"`

	// CA is a file, in PEM form, with what the server's certificate must be
	// signed by. Default: what the system trusts.
	CA string `yaml:"ca"`

	// Cert and Key are files, in PEM form, with the certificate to show, if the
	// server asks for one.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`

	// SilenceMax is how long a server may say nothing, though it is asked for a sign
	// of life several times, before it is left for another. A server that was cut off
	// or stopped is noticed by nothing else. Default 3s, at least 300ms.
	SilenceMax time.Duration `yaml:"silenceMax"`
}

// The default and the least of Connect.SilenceMax.
const (
	silenceDefault = 3 * time.Second
	silenceMin     = 300 * time.Millisecond
)

// HTTP is a listener.
type HTTP struct {
	// Listen is the address of /healthz, /readyz and /metrics, and, in a store, of
	// the console; off is none. Default 127.0.0.1:8082.
	Listen string `yaml:"listen"`

	// TLS is on or off; by default it is on unless Listen is on the loopback. Where it
	// is on, or Listen is not on the loopback, /metrics answers who shows a key of the
	// gateway, and /readyz tells its reasons to nobody else. With off there is no
	// console but on the loopback.
	TLS string `yaml:"tls"`

	// Cert and Key are files of a certificate, in PEM form. Without them the node
	// makes an authority, http/ca.pem in its directory, which may sign for this node's
	// names alone, and its certificates with it. Files that change are read again.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`

	// ConnectionsMax bounds the connections. Beyond it one that has been idle longest is
	// closed for the new one. Default 1024.
	ConnectionsMax int `yaml:"connectionsMax"`

	// Names are names and addresses by which the listener is reached, beside
	// localhost, this machine's name and Listen. A certificate that the node makes is
	// for them too.
	Names []string `yaml:"names"`

	// Dir is where certificates are kept that are made here.
	Dir string `yaml:"-"`
}

// httpConnectionsMax is the default of HTTP.ConnectionsMax: a hundred browsers that follow, with what
// else they load, and who scrapes and probes.
const httpConnectionsMax = 1024

// Off switches a listener or TLS off.
const Off = gateway.Off

// Encrypted tells whether a listener has TLS that is on the loopback, or is not.
func (h *HTTP) Encrypted(loopback bool) bool { return h.TLS == "on" || h.TLS == "" && !loopback }

// ownDirectories tells sinks which directories are the node's own.
func (c *Config) ownDirectories() {
	c.Sinks.Own = []string{c.NATS.Dir, c.Gateway.Dir, c.HTTP.Dir, filepath.Join(c.Dir, "engine")}
}

// Isolate keeps all that a node stores below Dir, and the node away from others. What a configuration says of such places is
// about another node, which may be running or have what is not to be touched: a demo, or a test of pipelines, has
// its own.
func (c *Config) Isolate() {
	c.NATS.Dir, c.NATS.Credentials = filepath.Join(c.Dir, "nats"), filepath.Join(c.Dir, "credentials")
	c.NATS.Cluster, c.NATS.Monitor = natsd.Cluster{}, ""
	c.Store.Snapshots.Store, c.Store.Snapshots.Directory, c.Store.Snapshots.S3 = "", "", s3.Config{}
	c.Sinks.Roots = []string{c.Dir}
	c.ownDirectories()
}

// complete fills in the defaults and tells what is wrong.
func (h *HTTP) complete(bad func(format string, args ...any)) {
	h.Listen, h.ConnectionsMax = cmp.Or(h.Listen, HTTPDefault), cmp.Or(h.ConnectionsMax, httpConnectionsMax)
	if h.ConnectionsMax < 1 {
		bad("http.connectionsMax must be at least 1")
	}
	if _, _, err := net.SplitHostPort(h.Listen); err != nil && h.Listen != Off {
		bad("http.listen is %q; host:port, such as %s, or off is expected", h.Listen, HTTPDefault)
	}
	switch h.TLS {
	case "true": // YAML reads a bare on and off as booleans
		h.TLS = "on"
	case "false":
		h.TLS = Off
	case "", "on", Off:
	default:
		bad("http.tls is %q; on or off is expected", h.TLS)
	}
	if (h.Cert == "") != (h.Key == "") {
		bad("http.cert and http.key go together")
	}
	for _, name := range h.Names {
		if name == "" || strings.ContainsAny(name, ":/ *") && net.ParseIP(name) == nil {
			bad("http.names has %q; a name or an address is expected, without a port", name)
		}
	}
}

// Log says what is logged.
type Log struct {
	// Level is debug, info, warn or error. Default info.
	Level string `yaml:"level"`

	// Format is text or json. Default text.
	Format string `yaml:"format"`
}

// Feed tunes logs and their readers.
type Feed struct {
	// Log tunes the logs.
	Log feed.LogConfig `yaml:"log"`

	// Hub tunes the readers that the pipelines of one process share.
	Hub feed.HubConfig `yaml:"hub"`
}

// SlogLevel returns the level of Log.
func (l *Log) SlogLevel() slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cmp.Or(l.Level, "info"))); err != nil {
		return slog.LevelInfo // complete has refused it
	}
	return level
}

// complete fills in the defaults that concern several packages and returns all
// that is wrong with what is set here. Each package checks its own part.
func (c *Config) complete() error {
	c.Dir = cmp.Or(c.Dir, DirDefault)
	c.ServerConfigured = c.Server != ""
	c.Server = cmp.Or(c.Server, ServerDefault)
	c.DurabilityConfigured = c.Durability != ""
	c.Durability = cmp.Or(c.Durability, DurabilityDisk)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, drainTimeoutDefault)
	c.Log.Level, c.Log.Format = cmp.Or(c.Log.Level, "info"), cmp.Or(c.Log.Format, "text")
	c.NATS.Dir = cmp.Or(c.NATS.Dir, filepath.Join(c.Dir, "nats"))
	c.NATS.Credentials = cmp.Or(c.NATS.Credentials, filepath.Join(c.Dir, "credentials"))
	c.Store.DataDir = c.Dir
	c.Gateway.Dir, c.HTTP.Dir = filepath.Join(c.Dir, "gateway"), filepath.Join(c.Dir, "http")
	emptyRoots := c.Sinks.Roots != nil && len(c.Sinks.Roots) == 0
	if len(c.Sinks.Roots) == 0 {
		c.Sinks.Roots = []string{c.Dir}
	}
	c.ownDirectories()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	// An empty list reads as none, and the default is more than none.
	if v := c.Sinks.Variables; v != nil && len(v) == 0 {
		bad("sinks.variables is empty; leave it out for the default, or name a variable that is not set to allow none")
	}
	if emptyRoots {
		bad("sinks.roots is empty; leave it out for the default, which is dir, or name a directory that is not there to allow none")
	}
	switch c.Durability {
	case DurabilityDisk:
	case DurabilityReplicas:
		c.Feed.Log.Replicas = cmp.Or(c.Feed.Log.Replicas, replicas)
		c.Leases.Replicas = cmp.Or(c.Leases.Replicas, replicas)
	default:
		bad("durability is %q; disk or replicas is expected", c.Durability)
	}
	if c.DrainTimeout < time.Second {
		bad("drainTimeout is %s; at least 1s is expected", c.DrainTimeout)
	}
	var level slog.Level
	if level.UnmarshalText([]byte(c.Log.Level)) != nil {
		bad("log.level is %q; debug, info, warn or error is expected", c.Log.Level)
	}
	if c.Log.Format != "text" && c.Log.Format != "json" {
		bad("log.format is %q; text or json is expected", c.Log.Format)
	}
	// Each process makes the room of its queries, a worker's too, whose verification asks them.
	if n := c.Store.QueriesBytesMax; n != 0 && n < owner.QueriesBytesMin {
		bad("store.queriesBytesMax is %d bytes; at least 1MiB is expected", n)
	}
	c.HTTP.complete(bad)
	c.Connect.SilenceMax = cmp.Or(c.Connect.SilenceMax, silenceDefault)
	if c.Connect.SilenceMax < silenceMin {
		bad("connect.silenceMax is %v; %v or more is expected", c.Connect.SilenceMax, silenceMin)
	}
	if (c.Connect.Cert == "") != (c.Connect.Key == "") {
		bad("connect.cert and connect.key go together")
	}
	if err := c.fit(); err != nil {
		errs = append(errs, err)
	}
	if err := c.Gateway.Check(); err != nil {
		errs = append(errs, err)
	}
	if strings.TrimSpace(c.Server) == "" {
		bad("server is blank")
	}
	for _, err := range []error{c.Verify.Check(), c.Reconciler.Check(), c.Sinks.Check()} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	c.Store.Log, c.Gateway.Log = c.Feed.Log, c.Feed.Log
	return errors.Join(errs...)
}

// Replicas is the number of replicas that buckets and streams are made with.
func (c *Config) Replicas() int { return max(c.Feed.Log.Replicas, 1) }
