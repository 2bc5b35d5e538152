// Package sandbox stub for compiling.
package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

type Sandbox struct{}
type Program struct {
	Tenant, ID, Version string
	Sources             map[string]string
}
type Call struct {
	Entry   string
	Input   []byte
	Headers bool
	Client  http.Handler
	Timeout time.Duration
}
type Outcome struct {
	Value   []byte
	Thrown  *Thrown
	Console []byte
	Took    time.Duration
	Memory  int64
}
type Thrown struct {
	Name, Message string
	Status        int
	Errors        json.RawMessage
	Custom        *CustomResponse
}
type CustomResponse struct {
	Status  int
	Headers map[string]string
	Body    json.RawMessage
}
type Reason int

const (
	TimedOut Reason = iota + 1
	OutOfMemory
	Exited
	DidNotSettle
	NoFunction
	BadResult
	TooLarge
	Broke
	Refused
)

type Failure struct{ Reason Reason }

func (f *Failure) Error() string { return "" }

type SyntaxError struct {
	Line, Column int
	Message      string
}

func (f *SyntaxError) Error() string { return "" }

var ErrBusy, ErrTooMany, ErrOff, ErrClosed = errors.New("busy"), errors.New("many"), errors.New("off"), errors.New("large")

func (s *Sandbox) Run(ctx context.Context, p Program, c Call) (Outcome, error) { return Outcome{}, nil }
func (s *Sandbox) Check(ctx context.Context, code string) error                { return nil }
