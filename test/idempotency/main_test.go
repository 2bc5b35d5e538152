// Package idempotency_test calls whole servers, several at a time, some of
// which are killed: what must happen once happens once, and what has ended has
// ended everywhere.
package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/server"
)

// A test that kills a server runs this binary again, with the settings of a
// server in this variable and its socket as the first file behind the usual
// three.
const settingsVariable = "KEEPTEST_SERVER"

func TestMain(m *testing.M) {
	if settings := os.Getenv(settingsVariable); settings != "" {
		if err := serve(settings); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(keeptest.Run(m))
}

// serve runs a server until it is killed.
func serve(settings string) error {
	var values map[string]string
	if err := json.Unmarshal([]byte(settings), &values); err != nil {
		return err
	}
	var environment []string
	if url := values["store.url"]; url != "" {
		delete(values, "store.url")
		environment = []string{"TOKENKEEP_STORE_URL=" + url}
	}
	conf, err := config.Load("", environment, values)
	if err != nil {
		return err
	}
	conf.Dev = true
	socket := os.NewFile(3, "socket")
	l, err := net.FileListener(socket)
	if err := errors.Join(err, socket.Close()); err != nil {
		return err
	}
	s, err := server.New(context.Background(), conf, server.Options{Version: "test", Listener: l})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return s.Run(context.Background())
}
