package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/server"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// withCode lets commands and servers of a test run code.
func withCode(t *testing.T) {
	t.Helper()
	t.Setenv("TOKENKEEP_SANDBOX_RUNTIME", runtimetest.Find(t).Folder)
	t.Setenv("TOKENKEEP_SANDBOX_LEVEL", "reduced")
}

func TestCodeRunsWithoutAServer(t *testing.T) {
	storetest.Long(t)
	withCode(t)
	dir := t.TempDir()
	args := mustWrite(t, filepath.Join(dir, "args.json"), `{"n": 1.50, "t": "{{ token }}"}`)
	list := mustWrite(t, filepath.Join(dir, "list.json"), `[1]`)
	config := mustWrite(t, filepath.Join(dir, "config.json"), `{"KEY":"value"}`)
	number := mustWrite(t, filepath.Join(dir, "number.json"), `{"KEY":1}`)
	for name, test := range map[string]struct {
		code     string
		flags    []string
		exit     int
		out, err string // what is in there
	}{
		"a result":          {`module.exports = async () => ({ raw: { a: 1 } })`, nil, 0, "{\n  \"raw\": {\n    \"a\": 1\n  }\n}\n", "walls: "},
		"nothing":           {`module.exports = async () => {}`, nil, 0, "null\n", ""},
		"arguments":         {`module.exports = async (req) => ({ raw: [req.args, req.configuration, req.bt] })`, []string{"--args", args, "--config", config}, 0, `"t": "{{ token }}"`, ""},
		"no arguments":      {`module.exports = async (req) => ({ raw: [req.args, req.configuration] })`, nil, 0, "null,\n    {}", ""},
		"what it prints":    {`module.exports = async () => { console.log('hello', 1); console.error('a\nb\x1b[0m') }`, nil, 0, "", "log    hello 1\nerror  a\nerror  b?[0m\n"},
		"tokenize":          {`module.exports = async () => ({ tokenize: { type: 'token', data: 'x' } })`, nil, 0, `"data": "x"`, ""},
		"its packages":      {`const { v4 } = require('uuid'); module.exports = async () => ({ raw: v4().length })`, nil, 0, "36", ""},
		"a throw":           {`module.exports = async () => { throw new Error('no luck') }`, nil, 13, "", "422 Unprocessable Entity: no luck\n"},
		"a known error":     {`const { BadRequestError } = require('tokenkeep/errors'); module.exports = async () => { throw new BadRequestError({ amount: ['is missing'] }) }`, nil, 13, "", "400 Bad Request: Bad Request\n    amount  is missing\n"},
		"its own answer":    {`const { CustomHttpResponseError } = require('tokenkeep/errors'); module.exports = async () => { throw new CustomHttpResponseError({ status: 201, body: { a: 1 } }) }`, nil, 0, "\"a\": 1", "answered with 201"},
		"its own refusal":   {`const { CustomHttpResponseError } = require('tokenkeep/errors'); module.exports = async () => { throw new CustomHttpResponseError({ status: 402, body: { a: 1 } }) }`, nil, 13, "\"a\": 1", "answered with 402"},
		"the last status":   {`module.exports = async () => { throw { name: 'CustomHttpResponseError', status: 599, body: { a: 1 } } }`, nil, 13, "\"a\": 1", "answered with 599"},
		"a status too low":  {`const { CustomHttpResponseError } = require('tokenkeep/errors'); module.exports = async () => { throw new CustomHttpResponseError({ status: 199 }) }`, nil, 13, "", "422 Unprocessable Entity: the status of a CustomHttpResponseError must be an integer from 200 to 599\n"},
		"a syntax error":    {`module.exports = async ( => {}`, nil, 13, "", "422 Unprocessable Entity: the code does not parse: line 1, column 26: Unexpected token '=>'\n"},
		"ends too early":    {"module.exports = async () => {\n  if (true) {", nil, 13, "", "422 Unprocessable Entity: the code does not parse: line 2, column 14: Unexpected end of input\n"},
		"no function":       {`module.exports = 1`, nil, 13, "", "does not export a function"},
		"another shape":     {`module.exports = async () => ({ row: 1 })`, nil, 13, "", "other than raw and tokenize"},
		"an endless loop":   {`module.exports = async () => { for (;;); }`, []string{"--timeout", "3s"}, 13, "", "the code timed out"},
		"a long timeout":    {`module.exports = async () => {}`, []string{"--timeout", "4m"}, 2, "", "value of a flag"},
		"a list":            {`module.exports = async () => {}`, []string{"--args", list}, 2, "", "--args must hold a JSON object"},
		"a number":          {`module.exports = async () => {}`, []string{"--config", number}, 2, "", "object of texts"},
		"no such file":      {`module.exports = async () => {}`, []string{"--args", filepath.Join(dir, "nope")}, 2, "", "the file with the arguments cannot be read"},
		"everything in one": {`module.exports = async () => { console.log('x'); return { raw: 1 } }`, []string{"--json"}, 0, `"took_us": `, ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := mustWrite(t, filepath.Join(t.TempDir(), "code.js"), test.code)
			var got result
			waittest.Until(t, "the code starts within its time", func() bool {
				got = given(t, "", append([]string{"reactor", "run", file}, test.flags...)...)
				return !strings.Contains(got.err, "too much code is running")
			})
			if got.code != test.exit || !strings.Contains(got.out, test.out) || !strings.Contains(got.err, test.err) || strings.Contains(got.err, dir) {
				t.Errorf("reactor run = %+v, want %d, %q and %q", got, test.exit, test.out, test.err)
			}
		})
	}
	if got := given(t, "", "reactor", "run", filepath.Join(dir, "nope.js")); got.code != 2 || got.err != "tokenkeep: the file with the code cannot be read\n" {
		t.Errorf("reactor run of no file = %+v", got)
	}
	t.Setenv("TOKENKEEP_SANDBOX_RUNTIME", dir)
	if got := given(t, "", "reactor", "run", mustWrite(t, filepath.Join(dir, "a.js"), "")); got.code != 3 || !strings.Contains(got.err, "make build") {
		t.Errorf("reactor run without a runtime = %+v", got)
	}
}

func TestWhatATrialPrintsInJSON(t *testing.T) {
	withCode(t)
	file := mustWrite(t, filepath.Join(t.TempDir(), "code.js"), `module.exports = async () => { console.warn('x'); throw new Error('y') }`)
	got := given(t, "", "reactor", "run", file, "--json")
	var trial server.Trial
	if err := json.Unmarshal([]byte(got.out), &trial); err != nil || got.code != 13 {
		t.Fatalf("reactor run --json = %+v, %v", got, err)
	}
	if trial.Status != 422 || trial.Error == nil || trial.Error.Detail != "y" || len(trial.Console) != 1 || trial.Took <= 0 || trial.Memory <= 0 || trial.Result != nil {
		t.Errorf("reactor run --json printed %s", got.out)
	}
}

func TestWatchRunsAgain(t *testing.T) {
	storetest.Long(t)
	withCode(t)
	file := mustWrite(t, filepath.Join(t.TempDir(), "code.js"), `module.exports = async () => ({ raw: 'first' })`)
	ctx, stop := context.WithCancel(t.Context())
	var out, errOut output
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"reactor", "run", file, "--watch"}, strings.NewReader(""), &out, &errOut)
	}()
	sees := func(in *output, what string) {
		t.Helper()
		waittest.Until(t, what, func() bool { return strings.Contains(in.String(), what) })
	}
	sees(&out, "first")
	mustWrite(t, file, `module.exports = async () => { throw new Error('a second with a fault') }`)
	sees(&errOut, "a second with a fault")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	sees(&errOut, "cannot be read")
	mustWrite(t, file, `module.exports = async () => ({ raw: 'the third' })`)
	sees(&out, "the third")
	stop()
	if code := <-ended; code != 0 || strings.Count(out.String(), "first") != 1 {
		t.Errorf("reactor run --watch ended with %d and printed %s", code, out.String())
	}
}

func TestReactorsFromTheCommandLine(t *testing.T) {
	withCode(t)
	x := openTill(t)
	t.Setenv("TOKENKEEP_API_KEY", x.keys.ManagementKey)
	dir := t.TempDir()
	code := mustWrite(t, filepath.Join(dir, "code.js"), "module.exports = async (req) => {\n  console.log('saw', req.args.n);\n  return { raw: req.configuration.KEY };\n}\n")
	config := mustWrite(t, filepath.Join(dir, "config.json"), `{"KEY":"a secret"}`)
	var made, again, got, bare api.Reactor

	out := x.done("", "reactor", "deploy", code, "--name", "charge", "--config", config)
	wantLine(t, out, `name +charge`)
	wantLine(t, out, `configuration +KEY`)
	wantLine(t, out, `code +4 lines`)
	if strings.Contains(out, "a secret") {
		t.Errorf("reactor deploy printed a value of the configuration:\n%s", out)
	}
	x.done("", "reactor", "deploy", code, "--name", "charge back")
	var list []api.Reactor
	x.read(&list, "", "reactor", "list", "--name", "charge")
	if len(list) != 2 || list[1].Name != "charge" {
		t.Fatalf("reactor list = %+v", list)
	}
	made = list[1]
	wantLine(t, x.done("", "reactor", "list"), made.ID+` +charge .*`)

	// By name: the configuration stays, the code is new.
	changed := mustWrite(t, filepath.Join(dir, "changed.js"), "module.exports = async () => ({ raw: 2 })")
	x.read(&again, "", "reactor", "deploy", changed, "--name", "charge")
	if again.ID != made.ID || again.Configuration["KEY"] != "a secret" || !strings.Contains(again.Code, "raw: 2") {
		t.Errorf("deployed again it is %+v", again)
	}
	// By id: a new name and an application, and none again.
	id := applicationOfType(t, given(t, "", "application", "list", "--data", x.data, "--json", "--tenant", x.keys.TenantID), "private")
	x.read(&got, "", "reactor", "deploy", code, "--id", made.ID, "--name", "charged", "--application", id)
	if got.Name != "charged" || got.Application == nil || got.Application.ID != id {
		t.Errorf("deployed by id it is %+v", got)
	}
	x.read(&bare, "", "reactor", "deploy", code, "--id", made.ID, "--application", "")
	if bare.Application != nil || bare.Name != "charged" {
		t.Errorf("without an application it is %+v", bare)
	}
	if out := x.done("", "reactor", "get", made.ID, "--code"); !strings.HasPrefix(out, "module.exports = async (req)") || !strings.HasSuffix(out, "}\n") {
		t.Errorf("reactor get --code printed %q", out)
	}

	x.done("", "reactor", "deploy", code, "--id", list[0].ID, "--name", "charged")
	broken := mustWrite(t, filepath.Join(dir, "broken.js"), "module.exports = (")
	for name, test := range map[string]struct {
		args []string
		exit int
		err  string
	}{
		"two of one name": {[]string{"deploy", code, "--name", "charged"}, 2, "several reactors"},
		"no name":         {[]string{"deploy", code}, 2, "--name or by --id"},
		"no such id":      {[]string{"deploy", code, "--id", x.keys.TenantID}, 11, "no such reactor"},
		"broken code":     {[]string{"deploy", broken, "--name", "broken"}, 11, "does not parse: line 1"},
		"no such file":    {[]string{"deploy", filepath.Join(dir, "nope"), "--name", "n"}, 2, "cannot be read"},
		"a bad limit":     {[]string{"logs", made.ID, "--interval", "0s"}, 2, "value of a flag"},
		"logs of nothing": {[]string{"logs", x.keys.TenantID}, 11, "no such reactor"},
	} {
		if got := given(t, "", append([]string{"reactor"}, test.args...)...); got.code != test.exit || !strings.Contains(got.err, test.err) {
			t.Errorf("%s: %+v, want %d and %q", name, got, test.exit, test.err)
		}
	}
	if out := x.done("", "reactor", "delete", made.ID); out != "The reactor is deleted.\n" {
		t.Errorf("reactor delete printed %q", out)
	}
	if got := given(t, "", "reactor", "get", made.ID); got.code != 11 {
		t.Errorf("reactor get of what was deleted = %+v", got)
	}
}

func applicationOfType(t *testing.T, listed result, class string) string {
	t.Helper()
	var list []api.Application
	if err := json.Unmarshal([]byte(listed.out), &list); err != nil {
		t.Fatalf("application list = %+v: %v", listed, err)
	}
	for _, a := range list {
		if a.Type == class {
			return a.ID
		}
	}
	t.Fatalf("no %s application in %s", class, listed.out)
	return ""
}

func TestLogsOfAReactor(t *testing.T) {
	withCode(t)
	x := openTill(t)
	t.Setenv("TOKENKEEP_API_KEY", x.keys.ManagementKey)
	code := mustWrite(t, filepath.Join(t.TempDir(), "code.js"), `module.exports = async (req) => { console.log('saw', req.args.n); if (req.args.n > 2) throw new Error('x') }`)
	var made api.Reactor
	x.read(&made, "", "reactor", "deploy", code, "--name", "r")
	user, err := client.New(x.keys.BaseURL, client.WithKey(x.keys.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	invoke := func(n int) {
		t.Helper()
		_, err := user.Reactors.React(t.Context(), made.ID, api.React{Args: map[string]int{"n": n}})
		if refused := (*client.Error)(nil); err != nil && !errors.As(err, &refused) {
			t.Fatal(err)
		}
	}
	invoke(1)
	invoke(2)
	out := x.done("", "reactor", "logs", made.ID)
	if first, second := strings.Index(out, "saw 1"), strings.Index(out, "saw 2"); first < 0 || second < first {
		t.Errorf("reactor logs printed\n%s", out)
	}
	wantLine(t, out, `[-0-9]+ [:0-9]+  [-0-9a-f]+  ok  \S+, \d+ MiB`)
	if out := x.done("", "reactor", "logs", made.ID, "--limit", "1"); strings.Contains(out, "saw 1") || !strings.Contains(out, "saw 2") {
		t.Errorf("reactor logs --limit 1 printed\n%s", out)
	}
	for line := range strings.Lines(x.done("", "reactor", "logs", made.ID, "--json")) {
		var run api.Run
		if err := json.Unmarshal([]byte(line), &run); err != nil || run.ID == "" {
			t.Errorf("reactor logs --json printed %s: %v", line, err)
		}
	}

	ctx, stop := context.WithCancel(t.Context())
	var followed output
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"reactor", "logs", made.ID, "-f", "--limit", "1", "--interval", "20ms"}, strings.NewReader(""), &followed, &bytes.Buffer{})
	}()
	waittest.Until(t, "the past is printed", func() bool { return strings.Contains(followed.String(), "saw 2") })
	invoke(3)
	waittest.Until(t, "the run is followed", func() bool {
		return strings.Contains(followed.String(), "failed") && strings.Contains(followed.String(), "saw 3")
	})
	stop()
	if code := <-ended; code != 0 || strings.Count(followed.String(), "saw 3") != 1 {
		t.Errorf("reactor logs -f ended with %d and printed\n%s", code, followed.String())
	}
}
