package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// entries reads lines of JSON.
func entries(t *testing.T, out string) (list []api.LogEntry) {
	t.Helper()
	for line := range strings.Lines(out) {
		var e api.LogEntry
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.ID == "" {
			t.Fatalf("the line %s: %v", line, err)
		}
		list = append(list, e)
	}
	return list
}

func TestTheLogOverTheAPI(t *testing.T) {
	x, _ := besideServer(t, nil)
	x.as(x.keys.PrivateKey)
	x.done(cardJSON, "token", "create", "--type", "card", "--id", "my-card")
	x.done("", "token", "get", "my-card")
	x.as(x.keys.ManagementKey)
	out := x.done("", "log", "list", "--entity-type", "card")
	wantLine(t, out, `TIME +MESSAGE +TYPE +ENTITY +ACTOR`)
	wantLine(t, out, `[-0-9]{10} [:0-9]{8}  Token created +card +my-card +private`)
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 3 || !strings.Contains(lines[1], "Token retrieved") {
		t.Errorf("log list printed\n%s", out)
	}
	if got := entries(t, x.done("", "log", "--entity", "my-card", "--json")); len(got) != 2 || got[1].Operation != "create" {
		t.Errorf("log --entity = %+v", got)
	}
	if got := given(t, "", "log", "list", "--limit", "2", "--json"); len(entries(t, got.out)) != 2 || got.err != "… there are more; --limit 0 lists all\n" {
		t.Errorf("log list --limit 2 = %+v", got)
	}
	now := time.Now()
	for _, test := range []struct {
		args []string
		want int
	}{
		{[]string{"--from", "1h"}, 2}, {[]string{"--before", "1h"}, 0}, {[]string{"--from", now.Add(-time.Minute).Format(time.RFC3339)}, 2},
		{[]string{"--from", now.UTC().Add(24 * time.Hour).Format("2006-01-02")}, 0}, {[]string{"--before", now.UTC().Add(24 * time.Hour).Format("2006-01-02")}, 2},
	} {
		if got := entries(t, x.done("", append([]string{"log", "list", "--entity", "my-card", "--json"}, test.args...)...)); len(got) != test.want {
			t.Errorf("log list %v has %d entries, want %d", test.args, len(got), test.want)
		}
	}
	wantLine(t, x.done("", "log", "types"), `card_number +Card Number`)
	x.refused(map[string]refusedCase{
		"a time of nonsense":    {[]string{"log", "list", "--from", planted}, "", 2, errWhen.Error()},
		"an interval of none":   {[]string{"log", "-f", "--interval", "0s"}, "", 2, errFlagValue.Error()},
		"an end of what has no": {[]string{"log", "-f", "--before", "1h"}, "", 2, "following has no end: the filter must not have one: not valid"},
		"no such command":       {[]string{"log", planted}, "", 2, "unknown command; 'tokenkeep log --help' lists the commands"},
	})
	x.as(x.keys.PrivateKey)
	x.refused(map[string]refusedCase{
		"no permission":              {[]string{"log", "list"}, "", 11, "missing permission log:read"},
		"no permission to follow it": {[]string{"log", "-f"}, "", 11, "missing permission log:read"},
	})
}

// TestTheLogIsFollowedThroughASilence has a way to the server that breaks.
func TestTheLogIsFollowedThroughASilence(t *testing.T) {
	storetest.Long(t)
	x, k := besideServer(t, nil)
	to, err := url.Parse(k.URL)
	if err != nil {
		t.Fatal(err)
	}
	var down atomic.Bool
	way := httputil.NewSingleHostReverseProxy(to)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			panic(http.ErrAbortHandler)
		}
		way.ServeHTTP(w, r)
	}))
	defer front.Close()
	happen := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			x.done(fmt.Sprintf(`{"metadata":{"n":"%d"}}`, i), "token", "create", "--type", "token", "--id", fmt.Sprintf("entry-%03d", i), "--key-file", private(t, x))
		}
	}
	happen(0, 3)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out, errOut output
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"log", "-f", "--json", "--limit", "2", "--interval", "5ms", "--entity-type", "token", "--url", front.URL}, strings.NewReader(""), &out, &errOut)
	}()
	sees := func(id string) {
		t.Helper()
		waittest.Until(t, id+" is followed", func() bool { return strings.Contains(out.String(), id) })
	}
	sees("entry-002")
	happen(3, 5)
	sees("entry-004")
	down.Store(true)
	front.CloseClientConnections()
	happen(5, 8)
	waittest.Until(t, "the silence is told", func() bool { return strings.Contains(errOut.String(), "looking again") })
	down.Store(false)
	sees("entry-007")
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("log -f ended with %d: %s", code, errOut.String())
	}
	var got []string
	for _, e := range entries(t, out.String()) {
		got = append(got, e.EntityID)
	}
	if want := "entry-001 entry-002 entry-003 entry-004 entry-005 entry-006 entry-007"; strings.Join(got, " ") != want {
		t.Errorf("log -f printed %v, want %s", got, want)
	}
	for line := range strings.Lines(errOut.String()) {
		if line != "… the server gave no answer, so that it may or may not have done what was asked; looking again\n" {
			t.Errorf("log -f told %q", line)
		}
	}
}

func private(t *testing.T, x *till) string {
	t.Helper()
	return mustWrite(t, t.TempDir()+"/key", x.keys.PrivateKey)
}

// started starts a command in a process of its own.
func started(t *testing.T, args ...string) (cmd *exec.Cmd, out, errOut *output) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd, out, errOut = exec.Command(self, args...), &output{}, &output{}
	cmd.Env = append(os.Environ(), asTokenkeep+"=1")
	cmd.Stdout, cmd.Stderr = out, errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, out, errOut
}

func TestAnInterruptEndsFollowingWell(t *testing.T) {
	x, _ := besideServer(t, nil)
	x.done("", "tenant", "get")
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		cmd, out, errOut := started(t, "log", "--follow")
		waittest.Until(t, "the past is printed", func() bool { return strings.Contains(out.String(), "Tenant retrieved") })
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil || errOut.String() != "" {
			t.Errorf("after %v log -f ended with %v: %s", s, err, errOut.String())
		}
	}
}

// TestAPipeThatClosesEndsACommandQuietly, as head closes it.
func TestAPipeThatClosesEndsACommandQuietly(t *testing.T) {
	x, _ := besideServer(t, nil)
	x.as(x.keys.PrivateKey)
	var many []string
	for i := range 900 {
		many = append(many, fmt.Sprint("value ", i))
	}
	in, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	x.done(string(in), "tokenize")
	x.as(x.keys.ManagementKey)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"log list --limit 0 --json", "log list --limit 0"} {
		cmd := exec.Command("bash", "-c", fmt.Sprintf("%q %s | head -n 1", self, args))
		cmd.Env = append(os.Environ(), asTokenkeep+"=1")
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		if err := cmd.Run(); err != nil || errOut.String() != "" || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%s: %v, %q, %q", args, err, out.String(), errOut.String())
		}
	}
}
