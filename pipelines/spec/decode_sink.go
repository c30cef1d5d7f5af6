package spec

import (
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/store/s3"
)

// Limits of commitInterval.
const (
	intervalLeast    = 100 * time.Millisecond
	intervalGreatest = time.Hour
)

// choice notes which of some fields there are, one of which is expected.
type choice struct{ there []string }

func (c *choice) field(name string, read func(*yaml.Node, string)) field {
	return field{name, "", func(n *yaml.Node, path string) {
		c.there = append(c.there, path)
		read(n, path)
	}}
}

// one reports that not exactly one of the fields was there.
func (c *choice) one(d *Decoder, n *yaml.Node, path, expected string) {
	switch {
	case len(c.there) == 0:
		d.bad(n, "%s %s", path, expected)
	case len(c.there) > 1:
		for _, other := range c.there[1:] {
			d.findings.Add(d.places.key(other), "%s: %s is there already; one of them is expected", other, c.there[0])
		}
	}
}

func (d *Decoder) sink(n *yaml.Node, path string, s *Sink) {
	const expected = "names no sink; one of container: {}, parquet: {path: ./analytics} and postgres: {dsnEnv: ANALYTICS_DSN} is expected"
	var c choice
	before := len(d.findings)
	ok := d.mapping(n, path,
		c.field("container", func(n *yaml.Node, path string) {
			s.Container = &ContainerSink{}
			if n.Kind != yaml.MappingNode {
				d.bad(n, "%s is %s; write container: {}: the tables are the containers of their names", path, describe(n))
				return
			}
			d.mapping(n, path, field{"rejects", "", d.text(&s.Container.Rejects)})
		}),
		c.field("parquet", func(n *yaml.Node, path string) {
			s.Parquet = &ParquetSink{}
			d.parquet(n, path, s.Parquet)
		}),
		c.field("postgres", func(n *yaml.Node, path string) {
			s.Postgres = &PostgresSink{}
			d.mapping(n, path,
				field{DSNField, "the name of the environment variable with the connection string is expected, such as ANALYTICS_DSN", d.env(DSNField, &s.Postgres.DSNEnv)},
				field{"schema", "", d.schema(&s.Postgres.Schema)},
			)
		}),
	)
	// A field that is unknown or empty was told of, and is probably the one that is missing.
	if ok && (len(c.there) > 0 || before == len(d.findings)) {
		c.one(d, n, path, expected)
	}
}

func (d *Decoder) parquet(n *yaml.Node, path string, s *ParquetSink) {
	var c choice
	before := len(d.findings)
	ok := d.mapping(n, path,
		c.field("path", d.directory(&s.Path)),
		c.field("s3", func(n *yaml.Node, path string) {
			s.S3 = &S3{}
			d.s3(n, path, s.S3)
		}),
		field{"commitInterval", "", func(n *yaml.Node, path string) {
			before, interval := len(d.findings), time.Duration(0)
			d.duration(n, path, &interval)
			if before == len(d.findings) && (interval < intervalLeast || interval > intervalGreatest) {
				d.bad(n, "%s is %s; %s to %s are allowed", path, interval, intervalLeast, intervalGreatest)
			}
			s.CommitInterval = Duration(interval)
		}},
	)
	if ok && (len(c.there) > 0 || before == len(d.findings)) {
		c.one(d, n, path, "does not say where the files are; path: ./analytics or s3: {bucket: analytics} is expected")
	}
}

// scheme begins what is no directory but the place of something.
var scheme = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*):`)

// directory reads the path of a directory, of which file:///path is a way to write it.
// What only looks like one would become a folder of that name.
func (d *Decoder) directory(into *string) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		d.text(into)(n, path)
		at, written := *into, *into
		// A disk takes s3://analytics for the folder analytics in the folder s3: and nobody would
		// look for the files there.
		if m := scheme.FindStringSubmatch(at); m != nil {
			switch kind := strings.ToLower(m[1]); kind {
			case "file":
				u, err := url.Parse(at)
				if err != nil || u.Opaque != "" || u.Host != "" && u.Host != "localhost" || u.Path == "" || u.RawQuery != "" || u.Fragment != "" {
					d.bad(n, "%s: %q is not the place of a directory of this machine; write file:///srv/analytics, or the path alone", path, written)
					return
				}
				at = u.Path
			case "s3", "s3a", "s3n":
				bucket, prefix, _ := strings.Cut(strings.TrimLeft(at[len(m[0]):], "/"), "/")
				d.bad(n, "%s: %q is a bucket, not a directory; instead of path write s3: {bucket: %s%s}", path, written, bucket, prefixOf(prefix))
				return
			case "gs":
				bucket, prefix, _ := strings.Cut(strings.TrimLeft(at[len(m[0]):], "/"), "/")
				d.bad(n, "%s: %q is a bucket, not a directory; it is written by its S3 protocol: instead of path write s3: {endpoint: storage.googleapis.com, bucket: %s%s, accessKeyEnv: ..., secretKeyEnv: ...}, with an HMAC key",
					path, written, bucket, prefixOf(prefix))
				return
			default:
				d.bad(n, "%s: %q begins with %s:, which is no directory; a path, or s3: {bucket: ...} instead of path, is expected", path, written, m[1])
				return
			}
		}
		clean := filepath.Clean(at)
		switch {
		case at == "":
		case strings.HasPrefix(at, "~"), strings.HasPrefix(at, "$"):
			d.bad(n, "%s: %q is for a shell, which is not asked; write the directory in full, or one below the workers' root", path, written)
		case clean == "..", strings.HasPrefix(clean, "../"):
			d.bad(n, "%s: %q leaves the workers' root, below which it lies; write the directory in full", path, written)
		default:
			*into = at
		}
	}
}

// prefixOf writes the field for the folder in a bucket.
func prefixOf(prefix string) string {
	if prefix = strings.Trim(prefix, "/"); prefix == "" {
		return ""
	}
	return ", prefix: " + prefix
}

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

func (d *Decoder) s3(n *yaml.Node, path string, s *S3) {
	var secure *yaml.Node
	d.mapping(n, path,
		field{"endpoint", "", func(n *yaml.Node, path string) {
			d.text(&s.Endpoint)(n, path)
			if scheme, rest, ok := strings.Cut(s.Endpoint, "://"); ok {
				d.bad(n, "%s: %q has a scheme; write %s, and secure: %t", path, s.Endpoint, rest, scheme == "https")
			} else if strings.ContainsAny(s.Endpoint, "/ ") {
				d.bad(n, "%s is %q; a host, or host:port, is expected: the bucket and its prefix have fields of their own", path, s.Endpoint)
			}
		}},
		field{"bucket", "the name of the bucket is expected", func(n *yaml.Node, path string) {
			d.text(&s.Bucket)(n, path)
			if s.Bucket != "" && !bucketName.MatchString(s.Bucket) {
				d.bad(n, "%s: %q is not the name of a bucket: 3 to 63 small letters, digits, - and . are allowed", path, s.Bucket)
			}
		}},
		field{"prefix", "", d.text(&s.Prefix)},
		field{"region", "", d.text(&s.Region)},
		field{AccessKeyField, "", d.env(AccessKeyField, &s.AccessKeyEnv)},
		field{SecretKeyField, "", d.env(SecretKeyField, &s.SecretKeyEnv)},
		field{"secure", "", func(n *yaml.Node, path string) {
			// true until it is read: a value that is no boolean is told of as such alone.
			s.Secure, secure = new(true), n
			d.boolean(s.Secure)(n, path)
		}},
	)
	// After all fields, for it rests on three of them. There is only something to refuse where
	// secure: false was written, so secure has a place.
	if err := (&s3.Config{Endpoint: s.Endpoint, Secure: s.Secure, AccessKeyEnv: s.AccessKeyEnv}).CheckClear(); err != nil {
		d.bad(secure, "%s: %v", path, err)
	}
	// What is written counts, not what was read: a name that was refused is not missing too.
	_, access := d.places[path+".accessKeyEnv"]
	_, secret := d.places[path+".secretKeyEnv"]
	if access != secret {
		d.bad(n, "%s has one of accessKeyEnv and secretKeyEnv; both are expected, or neither: then the usual places are asked", path)
	}
}

var (
	envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	keyID   = regexp.MustCompile(`^A[KS]IA[A-Z0-9]{16}$`) // of Amazon's access keys
)

// env reads the name of an environment variable. What is none may be the secret
// itself, so it is not repeated.
func (d *Decoder) env(field string, into *string) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && n.Value != "" && (!envName.MatchString(n.Value) || keyID.MatchString(n.Value)) {
			d.bad(n, "%s is not the name of an environment variable: letters, digits and _ are allowed; secrets are not written here: set a variable of the workers to it, and write the variable's name", path)
			// The console shows the lines around a finding, but of no text in which one is marked so.
			d.findings[len(d.findings)-1].Secret = true
			return
		}
		d.text(into)(n, path)
		if problem := CheckVariable(field, *into); problem != "" {
			d.bad(n, "%s: %s is refused: %s", path, *into, problem)
		}
	}
}

var schemaName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_$]{0,62}$`)

// schema reads the name of a namespace of PostgreSQL.
func (d *Decoder) schema(into *string) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		d.text(into)(n, path)
		if name := *into; name != "" && (!schemaName.MatchString(name) || strings.HasPrefix(strings.ToLower(name), "pg_")) {
			d.bad(n, "%s: %q cannot be the name of a schema: 1 to 63 letters, digits, _ and $ are allowed, the first a letter or _, and pg_ is the server's own", path, name)
		}
	}
}
