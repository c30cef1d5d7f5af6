package processors

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/leases"
)

// checkpointVersion begins every checkpoint; see CHECKPOINT.md.
const checkpointVersion = 1

// errorBytesMax bounds the errors in a checkpoint, which every renewal of its
// lease writes again.
const errorBytesMax = 256

// Clip returns the text of err, cut to what a checkpoint keeps.
func Clip(err error) string { return document.Excerpt(err.Error(), errorBytesMax) }

// ErrCheckpointVersion says that a checkpoint was written by a newer Millrace.
var ErrCheckpointVersion = errors.New("processors: checkpoint of a newer version")

// Checkpoint is what a processor's lease keeps: how far it has come.
type Checkpoint struct {
	// Position is that of the last change that was processed, or taken into
	// State; zero if none was. Reading begins behind it.
	Position feed.Position
	// Taken is that of the last change that the processor holds where that is behind
	// Position: after a crash it is read again. Zero if it holds none.
	Taken feed.Position
	// Time is that of its commit, in Unix milliseconds.
	Time int64
	// Log and Sum identify the log and the commit that Position lies in, so that
	// a stream made anew or restored older is noticed; zero if not known.
	Log feed.LogID
	Sum feed.Checksum
	// Attempts counts failures in a row of the changes that follow, LastError
	// tells the last, and Since is the time of the first, in Unix milliseconds.
	Attempts  int
	LastError string
	Since     int64
	// Transient is how many of Attempts may lie in the changes themselves; see Failure.
	Transient int
	// Halted says that the processor stopped at the first of them, which cannot be
	// processed, as Task.Halt asks. Each term tries it again.
	Halted bool
	// Rewinds is the Task's of the term that wrote the checkpoint.
	Rewinds uint32
	// Parked are changes that could not be processed and lie in the dead letters. One is
	// forgotten when it was tried again with success, or superseded; see Superseder.
	Parked []Job
	// Parent is what the partition was split from, if the processor goes on where that of the parent ended.
	Parent *Parent
	// Split says that the partition was split, that all of its log is read, and that its children's processors
	// can begin; nil before.
	Split *Split
	// Rate is how many copies, or rows, were changed per second before the checkpoint
	// was written at Saved, in Unix milliseconds. For people.
	Rate  float64
	Saved int64
	State
}

// rateFresh is for how long the rate of a checkpoint is that of now: one is written at
// least once a second while there is something to do.
const rateFresh = 3 * time.Second

// RateAt returns the rate at a time: 0 if nothing was done of late.
func (c *Checkpoint) RateAt(now time.Time) float64 {
	if now.Sub(time.UnixMilli(c.Saved)) > rateFresh {
		return 0
	}
	return c.Rate
}

// noteFailure notes a failure of what follows. Since is kept from the first failure on, also in later
// terms, so that people see for how long it has gone on.
func (c *Checkpoint) noteFailure(failed failures, text string) {
	if c.Attempts == 0 || c.Since == 0 {
		c.Since = time.Now().UnixMilli()
	}
	c.Attempts, c.Transient, c.LastError = failed.all, failed.transient, text
}

// forgetFailure forgets the failures of what followed, which is processed now.
func (c *Checkpoint) forgetFailure() {
	c.Attempts, c.Transient, c.LastError, c.Since, c.Halted = 0, 0, "", 0, false
}

// Open is the number of things that the checkpoint's position has passed and that
// are not finished. They count as lag.
func (c *Checkpoint) Open() int { return len(c.Parked) + len(c.Jobs) }

// FinishedBelow is the position below which nothing is left to do, whoever goes
// on from the checkpoint. A backfill is no matter of positions.
func (c *Checkpoint) FinishedBelow() feed.Position {
	// A job holds the position back, although the checkpoint's position has passed it:
	//
	//	position 90, jobs begun at 40 and 70   below 40 nothing is left to do
	//
	// The owners of targets forget the fan-outs below it, and answer late pages of them as done.
	below := c.Position
	for i := range c.Jobs {
		if j := &c.Jobs[i]; j.Source != BackfillJob && j.Position.Before(below) {
			below = j.Position
		}
	}
	return below
}

type checkpointJSON struct {
	Version   int     `json:"version"`
	Position  string  `json:"position"`
	Taken     string  `json:"taken,omitempty"`
	Recorded  string  `json:"recorded,omitempty"`
	Time      int64   `json:"time,omitempty"`
	Log       string  `json:"log,omitempty"`
	Sum       string  `json:"sum,omitempty"`
	Attempts  int     `json:"attempts,omitempty"`
	LastError string  `json:"lastError,omitempty"`
	Since     int64   `json:"since,omitempty"`
	Transient int     `json:"transient,omitempty"`
	Halted    bool    `json:"halted,omitempty"`
	Rewinds   uint32  `json:"rewinds,omitempty"`
	Parked    []Job   `json:"parked,omitempty"`
	Parent    *Parent `json:"parent,omitempty"`
	Split     *Split  `json:"split,omitempty"`
	Rate      int64   `json:"rate,omitempty"`
	Saved     int64   `json:"saved,omitempty"`
	State
}

// encodeToFit is Encode, without the errors of what is given up or still to be done where a
// lease would not take it else: they only inform.
func (c *Checkpoint) encodeToFit() []byte {
	data := c.Encode()
	if len(data) <= leases.CheckpointBytesMax {
		return data
	}
	short := *c
	short.Parked, short.Jobs = slices.Clone(c.Parked), slices.Clone(c.Jobs)
	for _, jobs := range [][]Job{short.Parked, short.Jobs} {
		for i := range jobs {
			jobs[i].LastError = ""
		}
	}
	return short.Encode()
}

// Encode returns the checkpoint in version 1 of its format.
func (c *Checkpoint) Encode() []byte {
	w := checkpointJSON{
		Version: checkpointVersion, Position: c.Position.String(), Time: c.Time, Attempts: c.Attempts, LastError: c.LastError, Since: c.Since,
		Transient: c.Transient, Halted: c.Halted, Rewinds: c.Rewinds, Parked: c.Parked, Parent: c.Parent, Split: c.Split, Rate: int64(math.Ceil(c.Rate)), Saved: c.Saved, State: c.State,
	}
	if !c.Log.IsZero() {
		w.Log, w.Sum = c.Log.String(), c.Sum.String()
	}
	if !c.Taken.IsZero() {
		w.Taken = c.Taken.String()
	}
	if !c.Recorded.IsZero() {
		w.Recorded = c.Recorded.String()
	}
	data, err := json.Marshal(w)
	if err != nil {
		panic(fmt.Sprintf("processors: checkpoint %+v cannot be encoded: %v", c, err))
	}
	return data
}

// DecodeCheckpoint reads what Encode wrote. No data at all is the zero
// Checkpoint. The error is ErrCheckpointVersion for a version to come.
func DecodeCheckpoint(data []byte) (*Checkpoint, error) {
	if len(data) == 0 {
		return &Checkpoint{}, nil
	}
	// The version first, and alone: what a newer release has changed need not be decodable.
	var form struct{ Version int }
	if err := json.Unmarshal(data, &form); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	switch {
	case form.Version > checkpointVersion:
		return nil, fmt.Errorf("%w: %d, this program knows %d", ErrCheckpointVersion, form.Version, checkpointVersion)
	case form.Version < 1:
		return nil, fmt.Errorf("checkpoint: version %d has never been", form.Version)
	}
	var w checkpointJSON
	if err := json.Unmarshal(data, &w); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	cp := &Checkpoint{
		Time: w.Time, Attempts: w.Attempts, LastError: w.LastError, Since: w.Since,
		Transient: w.Transient, Halted: w.Halted, Rewinds: w.Rewinds, Parked: w.Parked, Parent: w.Parent, Split: w.Split, Rate: float64(w.Rate), Saved: w.Saved, State: w.State,
	}
	var err error
	for _, p := range []struct {
		text string
		into *feed.Position
		must bool
	}{{w.Position, &cp.Position, true}, {w.Taken, &cp.Taken, false}, {w.Recorded, &cp.Recorded, false}} {
		if p.text == "" && !p.must {
			continue
		}
		if *p.into, err = feed.ParsePosition(p.text); err != nil {
			return nil, fmt.Errorf("checkpoint: %w", err)
		}
	}
	if w.Log == "" {
		return cp, nil
	}
	if cp.Log, err = feed.ParseLogID(w.Log); err == nil {
		cp.Sum, err = feed.ParseChecksum(w.Sum)
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return cp, nil
}

// plainJob is a Job without its methods, so that MarshalJSON does not call itself.
type plainJob Job

type jobJSON struct {
	plainJob
	Position string `json:"position"`
}

// MarshalJSON writes the position as it is written everywhere, "12.3".
func (j Job) MarshalJSON() ([]byte, error) {
	return json.Marshal(jobJSON{plainJob: plainJob(j), Position: j.Position.String()})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (j *Job) UnmarshalJSON(data []byte) error {
	var w jobJSON
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	position, err := feed.ParsePosition(w.Position)
	if err != nil {
		return err
	}
	*j = Job(w.plainJob)
	j.Position = position
	return nil
}
