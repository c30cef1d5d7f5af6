package configs

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/millrace/millrace/pipelines/spec"
)

// envPrefix begins the environment variables that are looked at.
const envPrefix = "MILLRACE_"

// otherVariables are read by commands and are no keys of the configuration.
var otherVariables = []string{"MILLRACE_CONFIG", "MILLRACE_ENDPOINT", "MILLRACE_KEY", "MILLRACE_OPERATOR_ENDPOINT", "MILLRACE_OPERATOR_KEY"}

// serviceLink is a variable with which Kubernetes tells the pods of a namespace of a
// service that is called millrace or millrace-something.
var serviceLink = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT_[0-9]+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?$`)

// linkValue is the value of the link that has the name of a key, such as
// MILLRACE_NATS_PORT of a service millrace-nats.
var linkValue = regexp.MustCompile(`^(tcp|udp|sctp)://`)

// environment sets the keys that variables name. One that looks as if it was meant to
// name a key is an error; others of the prefix belong to somebody else, such as the
// secret that a sink's dsnEnv names.
func (c *Config) environment(known map[string]reflect.Value, environ []string) []error {
	byName := map[string]reflect.Value{}
	for path, v := range known {
		byName[EnvName(path)] = v
	}
	names := slices.Sorted(maps.Keys(byName))
	var errs []error
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		v, ok := byName[name]
		switch {
		case !strings.HasPrefix(strings.ToUpper(name), envPrefix), slices.Contains(otherVariables, name):
		case serviceLink.MatchString(name), strings.HasSuffix(name, "_PORT") && linkValue.MatchString(value):
		case !ok:
			if err := mistyped(name, names); err != nil {
				errs = append(errs, err)
			}
		case value != "":
			if err := setText(v, value); err != nil {
				errs = append(errs, &Finding{name, err.Error()})
			}
		}
	}
	return errs
}

// mistyped returns what is wrong with a variable that names no key, nil if it does not
// look like one: it is a letter or two off, lacks the section or an underscore, or
// begins with a section.
func mistyped(name string, names []string) error {
	for was, is := range renamed {
		if rest, ok := strings.CutPrefix(name, EnvName(was)); ok {
			return &Finding{name, "there is no such variable any more; it is " + EnvName(is) + rest + " now"}
		}
	}
	meant := nearestVariable(name, slices.Concat(names, otherVariables))
	if meant != "" {
		return &Finding{name, "there is no such variable; did you mean " + meant + "?"}
	}
	if strings.HasSuffix(name, "_DSN") {
		return nil // what a sink's dsnEnv names is the user's choice
	}
	section, _, nested := strings.Cut(strings.TrimPrefix(name, envPrefix), "_")
	isSection := func(n string) bool { return strings.HasPrefix(n, envPrefix+section+"_") }
	if nested && slices.ContainsFunc(names, isSection) {
		return &Finding{name, strings.ToLower(section) + " has no such key; configs/millrace.yaml explains all"}
	}
	return nil
}

// nearestVariable returns what name was probably meant to be, "" if nothing.
func nearestVariable(name string, names []string) string {
	squeeze := func(n string) string { return strings.ReplaceAll(strings.ToUpper(n), "_", "") }
	rest := strings.TrimPrefix(strings.ToUpper(name), envPrefix)
	best, bestAt := "", 2+len(rest)/8
	for _, n := range names {
		if squeeze(n) == squeeze(name) {
			return n
		}
		if d := spec.Distance(rest, strings.TrimPrefix(n, envPrefix)); d < bestAt {
			best, bestAt = n, d
		}
	}
	if best != "" || !strings.Contains(rest, "_") {
		return best
	}
	for _, n := range names {
		if strings.HasSuffix(n, "_"+rest) {
			return n
		}
	}
	return ""
}

// EnvName returns the environment variable of a key: store.queueMax is set by
// MILLRACE_STORE_QUEUE_MAX, gateway.publicURL by MILLRACE_GATEWAY_PUBLIC_URL.
func EnvName(key string) string {
	var out strings.Builder
	out.WriteString(envPrefix)
	for i, r := range key {
		switch {
		case r == '.':
			out.WriteByte('_')
		case isUpper(r) && i > 0 && key[i-1] != '.' && !isUpper(rune(key[i-1])):
			out.WriteByte('_')
			out.WriteRune(r)
		default:
			out.WriteString(strings.ToUpper(string(r)))
		}
	}
	return out.String()
}

func isUpper(r rune) bool { return r >= 'A' && r <= 'Z' }
