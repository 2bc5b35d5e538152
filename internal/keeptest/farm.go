package keeptest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/server"
)

// A test that kills servers runs its binary again, with the settings of a
// server in this variable and its socket as the first file behind the usual
// three. Run finds out.
const childVariable = "KEEPTEST_SERVER"

// Farm is a number of servers behind one socket, each in a process of its own.
// The socket stays open when they are killed: whoever connects meanwhile waits.
type Farm struct {
	URL       string
	Processes []*Process

	t      testing.TB
	socket *net.TCPListener
	common map[string]string // settings
}

// Process is a server of a farm.
type Process struct {
	Data string
	// Settings replace those of the farm when the server is started; "" unsets one.
	Settings map[string]string
	cmd      *exec.Cmd
}

// NewFarm starts so many servers, on a store of their own or, when it is given,
// on the database at storeURL. They are killed at the end of the test.
func NewFarm(t testing.TB, servers int, storeURL string, settings map[string]string) *Farm {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	f := &Farm{URL: "http://" + l.Addr().String(), t: t, socket: l.(*net.TCPListener), common: map[string]string{
		"addr": "127.0.0.1:0", "environment": "test", "kek.file": filepath.Join(t.TempDir(), "kek.json"), "store.url": storeURL, "store.connections": "8",
		"sandbox.level": "off", "kek.timeout": "1h", // a slow machine is no outage
	}}
	for name, value := range settings {
		f.common[name] = value
	}
	if _, err := localkms.Generate(f.common["kek.file"]); err != nil {
		t.Fatal(err)
	}
	for range servers {
		p := &Process{Data: filepath.Join(t.TempDir(), "data")}
		f.Processes = append(f.Processes, p)
		f.Start(p)
		t.Cleanup(func() { f.Kill(p) })
	}
	return f
}

// Operator returns a client of the admin socket of the first server.
func (f *Farm) Operator() *admin.Client { return admin.NewClient(f.Processes[0].Data) }

// Start starts a server again and waits until it is ready.
func (f *Farm) Start(p *Process) {
	f.t.Helper()
	settings := map[string]string{"data": p.Data}
	maps.Copy(settings, f.common)
	maps.Copy(settings, p.Settings)
	maps.DeleteFunc(settings, func(_, value string) bool { return value == "" })
	text, err := json.Marshal(settings)
	if err != nil {
		f.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	socket, err := f.socket.File()
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	p.cmd = exec.Command(self) //nolint:gosec // the binary of the test itself
	p.cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	p.cmd.ExtraFiles = []*os.File{socket}
	p.cmd.Stderr = os.Stderr // a panic is told there
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		f.t.Fatalf("the server said %q, %v", line, err)
	}
}

// Kill ends a server as the kernel does: it is asked nothing.
func (f *Farm) Kill(p *Process) {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// serve runs a server of a farm until it is killed.
func serve(settings string) error {
	var values map[string]string
	if err := json.Unmarshal([]byte(settings), &values); err != nil {
		return err
	}
	var environment []string
	if url := values["store.url"]; url != "" { // a secret: no flag takes it
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
