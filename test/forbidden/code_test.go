// Package forbidden_test sends code of tenants to every destination that they
// must not reach.
package forbidden_test

import (
	"context"
	"encoding/json"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/egress"
	"github.com/tokenkeep/tokenkeep/internal/egress/egresstest"
	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return // this process starts others for code of tenants
	}
	os.Exit(m.Run())
}

// knock tries a destination in the two ways that code has: a bare connection,
// and a request. It tells what came of each.
const knock = `
const net = require('net');
const clients = { 'http:': require('http'), 'https:': require('https') };
const attempt = (start) => new Promise((done) => {
	let thing;
	try { thing = start(); } catch (e) { return done('threw'); }
	thing.on('connect', () => { thing.destroy(); done('connected'); });
	thing.on('response', (r) => { r.destroy(); done('answered'); });
	thing.on('error', (e) => done(e.code || 'failed'));
});
module.exports = async ({ args }) => {
	if (args.host) return { raw: await attempt(() => net.connect(args.port, args.host)) };
	const scheme = Object.keys(clients).find((s) => args.url.toLowerCase().startsWith(s));
	return { raw: scheme ? await attempt(() => clients[scheme].get(args.url)) : 'no client' };
};`

func TestCodeReachesNoForbiddenDestination(t *testing.T) {
	witness, names := egresstest.NewWitness(t), egresstest.NewNames(t)
	out, err := egress.New(egress.Settings{Resolver: names.Resolver(), Metrics: witness.Registry})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.Close)
	box, err := sandbox.New(t.Context(), sandbox.Settings{
		Runtime: runtimetest.Find(t).Folder, Scratch: t.TempDir(), Blank: 1,
		Dial: func(ctx context.Context, tenant, host string, port int) (net.Conn, error) {
			return out.Dial(ctx, tenant, host, uint16(port))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = box.Close() })

	program := sandbox.Program{Tenant: "t", ID: "knock", Version: "1", Sources: map[string]string{"main": knock}}
	tried := 0
	for _, row := range egresstest.Forbidden(witness.Port()) {
		if row.Where == egresstest.AfterRedirect || !json.Valid([]byte(strconv.Quote(row.URL))) {
			continue // code follows no redirect by itself; and arguments are JSON
		}
		ways := []map[string]any{{"url": row.URL}}
		if u, err := url.Parse(row.URL); err == nil && u.Hostname() != "" {
			// Some rows are forbidden for their port alone.
			port, err := strconv.ParseUint(u.Port(), 10, 16)
			if err != nil || row.Where == egresstest.AtDial {
				port = uint64(witness.Port())
			}
			ways = append(ways, map[string]any{"host": u.Hostname(), "port": port})
		}
		for _, args := range ways {
			names.SetAll(row.Answers) // some names answer otherwise the second time
			input, err := json.Marshal(map[string]any{"args": args, "configuration": map[string]any{}})
			if err != nil {
				t.Fatal(err)
			}
			got, err := box.Run(t.Context(), program, sandbox.Call{Entry: "main", Input: input, Timeout: 30 * time.Second})
			if err != nil || got.Thrown != nil {
				t.Errorf("%s: %v, %+v", row.Name, err, got.Thrown)
				continue
			}
			if s := string(got.Value); strings.Contains(s, "connected") || strings.Contains(s, "answered") {
				t.Errorf("%s: code was let through: %s", row.Name, s)
			}
		}
		tried++
	}
	if tried < 300 {
		t.Errorf("%d destinations were tried, want at least 300", tried)
	}
	if n := witness.Connections(); n != 0 {
		t.Errorf("%d connections were made, want none", n)
	}
}
