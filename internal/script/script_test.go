package script_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/internal/script"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	os.Exit(m.Run())
}

var empty = new(jsonvalue.Builder).Value()

func parse(t *testing.T, text string) jsonvalue.Value {
	t.Helper()
	v, err := jsonvalue.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func call() script.Call {
	return script.Call{Entry: "main", Args: empty, Configuration: empty, Timeout: time.Hour}
}

func program(code, application string) script.Program {
	return script.Program{Tenant: "t", ID: "p", Version: 1, Application: application, Sources: map[string]string{"main": code}}
}

func TestAServerWithoutASandboxRunsAndChecksNothing(t *testing.T) {
	r := script.New(nil, nil, nil)
	if _, err := r.Run(t.Context(), program("1", "app"), call()); !errors.Is(err, fault.Unprocessable) || fault.Of(err).Detail() != "this server does not run code" {
		t.Errorf("Run = %v", err)
	}
	for code, want := range map[string]string{"not code at all": "", "": "is required", " \n\t": "is required", "ééééé": "is too long"} {
		var f fault.Fields
		if err := r.Check(t.Context(), &f, "t", "code", code, 4); err != nil {
			t.Fatal(err)
		}
		if code == "not code at all" { // long, too
			f = fault.Fields{}
			if err := r.Check(t.Context(), &f, "t", "code", code, 100); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Err(); (err == nil) != (want == "") || err != nil && !slices.Equal(fault.Of(err).Fields()["code"], []string{want}) {
			t.Errorf("Check(%q) = %v, want %q", code, err, want)
		}
	}
}

// TestRun goes through everything that needs the sandbox, in one: it takes a
// while to start.
func TestRun(t *testing.T) {
	box, err := sandbox.New(t.Context(), sandbox.Settings{Runtime: runtimetest.Find(t).Folder, Blank: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = box.Close() })
	var (
		asked   []string // whose rights
		depths  []int    // at which the client was called
		origins []access.Origin
		fails   error
		called  func() // when the client is
	)
	r := script.New(box, func(_ context.Context, tenant, application string) (access.Caller, error) {
		asked = append(asked, tenant+"/"+application)
		if fails != nil {
			return access.Caller{}, fails
		}
		return accesstest.Caller(t, tenant, application, access.TokenCreate), nil
	}, func(c access.Caller) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			depths, origins = append(depths, c.Origin().Depth), append(origins, c.Origin())
			for _, values := range r.Header {
				if strings.Contains(strings.Join(values, " "), "key_") {
					t.Errorf("a key came out of the sandbox: %v", r.Header)
				}
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"id":"`+c.Application()+`"}`)
			if called != nil {
				called()
			}
		})
	})
	code := `
		module.exports = async (req) => {
			console.log('hello');
			switch (req.args.do) {
			case 'echo': return req;
			case 'client': return (await req.bt.tokens.create({ type: 'token', data: 1 })).id;
			case 'throw': throw new Error('with ' + req.args.value);
			case 'deep': { let a = 1; for (let i = 0; i < 70; i++) a = [a]; return a; }
			case 'client and hang': await req.bt.tokens.create({ type: 'token', data: 1 }); // falls through
			case 'hang': return new Promise(() => setInterval(() => {}, 1000));
			}
		}`
	run := func(ctx context.Context, application, args string, change func(*script.Call)) (script.Outcome, error) {
		c := call()
		c.Args = parse(t, args)
		if change != nil {
			change(&c)
		}
		return r.Run(ctx, program(code, application), c)
	}

	at := func(depth int) func(*script.Call) { return func(c *script.Call) { c.Origin.Depth = depth } }

	out, err := run(t.Context(), "", `{"do":"echo","n":1.50}`, nil)
	if err != nil || string(out.Value.AppendJSON(nil)) != `{"args":{"do":"echo","n":1.5},"configuration":{},"bt":null}` || len(asked) != 0 {
		t.Errorf("without an application = %s, %v", out.Value.AppendJSON(nil), err)
	}
	if string(out.Console) != `{"level":"log","text":"hello"}`+"\n" || out.Took <= 0 {
		t.Errorf("the outcome has %q and %s", out.Console, out.Took)
	}
	if out, err = run(t.Context(), "", `{}`, nil); err != nil || !out.Value.IsNull() {
		t.Errorf("nothing returned = %s, %v", out.Value.AppendJSON(nil), err)
	}

	meter := &accesstest.Meter{Most: 1 << 20}
	if _, err = run(t.Context(), "", `{"do":"echo"}`, func(c *script.Call) { c.Origin.Meter = meter }); !errors.Is(err, script.ErrNotStarted) || !errors.Is(err, fault.Unavailable) {
		t.Errorf("a run whose result might not fit = %v, want ErrNotStarted and Unavailable", err)
	}
	meter.Most = 64 << 20
	if _, err = run(t.Context(), "", `{"do":"echo"}`, func(c *script.Call) { c.Origin.Meter = meter }); err != nil {
		t.Errorf("a run that fits = %v", err)
	}
	if _, held, peak := meter.Charged(); peak < 10<<20 || held == 0 || held > 64<<10 {
		t.Errorf("a run was charged with %d bytes, and with %d for its small result", peak, held)
	}

	out, err = run(t.Context(), "app", `{"do":"client"}`, func(c *script.Call) { c.Origin = access.Origin{TraceID: "trace"} })
	if err != nil || string(out.Value.AppendJSON(nil)) != `"app"` || !slices.Equal(asked, []string{"t/app"}) || !slices.Equal(depths, []int{1}) || origins[0].TraceID != "trace" {
		t.Errorf("with an application = %s, %v; asked for %v, at %v, from %v", out.Value.AppendJSON(nil), err, asked, depths, origins)
	}
	if _, err = run(t.Context(), "app", `{"do":"client"}`, at(script.MaxDepth-1)); err != nil || depths[1] != script.MaxDepth {
		t.Errorf("at the bound of depth = %v at %v", err, depths)
	}
	if _, err = run(t.Context(), "app", `{}`, at(script.MaxDepth)); !errors.Is(err, fault.Unprocessable) || len(asked) != 2 {
		t.Errorf("below it = %v", err)
	}
	for kind, want := range map[fault.Kind]fault.Kind{fault.Unauthenticated: fault.Unprocessable, fault.NotFound: fault.Unprocessable, fault.Internal: fault.Internal} {
		fails = kind
		if _, err = run(t.Context(), "app", `{}`, nil); fault.Of(err).Kind() != want {
			t.Errorf("an application that is %s = %v, want %s", kind, err, want)
		}
	}

	_, err = run(t.Context(), "", `{"do":"throw","value":"4242424242424242"}`, func(c *script.Call) { c.Protected = slices.Values(values("4242424242424242")) })
	var thrown *script.Thrown
	if !errors.As(err, &thrown) || thrown.Problem().Detail != "with [protected]" {
		t.Errorf("a throw = %v", err)
	}
	_, err = run(t.Context(), "", `{"do":"throw","value":"x"}`, func(c *script.Call) { c.HideAll = true })
	if !errors.As(err, &thrown) || thrown.Problem().Detail != "[protected]" {
		t.Errorf("a throw of which all is hidden = %v", err)
	}
	if _, err = run(t.Context(), "", `{"do":"deep"}`, nil); fault.Of(err).Detail() != "the code returned something that is not JSON" {
		t.Errorf("too deep = %v", err)
	}
	waittest.Until(t, "the code starts within its time", func() bool {
		_, err = run(t.Context(), "", `{"do":"hang"}`, func(c *script.Call) { c.Timeout = 300 * time.Millisecond })
		return !errors.Is(err, script.ErrNotStarted)
	})
	if fault.Of(err).Detail() != "the code timed out" {
		t.Errorf("no end = %v", err)
	}
	stopped, stop := context.WithCancel(t.Context())
	fails, called = nil, stop
	if _, err = run(stopped, "app", `{"do":"client and hang"}`, nil); !errors.Is(err, context.Canceled) || fault.Of(err).Kind() != fault.Internal {
		t.Errorf("a caller that has gone = %v, want context.Canceled and nobody's fault", err)
	}

	var f fault.Fields
	if err := r.Check(t.Context(), &f, "t", "code", "let a;\nlet a;", 100); err != nil || f.Err() == nil ||
		!strings.HasPrefix(fault.Of(f.Err()).Fields()["code"][0], "does not parse: line 2, column 5: ") {
		t.Errorf("Check = %v, %v", err, f.Err())
	}
}
