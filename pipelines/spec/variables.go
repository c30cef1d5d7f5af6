package spec

import (
	"fmt"
	"slices"
	"strings"
)

// The fields of sinks that name environment variables of the workers. What they name goes
// to a server that the declaration chooses: an access key in clear, with every request; a
// secret key as what signs them; a connection string to the server that it names itself.
const (
	AccessKeyField = "accessKeyEnv"
	SecretKeyField = "secretKeyEnv"
	DSNField       = "dsnEnv"
)

// Millrace's own variables. Those that end in _DSN are none: no key of the configuration
// has such a name, and they are left to sinks.
const (
	ownVariables  = "MILLRACE_"
	dsnOfMillrace = "_DSN"
)

// secretWords are in the names of variables whose values must not be sent.
var secretWords = []string{"SECRET", "PASSW", "TOKEN", "DSN"}

// CheckVariable returns why a field of a sink may name a variable nowhere, "" if it may.
//
//	dsnEnv        MILLRACE_SHOP_DSN          yes
//	dsnEnv        MILLRACE_CONNECT_PASSWORD  no: of Millrace itself
//	accessKeyEnv  SHOP_SECRET_KEY            no: it would be sent in clear
func CheckVariable(field, name string) string {
	upper := strings.ToUpper(name)
	if strings.HasPrefix(upper, ownVariables) && (field != DSNField || !strings.HasSuffix(upper, dsnOfMillrace)) {
		return "variables that begin with " + ownVariables + " are Millrace's own and hold its passwords and keys; " +
			"set one of another name, such as " + variableExample(field) + ", and name that"
	}
	if field == AccessKeyField && slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(upper, w) }) {
		return "an access key is sent in clear, and the variable's name says that it holds a secret; name the variable with the access key, such as " +
			variableExample(field)
	}
	return ""
}

func variableExample(field string) string {
	switch field {
	case AccessKeyField:
		return "REPORTS_ACCESS_KEY"
	case SecretKeyField:
		return "REPORTS_SECRET_KEY"
	}
	return "REPORTS_DSN"
}

// AdmitVariable returns why a worker does not read a variable for a sink, nil if it does.
// The names that it allows are whole ones, or beginnings with * behind them. Without any
// it allows those whose names say that they are meant for the field:
//
//	accessKeyEnv  ..._ACCESS_KEY, ..._ACCESS_KEY_ID, ..._ACCESS_ID
//	secretKeyEnv  ..._SECRET_KEY, ..._SECRET_ACCESS_KEY, ..._SECRET
//	dsnEnv        all
//
// but of other software's AWS_... and AZURE_... only AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY, each for its field. What CheckVariable refuses is refused in any case.
func AdmitVariable(field, name string, allowed []string) error {
	if problem := CheckVariable(field, name); problem != "" {
		return fmt.Errorf("%s: %s is refused: %s", field, name, problem)
	}
	if len(allowed) > 0 {
		if slices.ContainsFunc(allowed, func(pattern string) bool { return fits(pattern, name) }) {
			return nil
		}
		return fmt.Errorf("%s: %s is not among the variables that sinks of this worker may name (%s); choose one of them, or add it to sinks.variables in the worker's configuration",
			field, name, strings.Join(allowed, ", "))
	}
	if namedFor(field, strings.ToUpper(name)) {
		return nil
	}
	return fmt.Errorf("%s: the name of %s does not say that it is meant for that; choose one such as %s, or add it to sinks.variables in the worker's configuration",
		field, name, variableExample(field))
}

// CheckAllowed returns what is wrong with one of the names that a worker allows, "" if
// nothing is.
func CheckAllowed(pattern string) string {
	name := strings.TrimSuffix(pattern, "*")
	if name != "" && !envName.MatchString(name) || pattern == "" {
		return fmt.Sprintf("%q is neither the name of a variable nor the beginning of one with * behind it", pattern)
	}
	return ""
}

func fits(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

// namedFor says that the name of a variable is one for a field.
func namedFor(field, upper string) bool {
	var ends []string
	switch foreign := strings.HasPrefix(upper, "AWS_") || strings.HasPrefix(upper, "AZURE_"); {
	case foreign:
		return field == AccessKeyField && upper == "AWS_ACCESS_KEY_ID" || field == SecretKeyField && upper == "AWS_SECRET_ACCESS_KEY"
	case field == AccessKeyField:
		ends = []string{"ACCESS_KEY", "ACCESS_KEY_ID", "ACCESS_ID"}
	case field == SecretKeyField:
		ends = []string{"SECRET_KEY", "SECRET_ACCESS_KEY", "SECRET"}
	default:
		return field == DSNField
	}
	return slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(upper, end) })
}
