package leases

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/millrace/millrace/leases/right"
)

// Causes with which [Held.Context] and [Held.Trust] end; read them with
// [context.Cause].
var (
	// ErrLost says that the lease was lost: another process has it, or it could
	// not be renewed in time and must be taken for lost. Nothing may be written
	// or read under it any more.
	ErrLost = errors.New("leases: lease lost")

	// ErrStalled says that the holder did not call [Held.Progress] for
	// Config.StallTimeout. The lease is treated as lost.
	ErrStalled = errors.New("leases: holder made no progress")

	// ErrDraining says that the process is stopping. The lease is still renewed
	// until the work returns or Config.DrainTimeout has passed.
	ErrDraining = errors.New("leases: process is draining")

	// ErrMoved says that the lease is given up for a member that holds less, or because the node drains ([Drain]). It
	// is still renewed until the work returns or Config.DrainTimeout has passed.
	ErrMoved = errors.New("leases: lease moves to another member")

	// ErrWithdrawn says that the resource is no longer among those set by
	// [Manager.SetResources]. The lease is still renewed until the work returns
	// or Config.DrainTimeout has passed.
	ErrWithdrawn = errors.New("leases: resource withdrawn")
)

var (
	// ErrSuperseded is returned by [Manager.Run] when a later process announced
	// itself under the same node and group: a directory was copied, or two
	// managers of one group were opened in one process. The earlier one stops.
	ErrSuperseded = errors.New("leases: node announced itself again elsewhere")

	// ErrDrainTimeout is returned by [Manager.Run] when work had not returned
	// Config.DrainTimeout after the drain began. Its leases were not released
	// and expire by themselves.
	ErrDrainTimeout = errors.New("leases: work still running after the drain timeout")

	// ErrCheckpointTooLarge is returned by [Held.Save].
	ErrCheckpointTooLarge = fmt.Errorf("leases: checkpoint larger than %d bytes", CheckpointBytesMax)
)

// EpochBehindError is returned by work that finds a greater epoch than its own
// where it writes, though its lease is valid: the records were lost. The lease
// is released with that epoch, so that the next holding's is greater.
type EpochBehindError struct {
	Seen uint64
}

// Error names the epoch.
func (e *EpochBehindError) Error() string {
	return fmt.Sprintf("leases: epoch %d was used before the lease records were lost", e.Seen)
}

// Limits of what is stored.
const (
	// CheckpointBytesMax bounds a checkpoint. Every renewal writes it again, so
	// it holds a position and a little more.
	CheckpointBytesMax = 256 << 10

	// ResourceBytesMax bounds the name of a resource.
	ResourceBytesMax = 512

	// errorBytesMax bounds Lease.LastError; the rest is cut.
	errorBytesMax = 2048
)

// Config tunes a [Manager]. Zero fields take their defaults.
type Config struct {
	// Bucket is the JetStream key-value bucket of all leases. Default
	// "millrace_leases".
	Bucket string `yaml:"bucket"`

	// Replicas is the number of copies of a bucket that Open creates; an
	// existing bucket is left as it is. Default 1, at most 5.
	Replicas int `yaml:"replicas"`

	// TTL is how long a lease outlives its last renewal. Default 7s, and 30s for a node
	// whose own NATS server is no member of a cluster, such as millrace up; at least 200ms.
	// Members of one group may differ: each lease carries its holder's.
	TTL time.Duration `yaml:"ttl"`

	// RenewInterval is the time from one renewal to the next. Default TTL*2/7,
	// at most TTL/3.
	RenewInterval time.Duration `yaml:"renewInterval"`

	// BalanceInterval is the time between two checks whether this process holds too
	// much. Freed leases are taken at once and do not wait for it. Default 1s.
	BalanceInterval time.Duration `yaml:"balanceInterval"`

	// WeightInterval is the least time between two changes of a lease's
	// published weight, so that a lag that swings does not move leases. Default
	// 30s.
	WeightInterval time.Duration `yaml:"weightInterval"`

	// StallTimeout is how long work may go without [Held.Progress] before its
	// lease is no longer renewed. Default 0: never.
	StallTimeout time.Duration `yaml:"stallTimeout"`

	// DrainTimeout is how long work may go on after it was told to end (drain,
	// move, withdrawal) before its lease is no longer renewed. Default 5s.
	DrainTimeout time.Duration `yaml:"drainTimeout"`

	// RetryBackoff is the pause before this process takes a lease again whose
	// work returned. It doubles with each failure in a row up to
	// RetryBackoffMax. Default 1s.
	RetryBackoff time.Duration `yaml:"retryBackoff"`

	// RetryBackoffMax bounds RetryBackoff's growth. Default 1m.
	RetryBackoffMax time.Duration `yaml:"retryBackoffMax"`

	// TakeMax bounds the leases that this process is taking at the same time. Default 32.
	TakeMax int `yaml:"takeMax"`

	// Group names the members that share one set of resources, such as "store"
	// or "worker". Required; letters, digits, "-" and "_".
	Group string `yaml:"-"`

	// Node is the stable id of the node directory ([DirLock.Node]). Empty: a
	// random one.
	Node string `yaml:"-"`

	// NodeLocked says that the caller holds the lock of Node's directory
	// ([LockDir]) until Run has returned. It lets the Manager take the leases of
	// Node's earlier incarnations at once. Without it each start counts as a
	// node of its own.
	NodeLocked bool `yaml:"-"`

	// Fenced says that it does no harm if two work under one lease for some seconds: what they write is refused when
	// it carries an older epoch than its target has seen, is conditional on what they have read, or may be done twice.
	// Leases of a process that is gone are taken then before they expire, one to two seconds after its connection to
	// NATS has ended. All members of a group have the same. Default false: work may rest on Held.Valid.
	Fenced bool `yaml:"-"`

	// Deposes says that the members of the group hold read rights (package right) and depose each other: a lease whose
	// holder is gone is taken a second or two later, and Held.Valid is false when the right of this process does not
	// hold. Work calls Held.Settle then. Default false: a holder that is gone is waited for until the lease expires.
	Deposes bool `yaml:"-"`

	// Right tunes the read right of a store of a cluster: for how long it answers without asking anybody, and so for
	// how long another one waits that takes over from it.
	Right right.Config `yaml:"right"`

	// Host is shown to operators beside the holder. Informative.
	Host string `yaml:"-"`

	// Level is the feature level that this process can read; [Processes] returns it. No lease
	// depends on it.
	Level int `yaml:"-"`

	// Log receives messages about leases. Default slog.Default().
	Log *slog.Logger `yaml:"-"`

	prober prober // nil: nobody is asked
}

// Defaults of Config that are shared with documentation and tests.
const (
	// DefaultBucket is the default of Config.Bucket.
	DefaultBucket = "millrace_leases"
	// DefaultTTL is the default of Config.TTL.
	DefaultTTL = 7 * time.Second

	ttlMin      = 200 * time.Millisecond
	replicasMax = 5
)

var (
	validGroup = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	validNode  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
)

// withDefaults returns c with its defaults, and an error that names all wrong fields.
func (c Config) withDefaults() (Config, error) {
	// TTL first: RenewInterval's default and limit follow from it.
	setDefault(&c.Bucket, DefaultBucket)
	setDefault(&c.Replicas, 1)
	setDefault(&c.TTL, DefaultTTL)
	setDefault(&c.RenewInterval, c.TTL*2/7)
	setDefault(&c.BalanceInterval, time.Second)
	setDefault(&c.WeightInterval, 30*time.Second)
	setDefault(&c.DrainTimeout, 5*time.Second)
	setDefault(&c.RetryBackoff, time.Second)
	setDefault(&c.RetryBackoffMax, max(time.Minute, c.RetryBackoff))
	setDefault(&c.TakeMax, 32)
	setDefault(&c.Log, slog.Default())
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("leases: "+format, args...))
		}
	}
	check(c.Replicas >= 1 && c.Replicas <= replicasMax, "replicas %d is not between 1 and %d", c.Replicas, replicasMax)
	check(c.TTL >= ttlMin, "ttl %v is below %v", c.TTL, ttlMin)
	check(c.TTL <= ttlMax, "ttl %v is above %v", c.TTL, ttlMax)
	// A third: after a failed renewal the next one still comes before trust ends, at six
	// sevenths of TTL.
	check(c.RenewInterval > 0 && c.RenewInterval <= c.TTL/3, "renewInterval %v is not between 0 and a third of ttl %v", c.RenewInterval, c.TTL)
	check(c.BalanceInterval > 0, "balanceInterval %v is not above 0", c.BalanceInterval)
	check(c.WeightInterval > 0, "weightInterval %v is not above 0", c.WeightInterval)
	check(c.StallTimeout >= 0, "stallTimeout %v is below 0", c.StallTimeout)
	check(c.DrainTimeout > 0, "drainTimeout %v is not above 0", c.DrainTimeout)
	check(c.RetryBackoff > 0, "retryBackoff %v is not above 0", c.RetryBackoff)
	check(c.RetryBackoffMax >= c.RetryBackoff, "retryBackoffMax %v is below retryBackoff %v", c.RetryBackoffMax, c.RetryBackoff)
	check(c.TakeMax > 0, "takeMax %d is not above 0", c.TakeMax)
	check(validGroup.MatchString(c.Group), "group %q is not 1 to 64 letters, digits, - or _", c.Group)
	check(c.Node == "" || validNode.MatchString(c.Node), "node %q is not 1 to 128 letters, digits, - or _", c.Node)
	check(c.Node != "" || !c.NodeLocked, "nodeLocked needs a node")
	check(!c.Fenced || !c.Deposes, "a group that is fenced needs no rights")
	return c, errors.Join(errs...)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// margin is how long before its lease can pass on a holder's trust ends. It covers the time
// between reading the clock and the end of the work that relies on it, and clocks that do
// not run equally fast.
func (c *Config) margin() time.Duration { return c.TTL / 7 }

// takeInterval is how long a free lease waits for the member that should take
// it before another does.
func (c *Config) takeInterval() time.Duration { return max(c.RenewInterval/4, time.Millisecond) }

// warmInterval is takeInterval where that member is warm. It opens at once what another loads for seconds or minutes,
// so a moment in which it is slow is no reason to load; one that is silent for so long takes nothing anyway.
func (c *Config) warmInterval() time.Duration { return max(c.TTL/2, c.takeInterval()) }
