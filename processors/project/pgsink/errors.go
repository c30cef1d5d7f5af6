package pgsink

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/store"
)

// Error says that PostgreSQL could not be reached or refused what is not about a
// row: it matches store.ErrUnavailable, so that it is tried again until an operator
// or time has put it right.
type Error struct {
	// Doing is what was being done.
	Doing string
	// Code is PostgreSQL's SQLSTATE, empty if there was no answer.
	Code string
	// Message is what PostgreSQL or the connection said.
	Message string
}

func (e *Error) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("pgsink: %s: %s", e.Doing, e.Message)
	}
	return fmt.Sprintf("pgsink: %s: %s (SQLSTATE %s)", e.Doing, e.Message, e.Code)
}

// Unwrap makes the error match store.ErrUnavailable.
func (e *Error) Unwrap() error { return store.ErrUnavailable }

// SchemaError says that the tables that are there cannot become those of a schema
// without being filled anew.
type SchemaError struct {
	Pipeline string
	// Problems tell each difference.
	Problems []string
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("pgsink: the tables of pipeline %s cannot be changed in place; rebuild them in a shadow generation: %s",
		e.Pipeline, strings.Join(e.Problems, "; "))
}

// answer is an error of the server, as the rest of the package sees it.
type answer struct{ code, message string }

func (a *answer) Error() string { return a.message + " (SQLSTATE " + a.code + ")" }

// answerOf returns the server's answer in a driver's error, nil if there is none.
func answerOf(err error) *answer {
	if a, ok := errors.AsType[*answer](err); ok {
		return a
	}
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		a := &answer{code: refused.Code, message: refused.Message}
		if a.code == codeDependents {
			a.message += ": " + refused.Detail // which view it is
		}
		return a
	}
	return nil
}

// failure translates an error of the driver that came while doing something under
// ctx.
func failure(ctx context.Context, doing string, err error) error {
	var known *Error
	var schema *SchemaError
	switch {
	case err == nil, errors.Is(err, processors.ErrFenced), errors.Is(err, project.ErrPosition), errors.Is(err, project.ErrGivenUp), errors.As(err, &known), errors.As(err, &schema):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("pgsink: %s: %w", doing, context.Cause(ctx))
	}
	if a := answerOf(err); a != nil {
		return &Error{Doing: doing, Code: a.code, Message: a.message}
	}
	message := err.Error()
	if pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded) {
		message = "no answer in time"
	}
	return &Error{Doing: doing, Message: message}
}

// Classes and codes of SQLSTATE, see PostgreSQL's appendix "Error Codes".
const (
	codeDeadlock         = "40P01"
	codeSerialization    = "40001"
	codeLockNotAvailable = "55P03"
	codeDependents       = "2BP01"
	codeUndefinedTable   = "42P01"
	codeUndefinedSpace   = "3F000" // a schema
)

// rowFault says whether an error is about the rows that were written: their
// values, a constraint, a limit of the engine, or a trigger that raised an error.
// Everything else would happen to any row.
func rowFault(err error) bool {
	a := answerOf(err)
	if a == nil || len(a.code) != 5 {
		return false
	}
	//	22  a value out of range or of a wrong form    44  a view's check
	//	23  a constraint                               54  a limit of the engine
	//	P0  an error that a trigger raised
	switch a.code[:2] {
	case "22", "23", "44", "54", "P0":
		return true
	}
	return false
}

// interrupted says whether a transaction failed only because another came in between.
func interrupted(err error) bool {
	a := answerOf(err)
	return a != nil && (a.code == codeDeadlock || a.code == codeSerialization)
}

// lockBusy says whether a lock was not free in time.
func lockBusy(err error) bool {
	a := answerOf(err)
	return a != nil && a.code == codeLockNotAvailable
}

// tableMissing says whether a table was not there.
func tableMissing(err error) bool {
	a := answerOf(err)
	return a != nil && (a.code == codeUndefinedTable || a.code == codeUndefinedSpace)
}
