package right

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"time"

	"github.com/millrace/millrace/leases/boottime"
)

// Defaults of Config.
const (
	// Wait is the default of [Config.Wait].
	Wait = 500 * time.Millisecond

	// Trust is the default of [Config.Trust]: a seventh less than Wait, in whole milliseconds.
	Trust = 428 * time.Millisecond

	// RenewInterval is the default of [Config.RenewInterval].
	RenewInterval = 150 * time.Millisecond
)

// Limits.
const (
	trustMin = 20 * time.Millisecond
	trustMax = 10 * time.Minute

	// whyBytesMax bounds the reason that a deposing gives; the rest is cut.
	whyBytesMax = 512
)

// Config tunes a [Right], and the [Sight] beside it. Zero fields take their defaults.
type Config struct {
	// Trust is how long the right holds, counted from the sending of the try that was stored. The key states it,
	// so nodes of one group may differ, and others wait for the longest of all. Default 428ms, or a
	// seventh less than Wait where that is set; whole milliseconds, 20ms to 10m. A cluster whose writes take
	// longer than a third of it needs a longer one.
	Trust time.Duration `yaml:"trust"`

	// Wait is how long this node waits, at least, before it serves what it took over. Default 500ms, or seven
	// sixths of Trust if that is longer; at least that.
	Wait time.Duration `yaml:"wait"`

	// RenewInterval is the time from one renewal to the next. Default 150ms, in proportion where Trust is set; at
	// most half of Trust.
	RenewInterval time.Duration `yaml:"renewInterval"`

	// Group names the nodes that depose each other, such as "store" or "worker". Required; 1 to 64 letters, digits,
	// "-" and "_".
	Group string `yaml:"-"`

	// Node is the stable id of this node. Required; 1 to 128 letters, digits, "-" and "_".
	Node string `yaml:"-"`

	// NodeLocked says that the caller holds the lock of Node's directory (leases.LockDir) until Close has
	// returned, so every earlier process of Node is dead; and that it has ended what rested on an earlier Right of
	// its own. Open then writes over the key of the earlier incarnation at once. Without it Open deposes that one,
	// as anybody would, and waits.
	NodeLocked bool `yaml:"-"`

	// Host is shown to operators. Informative.
	Host string `yaml:"-"`

	// Level is the feature level that this process can read. Nothing here depends on it.
	Level int `yaml:"-"`

	// Now returns the time since an arbitrary moment, by a clock that never goes back and counts the time during
	// which the machine was suspended. Default CLOCK_BOOTTIME on Linux, and elsewhere Go's monotonic clock, which
	// may not count it.
	Now func() time.Duration `yaml:"-"`

	// Log receives messages about the right. Default slog.Default().
	Log *slog.Logger `yaml:"-"`
}

var (
	validGroup = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	validNode  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
)

// withDefaults returns c with its defaults, and an error that names all wrong fields.
func (c Config) withDefaults() (Config, error) {
	// Trust before what follows from it.
	switch {
	case c.Trust == 0 && c.Wait == 0:
		c.Trust = Trust
	case c.Trust == 0:
		c.Trust = (c.Wait - c.Wait/7).Truncate(time.Millisecond)
	}
	setDefault(&c.Wait, max(Wait, waitFor(c.Trust)))
	setDefault(&c.RenewInterval, time.Duration(float64(RenewInterval)*float64(c.Trust)/float64(Trust)))
	setDefault(&c.Log, slog.Default())
	if c.Now == nil {
		c.Now = boottime.Clock()
	}
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("right: "+format, args...))
		}
	}
	check(c.Trust >= trustMin && c.Trust <= trustMax, "trust %v is not between %v and %v", c.Trust, trustMin, trustMax)
	// The key states it in milliseconds, and a part of one would not be waited for.
	check(c.Trust%time.Millisecond == 0, "trust %v is not in whole milliseconds", c.Trust)
	check(c.Wait >= waitFor(c.Trust), "wait %v is below seven sixths of trust %v", c.Wait, c.Trust)
	// A half: after a renewal that failed the next one still comes before the right has run out.
	check(c.RenewInterval > 0 && c.RenewInterval <= c.Trust/2, "renewInterval %v is not between 0 and half of trust %v", c.RenewInterval, c.Trust)
	check(validGroup.MatchString(c.Group), "group %q is not 1 to 64 letters, digits, - or _", c.Group)
	check(validNode.MatchString(c.Node), "node %q is not 1 to 128 letters, digits, - or _", c.Node)
	return c, errors.Join(errs...)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// waitFor is how long others wait for a right that holds for trust: a sixth longer, which is what clocks may run unequally.
func waitFor(trust time.Duration) time.Duration { return (trust*7 + 5) / 6 }

// tryMax is how long the outcome of one try is waited for. A try may be lost with the server that had it, and there must be
// time for another one.
func (c *Config) tryMax() time.Duration { return c.Trust / 2 }

// retry is the pause between tries that fail.
func (c *Config) retry() retryPause {
	return retryPause{first: max(c.RenewInterval/16, time.Millisecond), most: c.RenewInterval}
}

// newID returns n random characters of lower-case base32. It is unique, not secret.
func newID(n int) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz234567"
	id := make([]byte, n)
	for i := range id {
		id[i] = alphabet[rand.IntN(len(alphabet))]
	}
	return string(id)
}
