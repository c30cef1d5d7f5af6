package script

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/parser"
)

//go:embed prelude.js
var preludeText string

// prelude is compiled once.
var prelude = sync.OnceValues(func() (*goja.Program, error) { return compile("millrace", preludeText) })

// compile compiles a text. Without the option the parser reads the file that a sourceMappingURL in the text names.
func compile(name, text string) (*goja.Program, error) {
	parsed, err := goja.Parse(name, text, parser.WithDisableSourceMaps)
	if err != nil {
		return nil, err
	}
	return goja.CompileAST(parsed, false)
}

// interruption is why a run was interrupted.
type interruption string

// machine is one run: a runtime, and what the prelude has made in it. The goroutine that serves the process owns it; others
// only interrupt it.
type machine struct {
	vm        *goja.Runtime
	run       *runMessage
	next      goja.Callable
	body      goja.Callable
	request   goja.Callable
	log       goja.Callable
	json      goja.Callable
	tell      goja.Callable // the text and the number of what was thrown, which is script too
	parse     goja.Callable
	functions map[string]goja.Callable
}

// newMachine begins a run. ask sends a request about items and returns its answer.
func newMachine(r *runMessage, ask func(json.RawMessage) (*Answer, error)) (*machine, error) {
	m := &machine{vm: goja.New(), run: r, functions: map[string]goja.Callable{}}
	m.vm.SetMaxCallStackSize(r.DepthMax)
	m.vm.SetParserOptions(parser.WithDisableSourceMaps) // of eval, and of the constructor Function
	parse, ok := goja.AssertFunction(m.vm.GlobalObject().Get("JSON").ToObject(m.vm).Get("parse"))
	if !ok {
		return nil, errors.New("JSON.parse is no function")
	}
	m.parse = parse
	program, err := prelude()
	if err != nil {
		return nil, fmt.Errorf("the prelude: %w", err)
	}
	made, err := m.vm.RunProgram(program)
	if err != nil {
		return nil, fmt.Errorf("the prelude: %w", err)
	}
	begin, ok := goja.AssertFunction(made)
	if !ok {
		return nil, errors.New("the prelude is no function")
	}
	env, err := json.Marshal(r.Env)
	if err != nil {
		return nil, err
	}
	envValue, err := m.value(env)
	if err != nil {
		return nil, err
	}
	host := func(call goja.FunctionCall) goja.Value {
		answer, err := ask(json.RawMessage(call.Argument(0).String()))
		if err != nil {
			panic(m.vm.NewGoError(err))
		}
		data, err := json.Marshal(answer)
		if err != nil {
			panic(m.vm.NewGoError(err))
		}
		return m.vm.ToValue(string(data))
	}
	handles, err := begin(goja.Undefined(), m.vm.ToValue(host), envValue)
	if err != nil {
		return nil, fmt.Errorf("the prelude: %w", err)
	}
	object := handles.ToObject(m.vm)
	for name, into := range map[string]*goja.Callable{"next": &m.next, "body": &m.body, "request": &m.request, "log": &m.log, "json": &m.json, "tell": &m.tell} {
		f, ok := goja.AssertFunction(object.Get(name))
		if !ok {
			return nil, fmt.Errorf("the prelude has no %s", name)
		}
		*into = f
	}
	return m, nil
}

// value returns the value of a JSON text.
func (m *machine) value(text []byte) (goja.Value, error) {
	return m.parse(goja.Undefined(), m.vm.ToValue(string(text)))
}

// args returns the values of a JSON array.
func (m *machine) args(text json.RawMessage) ([]goja.Value, error) {
	var raw []json.RawMessage
	if len(text) > 0 {
		if err := json.Unmarshal(text, &raw); err != nil {
			return nil, err
		}
	}
	return m.values(raw)
}

// values returns the values of JSON texts.
func (m *machine) values(raw []json.RawMessage) ([]goja.Value, error) {
	args := make([]goja.Value, len(raw))
	for i := range raw {
		if raw[i] == nil { // JSON's null
			raw[i] = json.RawMessage("null")
		}
		var err error
		if args[i], err = m.value(raw[i]); err != nil {
			return nil, err
		}
	}
	return args, nil
}

// function returns the function that a body is: an expression, or the first function that it declares. Clients send
// what toString makes of a function, so a method's short form is taken too.
func (m *machine) function(body string) (goja.Callable, error) {
	program, err := compile("script", "("+body+"\n)")
	if err != nil {
		// What stands in an object literal has no word function before it.
		if method, ok := compile("script", "({"+body+"\n})"); ok == nil {
			return m.method(method)
		}
		return m.declared(body, err)
	}
	made, err := m.vm.RunProgram(program)
	if err != nil {
		return nil, err
	}
	if f, ok := goja.AssertFunction(made); ok {
		return f, nil
	}
	return nil, errNoFunction
}

// errNoFunction refuses a body that is something else.
var errNoFunction = errors.New("the body is not a function")

// method returns the one member of an object, if it is a function.
func (m *machine) method(program *goja.Program) (goja.Callable, error) {
	made, err := m.vm.RunProgram(program)
	if err != nil {
		return nil, err
	}
	object := made.ToObject(m.vm)
	for _, name := range object.Keys() {
		if f, ok := goja.AssertFunction(object.Get(name)); ok {
			return f, nil
		}
	}
	return nil, errNoFunction
}

// declared runs a text that declares functions, and returns the first one. syntax is why it is no expression.
func (m *machine) declared(body string, syntax error) (goja.Callable, error) {
	parsed, err := goja.Parse("script", body, parser.WithDisableSourceMaps)
	if err != nil {
		return nil, syntax
	}
	program, err := goja.CompileAST(parsed, false)
	if err != nil {
		return nil, err
	}
	if _, err := m.vm.RunProgram(program); err != nil {
		return nil, err
	}
	for _, statement := range parsed.Body {
		declaration, ok := statement.(*ast.FunctionDeclaration)
		if !ok || declaration.Function.Name == nil {
			continue
		}
		if f, ok := goja.AssertFunction(m.vm.GlobalObject().Get(declaration.Function.Name.Name.String())); ok {
			return f, nil
		}
	}
	return nil, errNoFunction
}

// procedure runs a stored procedure or a trigger: its function, and then the callbacks in the order in which they were made.
func (m *machine) procedure() *doneMessage {
	f, err := m.function(m.run.Body)
	if err != nil {
		return m.failed(err)
	}
	args, err := m.args(m.run.Args)
	if err != nil {
		return m.failed(err)
	}
	returned, err := f(goja.Undefined(), args...)
	if err != nil {
		return m.failed(err)
	}
	for {
		more, err := m.next(goja.Undefined())
		if err != nil {
			return m.failed(err)
		}
		if !more.ToBoolean() {
			break
		}
	}
	// Of an async function nobody else hears that it failed.
	if p, ok := returned.Export().(*goja.Promise); ok && p.State() == goja.PromiseStateRejected {
		return m.failed(&rejection{p.Result()})
	}
	done := &doneMessage{Log: m.text(m.log)}
	if done.Body, err = m.result(m.body); err != nil {
		return m.failed(err)
	}
	if done.Request, err = m.result(m.request); err != nil {
		return m.failed(err)
	}
	return done
}

// rejection is what an async function ended with.
type rejection struct{ value goja.Value }

func (r *rejection) Error() string { return "it was rejected" }

// errResult says that a result has more bytes than are allowed.
var errResult = errors.New("the result is too large")

// result calls a function that makes JSON, none for "".
func (m *machine) result(f goja.Callable, args ...goja.Value) (json.RawMessage, error) {
	made, err := f(goja.Undefined(), args...)
	if err != nil {
		return nil, err
	}
	text := made.String()
	switch {
	case text == "":
		return nil, nil
	case len(text) > m.run.ResultBytes:
		return nil, errResult
	}
	return json.RawMessage(strings.ToValidUTF8(text, "�")), nil
}

// text calls a function that makes a text; "" where it does not come to that.
func (m *machine) text(f goja.Callable) string {
	made, err := f(goja.Undefined())
	if err != nil {
		return ""
	}
	return made.String()
}

// call calls one of the functions that were loaded.
func (m *machine) call(c *callMessage) *doneMessage {
	f := m.functions[c.Name]
	if f == nil {
		return &doneMessage{Failure: failedThrown, Message: "there is no function " + c.Name}
	}
	args, err := m.values(c.Args)
	if err != nil {
		return m.failed(err)
	}
	for _, i := range c.Undefined {
		args[i] = goja.Undefined()
	}
	value, err := f(goja.Undefined(), args...)
	if err != nil {
		return m.failed(err)
	}
	body, err := m.result(m.json, value)
	if err != nil {
		return m.failed(err)
	}
	return &doneMessage{Body: body}
}

// load reads the functions that are called later.
func (m *machine) load() *doneMessage {
	for name, body := range m.run.Functions {
		f, err := m.function(body)
		if err != nil {
			done := m.failed(err)
			done.Message = "udf." + name + ": " + done.Message
			return done
		}
		m.functions[name] = f
	}
	return &doneMessage{}
}

// messageBytesMax bounds the message of an error that a script makes up.
const messageBytesMax = 4 << 10

// failed tells why a run ended.
func (m *machine) failed(err error) *doneMessage {
	if interrupted, ok := errors.AsType[*goja.InterruptedError](err); ok {
		if why, ok := interrupted.Value().(interruption); ok {
			return &doneMessage{Failure: string(why), Message: "it was interrupted"}
		}
	}
	if _, ok := errors.AsType[*goja.StackOverflowError](err); ok {
		return &doneMessage{Failure: failedDepth, Message: "it called too deep"}
	}
	if errors.Is(err, errResult) {
		return &doneMessage{Failure: failedResult, Message: err.Error()}
	}
	done := &doneMessage{Failure: failedThrown, Log: m.text(m.log)}
	var thrown goja.Value
	if exception, ok := errors.AsType[*goja.Exception](err); ok {
		thrown = exception.Value()
	} else if rejected, ok := errors.AsType[*rejection](err); ok {
		thrown = rejected.value
	}
	if thrown == nil {
		done.Message = err.Error()
	} else if told, err := m.tell(goja.Undefined(), thrown); err == nil {
		said := told.ToObject(m.vm)
		done.Message, done.Status = said.Get("text").String(), int(said.Get("number").ToInteger())
	} else if _, script := errors.AsType[*goja.Exception](err); script {
		done.Message = "it threw something that has no text"
	} else {
		return m.failed(err) // it was interrupted there
	}
	if len(done.Message) > messageBytesMax {
		done.Message = done.Message[:messageBytesMax]
	}
	done.Message = strings.ToValidUTF8(done.Message, "�")
	return done
}

// timed interrupts the machine when its time is over, until stop is called.
func (m *machine) timed() (stop func()) {
	timer := time.AfterFunc(time.Duration(m.run.TimeMillis)*time.Millisecond, func() { m.vm.Interrupt(interruption(failedTime)) })
	return func() { timer.Stop() }
}
