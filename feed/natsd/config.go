package natsd

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Defaults and limits of Config.
const (
	// PortDefault is the port on which clients connect.
	PortDefault = 4222
	// PortRandom lets the system choose a free port.
	PortRandom = -1
	// clusterHostDefault is every address of the machine, because routes come from others.
	clusterHostDefault = "0.0.0.0"
	// MaxPayloadDefault has room for a commit of six MiB.
	MaxPayloadDefault = 8 << 20
	// MaxPayloadMax is the largest message that JetStream is certain to store.
	MaxPayloadMax = 31 << 20
	// storeMax means no limit but the disk.
	storeMax = math.MaxInt64 / 4
	// pendingMax bounds the bytes that the server holds for a client that reads slowly. It
	// has room for all that the readers of one process can have requested.
	pendingMax = 1 << 30

	// A client that was cut off stays subscribed until the server closes its connection.
	// Until then a request to it gets no answer, not even that nobody is there. The server
	// closes the connection after pingsOutMax+1 intervals without an answer. That is longer
	// than a disk may stall, because the connection of the process itself waits for the
	// disk too. Clients of Millrace notice a silent server sooner by themselves.
	pingInterval = 5 * time.Second
	// Servers of a cluster hear from each other all the time, or something is wrong.
	routePingInterval = time.Second
	pingsOutMax       = 2
)

// Config tunes the embedded server. Zero fields take their defaults, except
// Dir, which has none.
type Config struct {
	// Dir is the directory of streams. The caller ensures that no other server uses it.
	Dir string `yaml:"dir"`

	// Name is the server's name; in a cluster each server has another. Default millrace.
	Name string `yaml:"name"`

	// Host is the address on which clients are accepted. Default 127.0.0.1.
	Host string `yaml:"host"`

	// Port is the port of clients. Default 4222; PortRandom takes a free one.
	Port int `yaml:"port"`

	// DontListen serves connections of this process alone. Host and Port are ignored then.
	DontListen bool `yaml:"dontListen"`

	// SyncInterval is how often appends are synced to the disk. Zero, the default, syncs
	// each append before it is acknowledged. With any other value a loss of power loses
	// the acknowledged writes of that time; it is for data that can be made again.
	SyncInterval time.Duration `yaml:"syncInterval"`

	// MaxPayload bounds a message in bytes. Default 8 MiB, at most 31 MiB.
	MaxPayload int `yaml:"maxPayload"`

	// StoreMax bounds the bytes that all streams may occupy. Default no bound but the disk.
	StoreMax int64 `yaml:"storeMax"`

	// Credentials is a directory with two files, admin.json and read-only.json, each
	// with a user and a password. A client needs one of them. They are made at the
	// first start, readable for their owner alone, and read again when they change.
	// By default it is credentials in the node's directory.
	Credentials string `yaml:"credentials"`

	// User and Password are one more login that may do everything, beside those of the
	// files. They are for several servers that must have the same login.
	User     string `yaml:"user"`
	Password string `yaml:"password"`

	// Monitor is the address of the server's own monitoring (/varz, /connz, /routez,
	// /subsz, /jsz and /healthz). It requires one of the logins by basic authentication.
	// Default empty, no monitoring.
	Monitor string `yaml:"monitor"`

	// TLS secures connections of clients and of the cluster.
	TLS TLS `yaml:"tls"`

	// Cluster joins the server to others, so that streams can have replicas.
	Cluster Cluster `yaml:"cluster"`

	// Debug logs the server's own debug messages, which are many.
	Debug bool `yaml:"debug"`

	// Log receives the server's messages. Default slog.Default().
	Log *slog.Logger `yaml:"-"`
}

// TLS names the files of a certificate, in PEM form. It is off if both Cert
// and Key are empty.
type TLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	// CA, if set, is the authority that must have signed the certificates of clients and
	// routes; then every client needs one.
	CA string `yaml:"ca"`
}

// Cluster tells how to find the other servers. It is off if Name is empty.
type Cluster struct {
	// Name is the same on all servers of the cluster.
	Name string `yaml:"name"`
	// Host and Port are where other servers connect. Defaults 0.0.0.0 and 6222.
	Host string `yaml:"host"`
	Port int    `yaml:"port"`
	// Routes are URLs of the other servers, such as nats://host:6222.
	Routes []string `yaml:"routes"`
	// User and Password must be sent by the other servers. A cluster needs them, or the CA
	// of TLS.
	User     string `yaml:"user"`
	Password string `yaml:"password"`
}

// withDefaults returns the configuration with defaults in place of zeros, and
// all that is wrong with it.
func (c Config) withDefaults() (Config, error) {
	c.Name = cmp.Or(c.Name, "millrace")
	c.Host = cmp.Or(c.Host, "127.0.0.1")
	c.Port = cmp.Or(c.Port, PortDefault)
	c.MaxPayload = cmp.Or(c.MaxPayload, MaxPayloadDefault)
	c.StoreMax = cmp.Or(c.StoreMax, int64(storeMax))
	c.Credentials = cmp.Or(c.Credentials, filepath.Join(c.Dir, "credentials"))
	if c.Log == nil {
		c.Log = slog.Default()
	}
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("dir: none given: name the directory where streams are stored"))
	}
	if c.Port < PortRandom || c.Port > math.MaxUint16 {
		errs = append(errs, fmt.Errorf("port: %d is not a port", c.Port))
	}
	if c.MaxPayload < 1<<20 || c.MaxPayload > MaxPayloadMax {
		errs = append(errs, fmt.Errorf("maxPayload: %d bytes, want 1 MiB to 31 MiB", c.MaxPayload))
	}
	if c.SyncInterval < 0 {
		errs = append(errs, fmt.Errorf("syncInterval: %v is negative", c.SyncInterval))
	}
	if c.StoreMax < 0 {
		errs = append(errs, fmt.Errorf("storeMax: %d is negative", c.StoreMax))
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		errs = append(errs, errors.New("tls: cert and key go together"))
	}
	if c.Cluster.Name == "" && len(c.Cluster.Routes) > 0 {
		errs = append(errs, errors.New("cluster: routes without a name: give the cluster a name, the same on all servers"))
	}
	if (c.User == "") != (c.Password == "") {
		errs = append(errs, errors.New("user and password go together"))
	}
	if c.Cluster.Name != "" && c.TLS.CA == "" && (c.Cluster.User == "" || c.Cluster.Password == "") {
		errs = append(errs, errors.New("cluster: anybody could join: set its user and password, the same on all servers, or tls.ca"))
	}
	return c, errors.Join(errs...)
}

// options translates the configuration for the server.
func (c *Config) options() (*server.Options, error) {
	// AuthTimeout: the server's own two seconds are too few for a node on a busy machine; see
	// greetMax. NoSigs: the process drains on a signal; the server would end it at once.
	o := &server.Options{
		ServerName:             c.Name,
		Host:                   c.Host,
		Port:                   c.Port,
		DontListen:             c.DontListen,
		JetStream:              true,
		StoreDir:               c.Dir,
		JetStreamMaxStore:      c.StoreMax,
		SyncAlways:             c.SyncInterval == 0,
		SyncInterval:           c.SyncInterval,
		MaxPayload:             int32(c.MaxPayload),
		MaxPending:             pendingMax,
		AuthTimeout:            greetMax.Seconds(),
		PingInterval:           pingInterval,
		MaxPingsOut:            pingsOutMax,
		NoSigs:                 true,
		DisableJetStreamBanner: true,
		Debug:                  c.Debug,
	}
	var err error
	if o.TLSConfig, err = c.TLS.config(); err != nil {
		return nil, err
	}
	if o.TLSConfig != nil {
		o.TLS, o.TLSVerify, o.TLSTimeout = true, c.TLS.CA != "", 5
	}
	if c.Cluster.Name == "" {
		return o, nil
	}
	o.Cluster = server.ClusterOpts{
		Name:         c.Cluster.Name,
		Host:         cmp.Or(c.Cluster.Host, clusterHostDefault),
		Port:         cmp.Or(c.Cluster.Port, 6222),
		Username:     c.Cluster.User,
		Password:     c.Cluster.Password,
		TLSConfig:    o.TLSConfig,
		PingInterval: routePingInterval,
		MaxPingsOut:  pingsOutMax,
	}
	for _, route := range c.Cluster.Routes {
		u, err := url.Parse(route)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("cluster: route %q: want a URL such as nats://host:6222", route)
		}
		if u.User == nil && c.Cluster.User != "" {
			u.User = url.UserPassword(c.Cluster.User, c.Cluster.Password)
		}
		o.Routes = append(o.Routes, u)
	}
	return o, nil
}

// warnOfClearText says so in the log where clients or other servers cross the network readably.
// Routes are looked at by themselves: they listen on every address even where clients come from
// this machine alone, and carry what streams hold.
func (c *Config) warnOfClearText() {
	if c.TLS.Cert != "" {
		return
	}
	if !c.DontListen && !isLoopback(c.Host) {
		c.Log.Warn("the embedded NATS server listens beyond this machine without TLS: secrets and items cross the network readably; set nats.tls",
			slog.String("host", c.Host))
	}
	if host, _, err := net.SplitHostPort(c.Monitor); err == nil && !isLoopback(host) {
		c.Log.Warn("monitoring of the embedded NATS server listens beyond this machine without TLS: secrets cross the network readably; set nats.tls",
			slog.String("monitor", c.Monitor))
	}
	if host := cmp.Or(c.Cluster.Host, clusterHostDefault); c.Cluster.Name != "" && !isLoopback(host) {
		c.Log.Warn("the embedded NATS server takes routes of its cluster beyond this machine without TLS: the cluster's password and items cross the network readably; set nats.tls",
			slog.String("host", host))
	}
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// config reads the files; it is nil if TLS is off.
func (t *TLS) config() (*tls.Config, error) {
	if t.Cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if t.CA == "" {
		return config, nil
	}
	pem, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("tls: ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls: ca: no certificate in %s", t.CA)
	}
	// Servers of a cluster connect to each other with this configuration too: as a server each holds
	// the other against ClientCAs, as a client against RootCAs.
	config.ClientCAs, config.RootCAs, config.ClientAuth = pool, pool, tls.RequireAndVerifyClientCert
	return config, nil
}

// checkPort returns ErrPort if another process listens on the port of clients. It runs before
// the store is opened: the server itself would find out only after it has recovered all
// streams.
func (c *Config) checkPort(ctx context.Context) error {
	if c.DontListen || c.Port == PortRandom {
		return nil
	}
	address := net.JoinHostPort(c.Host, strconv.Itoa(c.Port))
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("%w at %s: stop the other server, or choose another port: %w", ErrPort, address, err)
	}
	return l.Close()
}
