package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/doctor"
)

func TestTheDoctorFindsWhatMustBePutRight(t *testing.T) {
	dir := t.TempDir()
	data, kek := filepath.Join(dir, "data"), keyFile(t)
	config := mustWrite(t, filepath.Join(dir, "tokenkeep.yaml"), "addr: 127.0.0.1:0\ndata: "+data+"\nkek.file: "+kek+"\n")
	states := func(want int) map[string]doctor.State {
		t.Helper()
		got := call(t, "doctor", "--config", config, "--json")
		var findings []doctor.Finding
		if err := json.Unmarshal([]byte(got.out), &findings); err != nil || got.code != want {
			t.Fatalf("doctor --json = %+v, want %d: %v", got, want, err)
		}
		states := map[string]doctor.State{}
		for _, f := range findings {
			states[f.Name] = f.State
		}
		if len(states) != len(doctor.Names()) {
			t.Errorf("doctor --json has %d rows, want %d", len(states), len(doctor.Names()))
		}
		return states
	}
	if got := states(0); got["server"] != doctor.Unknown || got["configuration"] != doctor.OK || got["migrations"] != doctor.OK {
		t.Errorf("before the first start: %v", got)
	}
	start(t, "serve", "--config", config)
	for name, state := range states(0) {
		switch name {
		case "disk space", "core dumps", "swap", "open files": // the machine's own
		case "sandbox":
		default:
			if state != doctor.OK {
				t.Errorf("%s of a new server is %s", name, state)
			}
		}
	}
	got := call(t, "doctor", "--config", config)
	if got.code != 0 || got.err != "" {
		t.Errorf("doctor = %+v", got)
	}
	for _, name := range doctor.Names() {
		wantLine(t, got.out, `(ok|warn|unknown) +`+name+` +.+`)
	}
	if strings.Contains(got.out, dir) {
		t.Errorf("doctor repeats a path:\n%s", got.out)
	}

	if err := os.Chmod(config, 0o666); err != nil {
		t.Fatal(err)
	}
	got = call(t, "doctor", "--config", config)
	wantLine(t, got.out, `fail +configuration file +its mode is 0666.*`)
	wantLine(t, got.out, ` +→ run chmod go-w on it`)
	if got.code != 16 || !strings.Contains(got.err, "must be put right") {
		t.Errorf("doctor on a file that others change = %+v, want 16", got)
	}
	if got := states(16); got["configuration file"] != doctor.Fail {
		t.Errorf("with --json: %v", got)
	}
}
