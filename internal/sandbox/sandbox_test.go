package sandbox_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/sandbox"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	os.Exit(m.Run())
}

func TestQuick(t *testing.T) {
	for _, jit := range []bool{false, true} {
		s, err := sandbox.New(context.Background(), sandbox.Settings{Runtime: os.Getenv("TOKENKEEP_RUNTIME"), JIT: jit, Log: slog.Default()})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			out, err := s.Run(context.Background(), sandbox.Program{Tenant: "t", ID: "r", Version: "1", Sources: map[string]string{"main": `module.exports = async (req) => { console.log('hello', req); return {raw: req.args.x + 1, v: process.version} }`}},
				sandbox.Call{Entry: "main", Input: []byte(`{"args":{"x":1},"configuration":{}}`), Timeout: time.Second})
			t.Log(string(out.Value), string(out.Console), out.Thrown, out.Took, out.Memory, err)
		}
		t.Log(s.Check(context.Background(), "let a = 1;\nlet secret = 'x' y;"))
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
