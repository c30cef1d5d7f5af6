package script

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// hello is what a process says first, so that another program, which was started in place of one, is told from it.
const hello = "millrace script 1\n"

// frameBytesMax bounds a message between the two processes, beyond what a page of items, a body or a result has.
const frameBytesMax = 32 << 20

// toProcess is a message to the process: a run, or the answer to what it asked. Exactly one is set.
type toProcess struct {
	Run    *runMessage  `json:"run,omitempty"`
	Call   *callMessage `json:"call,omitempty"`
	Answer *Answer      `json:"answer,omitempty"`
}

// fromProcess is a message of the process. Exactly one is set.
type fromProcess struct {
	Ask  json.RawMessage `json:"ask,omitempty"`
	Done *doneMessage    `json:"done,omitempty"`
}

// runMessage begins a run. Without a Body it only loads Functions, which are then called.
type runMessage struct {
	Body      string            `json:"body,omitempty"`
	Functions map[string]string `json:"functions,omitempty"`
	Args      json.RawMessage   `json:"args,omitempty"` // an array
	Env       environment       `json:"env"`

	TimeMillis  int64 `json:"timeMillis"`
	MemoryBytes int64 `json:"memoryBytes"`
	DepthMax    int   `json:"depthMax"`
	ResultBytes int   `json:"resultBytes"`
}

// callMessage calls one of the functions that were loaded.
type callMessage struct {
	Name string            `json:"name"`
	Args []json.RawMessage `json:"args"`
	// Undefined are the places of arguments that are undefined, which JSON has no word for.
	Undefined []int `json:"undefined,omitempty"`
}

// environment is what the prelude gets.
type environment struct {
	SelfLink  string          `json:"selfLink"`
	AltLink   string          `json:"altLink"`
	Activity  string          `json:"activity"`
	Logging   bool            `json:"logging,omitempty"`
	LogMax    int             `json:"logMax"`
	Pure      bool            `json:"pure,omitempty"` // no context: a function of its arguments
	Trigger   bool            `json:"trigger,omitempty"`
	Operation string          `json:"operation,omitempty"`
	Status    int             `json:"status,omitempty"`
	Request   json.RawMessage `json:"request,omitempty"`
	Response  json.RawMessage `json:"response,omitempty"`
}

// doneMessage ends a run.
type doneMessage struct {
	Body    json.RawMessage `json:"body,omitempty"`
	Request json.RawMessage `json:"request,omitempty"`
	Log     string          `json:"log,omitempty"`
	Failure string          `json:"failure,omitempty"` // one of the reasons below
	Message string          `json:"message,omitempty"`
	Status  int             `json:"status,omitempty"` // that an error of the script has
}

// Why a run ended.
const (
	failedThrown = "thrown"
	failedTime   = "time"
	failedMemory = "memory"
	failedDepth  = "depth"
	failedResult = "result"
)

// writeFrame writes v as JSON behind its length.
func writeFrame(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a message: %w", err)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(data)), uint32(len(data)))
	_, err = w.Write(append(frame, data...))
	return err
}

// readFrame reads what writeFrame has written.
func readFrame(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > frameBytesMax {
		return fmt.Errorf("a message of %d bytes; at most %d are allowed", n, frameBytesMax)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("read a message: %w", err)
	}
	return nil
}
