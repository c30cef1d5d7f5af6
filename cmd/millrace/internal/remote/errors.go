package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/millrace/millrace/store"
)

// whyMax bounds the bytes of a cause in a message.
const whyMax = 300

// ConfigError is a Config that cannot be understood.
type ConfigError struct{ error }

// Unwrap returns the cause.
func (e *ConfigError) Unwrap() error { return e.error }

// NewConfigError returns a *ConfigError with a text as fmt.Errorf makes it.
func NewConfigError(format string, args ...any) error {
	return &ConfigError{fmt.Errorf(format, args...)}
}

// UnreachableError says that an endpoint did not answer, or not in the protocol. It
// matches store.ErrUnavailable.
type UnreachableError struct {
	Endpoint string
	Cause    error
}

func (e *UnreachableError) Error() string {
	why := e.Cause.Error()
	if len(why) > whyMax { // what is no HTTP at all may be long
		why = strings.ToValidUTF8(why[:whyMax], "") + "…"
	}
	return fmt.Sprintf("%s cannot be reached: %s", e.Endpoint, why)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Cause }

// Is matches store.ErrUnavailable.
func (e *UnreachableError) Is(target error) bool { return target == error(store.ErrUnavailable) }

// TrustError says that the certificate of an endpoint is not trusted.
type TrustError struct {
	Endpoint string
	Cause    error
}

func (e *TrustError) Error() string {
	return fmt.Sprintf("the certificate of %s is not trusted: %v", e.Endpoint, e.Cause)
}

// Unwrap returns the cause.
func (e *TrustError) Unwrap() error { return e.Cause }

// KeyError says that an endpoint does not take the key (401), or not for what was
// asked (403).
type KeyError struct {
	Endpoint string
	Status   int
	Message  string
}

func (e *KeyError) Error() string {
	if e.Status == http.StatusUnauthorized {
		return e.Endpoint + " does not take the key" // the message is for those who sign requests
	}
	return fmt.Sprintf("%s refuses: %s", e.Endpoint, e.Message)
}

// NoContainerError says that a container is not there.
type NoContainerError struct{ Endpoint, Database, Name string }

func (e *NoContainerError) Error() string {
	return fmt.Sprintf("container %s/%s does not exist at %s", e.Database, e.Name, e.Endpoint)
}

// Is matches store.ErrNotFound.
func (e *NoContainerError) Is(target error) bool { return target == error(store.ErrNotFound) }

// refusedError is an answer that says nothing about an item or query.
type refusedError struct {
	endpoint, message string
	status            int
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("%s answers %d: %s", e.endpoint, e.status, e.message)
}

// itemRefusals are the statuses that refuse an item or query and nothing else.
var itemRefusals = map[int]store.Status{
	http.StatusBadRequest:            store.StatusBadRequest,
	http.StatusNotFound:              store.StatusNotFound,
	http.StatusConflict:              store.StatusConflict,
	http.StatusPreconditionFailed:    store.StatusPreconditionFailed,
	http.StatusRequestEntityTooLarge: store.StatusTooLarge,
}

// translate is the table from what the SDK says to what commands know. The outcome of
// a write that was not learned is unavailability too: writes are upserts.
func (c *Client) translate(err error) error {
	if err == nil {
		return nil
	}
	if answer, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return c.refusal(answer)
	}
	return TransportError(c.endpoint, c.timeout, err)
}

// TransportError translates the error of a request that was not answered within a time.
func TransportError(endpoint string, timeout time.Duration, err error) error {
	if untrusted(err) {
		return &TrustError{Endpoint: endpoint, Cause: innermost(err)}
	}
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return &UnreachableError{Endpoint: endpoint, Cause: errors.New("it speaks plain HTTP; name it as http://…")}
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return &UnreachableError{Endpoint: endpoint, Cause: fmt.Errorf("no answer within %s", timeout)}
	}
	return &UnreachableError{Endpoint: endpoint, Cause: innermost(err)}
}

// refusal translates an answer.
func (c *Client) refusal(answer *azcore.ResponseError) error {
	message := messageOf(answer)
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return &KeyError{Endpoint: c.endpoint, Status: answer.StatusCode, Message: message}
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout, 449:
		return &UnreachableError{Endpoint: c.endpoint, Cause: fmt.Errorf("%s (%d)", message, answer.StatusCode)}
	}
	if status, ok := itemRefusals[answer.StatusCode]; ok {
		return store.Refuse(status, "%s", message)
	}
	return &refusedError{c.endpoint, message, answer.StatusCode}
}

// messageOf returns the first line of the message of the protocol's body.
func messageOf(answer *azcore.ResponseError) string {
	text := http.StatusText(answer.StatusCode)
	if answer.RawResponse == nil {
		return text
	}
	body, err := runtime.Payload(answer.RawResponse)
	var said struct {
		Message string `json:"message"`
	}
	if err != nil || json.Unmarshal(body, &said) != nil || said.Message == "" {
		return text
	}
	line, _, _ := strings.Cut(said.Message, "\n")
	return strings.TrimSpace(line)
}

// untrusted says whether an error is about the endpoint's certificate.
func untrusted(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	_, ok := errors.AsType[x509.UnknownAuthorityError](err)
	return ok
}

// innermost leaves out what only repeats the URL or the SDK's own words.
func innermost(err error) error {
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
