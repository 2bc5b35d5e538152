package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/waittest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

func TestWhatDevPrintsCanBePasted(t *testing.T) {
	t.Run("without code", func(t *testing.T) { pasteGreeting(t) })
	t.Run("with code", func(t *testing.T) {
		t.Setenv("TOKENKEEP_SANDBOX_RUNTIME", runtimetest.Find(t).Folder)
		t.Setenv("TOKENKEEP_SANDBOX_LEVEL", "reduced")
		pasteGreeting(t, `{"raw":{"last4":"4242"}}`)
	})
}

// pasteGreeting pastes all that a first start prints, and wants some of it back.
func pasteGreeting(t *testing.T, wanted ...string) {
	t.Helper()
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	p := start(t, "dev", "--addr", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "data"))
	waittest.Until(t, "the greeting is whole", func() bool { return strings.Contains(p.out.String(), "Stop with Ctrl-C.") })
	_, lines, _ := strings.Cut(p.out.String(), "Paste one of these:")
	lines, _, _ = strings.Cut(lines, "Stop with Ctrl-C.")
	if strings.Count(lines, "curl") < 5 {
		t.Fatalf("the greeting has too little to paste: %s", lines)
	}
	out, err := exec.Command("bash", "-euc", strings.ReplaceAll(lines, "curl -s ", "curl -sS --fail-with-body ")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range append(wanted,
		`"data":{"number":"XXXXXXXXXXXX4242","expiration_month":12,"expiration_year":2030}`,             // put away by the public key
		`"data":{"number":"4242424242424242","expiration_month":12,"expiration_year":2030,"cvc":"123"}`, // read by the private one
		`"message":"Token retrieved"`, `"session_key":"key_dev_sess_`,
	) {
		if !strings.Contains(string(out), want) {
			t.Errorf("the pasted lines print no %s:\n%s", want, out)
		}
	}
}

func TestSweepSaysWhatItRemoved(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	if got := call(t, "sweep", "--data", data); got.code != 9 {
		t.Errorf("sweep without a server = %d %q, want 9", got.code, got.err)
	}
	start(t, "dev", "--addr", "127.0.0.1:0", "--data", data)
	if got := call(t, "sweep", "--data", data); got.code != 0 || got.out != "Removed 0 tokens and 0 sessions, and destroyed 0 short-lived keys.\n" {
		t.Errorf("sweep = %d %q %q", got.code, got.out, got.err)
	}
	if got := call(t, "sweep", "--data", data, "--json"); got.code != 0 || !strings.Contains(got.out, `"tokens": 0`) {
		t.Errorf("sweep --json = %d %q %q", got.code, got.out, got.err)
	}
}
