package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/tokenkeep/tokenkeep/api"
)

// Client calls the server of a data folder.
type Client struct{ http *http.Client }

// NewClient returns a client for the server that has dir open.
func NewClient(dir string) *Client { return &Client{&http.Client{Transport: Transport(dir)}} }

// Refused is what the server said instead of doing what it was asked.
type Refused struct{ Problem api.Problem }

func (e *Refused) Error() string {
	fields := slices.Sorted(maps.Keys(e.Problem.Errors)) // the same words for the same faults
	if len(fields) == 0 {
		return e.Problem.Detail
	}
	message := e.Problem.Errors[fields[0]][0]
	if strings.HasPrefix(message, fields[0]) {
		return message
	}
	return fields[0] + " " + message
}

// Call sends in, when it is not nil, and reads the answer into out, when that
// is not nil.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	resp, err := c.send(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("the server's answer is not understood: %w", err)
	}
	return nil
}

// Progress is one line of the answer to long work: what is being done, or its
// end with what was found.
type Progress struct {
	Doing string          `json:"doing,omitempty"`
	Done  bool            `json:"done,omitempty"`
	Found []string        `json:"found,omitempty"`
	Error string          `json:"error,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
}

// Follow asks for long work and calls each for every line of its answer. It
// returns the last line, which says that the work is done.
func (c *Client) Follow(ctx context.Context, method, path string, in any, each func(Progress) error) (Progress, error) {
	resp, err := c.send(ctx, method, path, in)
	if err != nil {
		return Progress{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	for lines := json.NewDecoder(resp.Body); ; {
		var p Progress
		if err := lines.Decode(&p); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return p, errors.New("the server went away before the work was done")
		} else if err != nil {
			return p, fmt.Errorf("the server's answer is not understood: %w", err)
		}
		switch {
		case p.Error != "":
			return p, errors.New(p.Error)
		case p.Done:
			return p, nil
		}
		if err := each(p); err != nil {
			return p, err
		}
	}
}

func (c *Client) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("admin: encode request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://admin"+path, body)
	if err != nil {
		return nil, fmt.Errorf("admin: make request: %w", err)
	}
	if in != nil {
		req.Header.Set("Content-Type", api.MediaJSON)
	}
	resp, err := c.http.Do(req)
	if errors.Is(err, ErrNoServer) {
		return nil, ErrNoServer // without the words of the HTTP client around it
	}
	if err != nil {
		return nil, fmt.Errorf("admin: call server: %w", err)
	}
	if resp.StatusCode >= 300 {
		defer func() { _ = resp.Body.Close() }()
		var p api.Problem
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
			return nil, fmt.Errorf("the server answered with status %d", resp.StatusCode)
		}
		return nil, &Refused{p}
	}
	return resp, nil
}
