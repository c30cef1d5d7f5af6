package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
)

// processVariable tells a process that it is one for scripts; its value is the bound for memory.
const processVariable = "MILLRACE_SCRIPT_PROCESS"

// ServeIfAsked runs scripts until the process that began this one ends, and then ends it, if it was begun for that. A program whose
// path Config.Command has calls it before anything else.
func ServeIfAsked() {
	text, asked := os.LookupEnv(processVariable)
	if !asked {
		return
	}
	memory, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, processVariable+" is for the process itself:", err)
		os.Exit(2)
	}
	os.Clearenv()
	debug.SetMaxStack(stackBytesMax)
	debug.SetGCPercent(50)
	limitProcess(memory)
	fmt.Fprintln(os.Stderr, "scripts:", serve(os.Stdin, os.Stdout))
	os.Exit(1)
}

// serve runs scripts. Where in ends the process does; it returns for an error alone.
func serve(in io.Reader, out io.Writer) error {
	if _, err := io.WriteString(out, hello); err != nil {
		return err
	}
	messages := make(chan *toProcess)
	go func() {
		// A process whose parent has gone ends, whatever its script does.
		for {
			message := new(toProcess)
			if err := readFrame(in, message); err != nil {
				os.Exit(0)
			}
			messages <- message
		}
	}()
	ask := func(request json.RawMessage) (*Answer, error) {
		if err := writeFrame(out, &fromProcess{Ask: request}); err != nil {
			return nil, err
		}
		message := <-messages
		if message.Answer == nil {
			return nil, errors.New("a message that is no answer came")
		}
		return message.Answer, nil
	}
	var loaded *machine // by the last message that was no call
	unload := func() {}
	for {
		message := <-messages
		var done *doneMessage
		switch {
		case message.Run != nil:
			unload()
			done, loaded, unload = carryOut(message.Run, ask)
		case message.Call != nil && loaded != nil:
			stop := loaded.timed()
			done = loaded.call(message.Call)
			stop()
		default:
			return errors.New("a message that asks for nothing came")
		}
		if err := writeFrame(out, &fromProcess{Done: done}); err != nil {
			return err
		}
	}
}

// carryOut runs a script, or loads functions. Of functions it returns the machine that has them; their memory is watched until
// unload is called.
func carryOut(r *runMessage, ask func(json.RawMessage) (*Answer, error)) (done *doneMessage, loaded *machine, unload func()) {
	m, err := newMachine(r, ask)
	if err != nil {
		return &doneMessage{Failure: failedThrown, Message: err.Error()}, nil, func() {}
	}
	unwatch := watchMemory(r.MemoryBytes, func() { m.vm.Interrupt(interruption(failedMemory)) })
	stop := m.timed()
	defer stop()
	if r.Functions != nil {
		return m.load(), m, unwatch
	}
	defer unwatch()
	return m.procedure(), nil, func() {}
}
