package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/egress"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/reactor"
	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/internal/script"
)

// Bench runs code as a server does, without one: on the same engine, behind the
// same walls, with the same bounds and the same ways out. There are no tokens:
// req.bt is null, and what the code wants tokenized is shown as it is.
type Bench struct {
	box     *sandbox.Sandbox
	egress  *egress.Egress
	scripts *script.Runner
	trials  int64 // each is a version of its own, so that a process serves one
}

// NewBench opens a bench with the settings of a server.
func NewBench(ctx context.Context, c *config.Config, log *slog.Logger) (*Bench, error) {
	s := &Server{config: c, log: log, registry: prometheus.NewRegistry()}
	if err := s.openEgress(); err != nil {
		return nil, err
	}
	box, err := newSandbox(ctx, c, s.dialForCode, s.reachedInSandbox, log, s.registry)
	if err != nil {
		s.egress.Close()
		return nil, &SandboxError{err}
	}
	return &Bench{box: box, egress: s.egress, scripts: script.New(box, nil, nil)}, nil
}

// Close ends what runs.
func (b *Bench) Close() error {
	defer b.egress.Close()
	return b.box.Close()
}

// Level is how much stands between the code and the machine.
func (b *Bench) Level() string { return b.box.Level().String() }

// Trial is what a run on a bench came to.
type Trial struct {
	Result  json.RawMessage   `json:"result,omitempty"` // what the code returned
	Status  int               `json:"status"`           // with which a server would answer
	Error   *api.Problem      `json:"error,omitempty"`
	Headers map[string]string `json:"headers,omitempty"` // of an answer that the code gave by itself
	Console []json.RawMessage `json:"console"`           // {"level":…,"text":…}
	Took    int64             `json:"took_us"`
	Memory  int64             `json:"memory_bytes"`
}

// Run runs code once. args and configuration are JSON objects. The error says
// that the code did not run, in words for whoever wrote it.
func (b *Bench) Run(ctx context.Context, code string, args, configuration []byte, timeout time.Duration) (t Trial, err error) {
	call := script.Call{Entry: benchEntry, Timeout: timeout}
	if call.Args, err = jsonvalue.Parse(args); err != nil {
		return t, err
	}
	if call.Configuration, err = jsonvalue.Parse(configuration); err != nil {
		return t, err
	}
	b.trials++
	out, err := b.scripts.Run(ctx, script.Program{Tenant: benchEntry, ID: benchEntry, Version: b.trials, Sources: map[string]string{benchEntry: code}}, call)
	if err == nil {
		err = reactor.CheckResult(out.Value)
	}
	t.Took, t.Memory, t.Console = out.Took.Microseconds(), out.Memory, []json.RawMessage{}
	for line := range bytes.Lines(out.Console) {
		t.Console = append(t.Console, bytes.TrimSpace(line))
	}
	var custom *script.Custom
	switch {
	case err == nil:
		t.Status, t.Result = 200, out.Value.AppendJSON(nil)
	case errors.As(err, &custom):
		t.Status, t.Headers, t.Result = custom.Status, custom.Headers, custom.Body
	case ctx.Err() != nil:
		return t, ctx.Err()
	default:
		problem := httpapi.ProblemOf(err, "")
		if problem.Status == 500 && !errors.As(err, new(*script.Thrown)) {
			return t, err
		}
		t.Status, t.Error = problem.Status, &problem
	}
	return t, nil
}

const benchEntry = "main"
