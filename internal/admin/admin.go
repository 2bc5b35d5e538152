// Package admin is the operator's door to a running server: a socket in the
// data folder that only the server's own user can open.
//
// It promises that whoever can open the socket is the operator, because the
// folder and the socket let nobody else in; there are no keys here. It never
// carries tenants' data, and it is never reachable over a network.
package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// socketFile is the name of the socket in the data folder.
const socketFile = "admin.sock"

// ErrNoServer says that no server has the data folder open.
var ErrNoServer = errors.New("no server is running on this data folder")

// maxSocketPath is what fits into the kernel's address of a socket.
const maxSocketPath = 107

// Listen opens the socket. The caller holds the folder's lock, so a socket
// file that is already there was left behind by a server that was killed.
func Listen(dir string) (net.Listener, error) {
	path := filepath.Join(dir, socketFile)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("admin: remove old socket: %w", err)
	}
	short, done, err := shorten(path)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.Listen("unix", short)
	if err != nil {
		return nil, fmt.Errorf("admin: listen: %w", err)
	}
	// The short name is gone by the time the listener closes.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("admin: set mode of socket: %w", err)
	}
	return &socket{l, path}, nil
}

// socket takes its file along when it closes.
type socket struct {
	net.Listener
	path string
}

func (s *socket) Close() error {
	_ = os.Remove(s.path)
	return s.Listener.Close()
}

// Transport returns an http.RoundTripper that reaches the server of a data
// folder, whatever host the request names. ErrNoServer when there is none.
func Transport(dir string) http.RoundTripper {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			short, done, err := shorten(filepath.Join(dir, socketFile))
			if err != nil {
				return nil, err
			}
			defer done()
			c, err := new(net.Dialer).DialContext(ctx, "unix", short)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
				return nil, ErrNoServer
			}
			return c, err
		},
	}
}

// shorten returns a name under which a socket path fits into an address: a
// deep folder is reached through its open descriptor. done gives that back.
func shorten(path string) (short string, done func(), err error) {
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil, ErrNoServer
	}
	if err != nil {
		return "", nil, fmt.Errorf("admin: open folder: %w", err)
	}
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + filepath.Base(path), func() { _ = dir.Close() }, nil
}
