package status

import (
	"slices"
	"time"

	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/processors"
)

// State is how a pipeline, or one of its processors, is.
type State string

// The states, from the best to the worst. Of a pipeline it is the worst of its
// processors'.
const (
	Idle          State = "idle"          // nothing is left to do
	Behind        State = "behind"        // there is something to do and it is being done
	Switching     State = "switching"     // it has caught up, and is not in force everywhere yet
	Backfilling   State = "backfilling"   // what was there when its generation began is being done
	Uninitialised State = "uninitialised" // no worker has held it yet
	Stuck         State = "stuck"         // there is something to do and no progress
	Halted        State = "halted"        // it stopped at a change that cannot be processed, as declared
	Paused        State = "paused"        // an operator paused it
)

var severity = map[State]int{
	Idle: 0, Behind: 1, Switching: 2, Backfilling: 3, Uninitialised: 4, Stuck: 5, Halted: 6, Paused: 7,
}

func worse(a, b State) State {
	if severity[b] > severity[a] {
		return b
	}
	return a
}

// Unwell says whether a state needs an operator.
func (s State) Unwell() bool { return s == Stuck || s == Halted }

// Status tells where all pipelines stand.
type Status struct {
	Time      time.Time  `json:"time"`
	Pipelines []Pipeline `json:"pipelines"`
	// Problems say what could not be read, and is missing here.
	Problems []string `json:"problems,omitempty"`
	// Warnings are what else an operator is to know, such as of replicas.
	Warnings []string `json:"warnings,omitempty"`
	// Advice is what helps against too much load.
	Advice []string `json:"advice,omitempty"`
	// Storage tells of logs and engines; nil if nobody asked.
	Storage *Storage `json:"storage,omitempty"`
	// Waited is how much of the time that the reading took nothing was done but to wait for logs that did not answer. Those
	// that were silent in the reading before are not waited for.
	Waited time.Duration `json:"-"`
}

// Healthy says whether no pipeline is stuck or halted and no partition in trouble, and all
// could be read.
func (s *Status) Healthy() bool {
	unwell := func(p Pipeline) bool { return p.State.Unwell() || len(p.Unread) > 0 } // paused ones have logs too
	return len(s.Problems) == 0 && (s.Storage == nil || len(s.Storage.Troubles) == 0) && !slices.ContainsFunc(s.Pipelines, unwell)
}

// Pipeline tells where one pipeline stands.
type Pipeline struct {
	Database   string            `json:"database"`
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	Kind       spec.PipelineKind `json:"kind"`
	Generation uint32            `json:"generation"`
	Source     string            `json:"source"` // container
	// Target is the container of a cascade or an aggregate, and where the sink of a
	// projection is.
	Target string `json:"target"`
	State  State  `json:"state"`
	// Reason tells what to do about a state that is not well; "" if it is.
	Reason string            `json:"reason,omitempty"`
	Lag    Lag               `json:"lag"`
	Counts processors.Counts `json:"counts"`
	Rate   float64           `json:"rate"` // copies changed, or rows written, per second
	// Parked are the changes that were given up and wait for a retry, or, in a cascade, for the
	// next change of their item that makes up for them.
	Parked int `json:"parked"`
	// Backfill tells how far the reading of what was there is; nil when it is done.
	Backfill *Backfill `json:"backfill,omitempty"`
	// Sink tells of the sink of a projection; nil for other kinds.
	Sink *Sink `json:"sink,omitempty"`
	// Verified is what the continuous verification has found of this generation; nil
	// while it has found nothing.
	Verified *verify.Verification `json:"proof,omitempty"`
	// Unread are the partitions of which the log, or the checkpoint, could not be read: what is left to do there is not
	// known.
	Unread []string `json:"unread,omitempty"`
	// FanOuts are those that are open, the oldest first.
	FanOuts    []FanOut    `json:"fanOuts"`
	Processors []Processor `json:"processors"`
}

// Lag is how far a reading is behind.
type Lag struct {
	// Commits of the log that are not processed, and how many Changes they hold.
	Commits uint64 `json:"commits"`
	Changes uint64 `json:"changes"`
	// Estimated says that not all commits were looked at to count the changes.
	Estimated bool `json:"estimated,omitempty"`
	// Jobs are open fan-outs and parked items, whose commits are counted as
	// processed.
	Jobs int `json:"jobs"`
	// Seconds is the age of the oldest of either; 0 if there is none.
	Seconds float64 `json:"seconds"`
	// Unknown says that a log or checkpoint could not be read: there may be more than stands here.
	Unknown bool `json:"unknown,omitempty"`
}

// None says that nothing is left to do.
func (l Lag) None() bool { return l.Commits == 0 && l.Jobs == 0 && l.Changes == 0 }

// Backfill tells how far a generation is in what was there when it began.
type Backfill struct {
	Generation uint32 `json:"generation"`
	// Done of Total commits are read.
	Done    uint64        `json:"done"`
	Total   uint64        `json:"total"`
	Percent float64       `json:"percent"`
	ETA     time.Duration `json:"-"`                    // 0 while it is not known
	Seconds float64       `json:"etaSeconds,omitempty"` // ETA in seconds
	// Shadow says that the rows are built beside those of an earlier generation.
	Shadow bool `json:"shadow,omitempty"`
}

// Sink tells how the sink of a projection is, as its processors find it.
type Sink struct {
	// Kind is container, parquet or postgres.
	Kind string `json:"kind"`
	// Where is the directory, bucket, environment variable or containers.
	Where string `json:"where"`
	// Error is what the last write failed with that is tried again; "" while the
	// sink takes what is written.
	Error string `json:"error,omitempty"`
	// Attempts counts the failures in a row, and Since is when the first was; zero if
	// that is not known.
	Attempts int       `json:"attempts,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	// Rejected tells of rows that were rejected of late, such as for the type of a
	// column; at most processors.RejectedMax of each reader.
	Rejected []string `json:"rejected,omitempty"`
}

// FanOut tells how far one fan-out is.
type FanOut struct {
	Partition string        `json:"partition"`          // of the source
	Source    string        `json:"source"`             // the item whose change is fanned out
	Position  string        `json:"position,omitempty"` // the version that it brings; "" for a backfill
	Began     time.Time     `json:"began"`
	Scanned   int64         `json:"scanned"`
	Changed   int64         `json:"changed"`
	Total     int64         `json:"total,omitempty"`      // 0 while it is not known
	Percent   float64       `json:"percent"`              // 0 while it is not known
	ETA       time.Duration `json:"-"`                    // 0 while it is not known
	Seconds   float64       `json:"etaSeconds,omitempty"` // ETA in seconds
	Rate      float64       `json:"rate"`                 // copies changed per second, since it began
	Attempts  int           `json:"attempts,omitempty"`
	LastError string        `json:"lastError,omitempty"`
}

// Processor tells where one processor stands.
type Processor struct {
	Generation uint32            `json:"generation"`
	Role       processors.Role   `json:"role"`
	Partition  string            `json:"partition"`
	State      State             `json:"state"`
	Reason     string            `json:"reason,omitempty"`
	Owner      string            `json:"owner,omitempty"`
	Host       string            `json:"host,omitempty"`
	Epoch      uint64            `json:"epoch"`
	Position   string            `json:"position"` // of the last change that is done
	Head       uint64            `json:"head"`     // LSN of the last commit in the log
	Lag        Lag               `json:"lag"`
	Counts     processors.Counts `json:"counts"`
	Parked     int               `json:"parked"`
}
