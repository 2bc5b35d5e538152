package client_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/server"
)

// The examples call a server that runs, as a reader would. It starts with the
// first of them and ends with the last test.
var (
	demo    = sync.OnceValue(startVault)
	endings exampleTB
)

func startVault() server.DevKeys {
	k := keeptest.Start(&endings, keeptest.Options{})
	keys, _, err := k.Demo(context.Background())
	if err != nil {
		endings.Fatal(err)
	}
	return keys
}

// vault is for those who manage a tenant, checkout for a server that keeps
// cards and may see them.
func vault() (url, key string)    { return demo().BaseURL, demo().ManagementKey }
func checkout() (url, key string) { return demo().BaseURL, demo().PrivateKey }

// website is the key that a shop's web pages carry.
func website() (url, key string) { return demo().BaseURL, demo().PublicKey }

func TestMain(m *testing.M) {
	code := keeptest.Run(m)
	endings.end()
	os.Exit(code)
}

// exampleTB is as much of a testing.TB as starting a server takes: an example
// has none.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (e *exampleTB) Helper()                  {}
func (e *exampleTB) Failed() bool             { return false } // it panics instead
func (e *exampleTB) Context() context.Context { return context.Background() }
func (e *exampleTB) Cleanup(f func())         { e.cleanups = append(e.cleanups, f) }
func (e *exampleTB) Fatal(args ...any)        { panic(fmt.Sprint(args...)) }
func (e *exampleTB) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
func (e *exampleTB) Errorf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

func (e *exampleTB) TempDir() string {
	dir, err := os.MkdirTemp("", "client-example-")
	if err != nil {
		panic(err)
	}
	e.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (e *exampleTB) end() {
	for _, f := range slices.Backward(e.cleanups) {
		f()
	}
}
