package pgtest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The host is a process that owns what the packages of one 'go test' share: a
// folder, and the cluster in it, which the first request starts. Every test
// binary holds a connection to it. It ends when the 'go test' has ended, or
// when it has had no connection for idleTime, and removes the folder: test
// binaries are killed together with all that they could do about it
// themselves, and 'go test' waits for none of their children.
//
// It is the first test binary that needs it, run once more with hostVariable
// set to the folder. The folder is named after the 'go test', so two of them
// never share one.

// hostVariable makes a test binary the host of the folder that it names.
const hostVariable = "KEEPTEST_HOST"

// runVariable names to a host its 'go test', as runName returns it.
const runVariable = "KEEPTEST_HOST_RUN"

// idleTime is how long a host without connections waits for the next.
const idleTime = 10 * time.Second

// The files of a host in its folder.
const (
	lockName   = "lock" // held by a client that starts the host, and by a host that ends
	socketName = "socket"
	logName    = "host.log"
)

// The lines of clients.
const (
	helloLine   = "hello"   // wait until the host has counted this client
	clusterLine = "cluster" // start the shared cluster, if it does not run yet
)

// answer is what a host returns for a line.
type answer struct {
	Dir, Bin, Prefix, Error string
}

// client is the connection of a test binary to its host.
type client struct {
	folder string
	conn   net.Conn
	reader *bufio.Reader
}

// send sends a line and returns the answer.
func (c *client) send(line string) (a answer, err error) {
	if _, err := fmt.Fprintln(c.conn, line); err != nil {
		return a, err
	}
	text, err := c.reader.ReadBytes('\n')
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, err
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// attached connects this binary to its host, for as long as it runs.
var attached = sync.OnceValues(attach)

// shared returns the cluster that the packages of a 'go test' share.
var shared = sync.OnceValues(func() (*Cluster, error) {
	c, err := attached()
	if err != nil {
		return nil, err
	}
	a, err := c.send(clusterLine)
	if err != nil {
		return nil, fmt.Errorf("start the shared cluster: %w", err)
	}
	return &Cluster{dir: a.Dir, bin: a.Bin, prefix: a.Prefix}, nil
})

// Run runs the tests of a package; it is what TestMain calls.
func Run(m *testing.M) int {
	if folder := os.Getenv(hostVariable); folder != "" {
		if err := host(folder); err != nil {
			fmt.Println(err)
			return 1
		}
		return 0
	}
	return m.Run()
}

// runFolder returns the folder for the clusters of this 'go test'.
func runFolder() (string, error) {
	c, err := attached()
	if err != nil {
		return "", err
	}
	return c.folder, nil
}

// attach connects to the host of this 'go test', and starts it if there is none.
func attach() (*client, error) {
	if _, err := findBinaries(); err != nil {
		return nil, err
	}
	folder := filepath.Join(os.TempDir(), fmt.Sprintf("tokenkeep-pg-%d-%s", os.Getuid(), runName(os.Getppid())))
	for {
		c, err := attachTo(folder)
		if !errors.Is(err, fs.ErrNotExist) {
			return c, err
		}
		// A host has removed the folder meanwhile.
	}
}

func attachTo(folder string) (_ *client, err error) {
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the folder of the clusters: %w", refused(err))
	}
	if err := ours(folder); err != nil {
		return nil, err
	}
	unlock, err := lock(folder)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c, err := dial(folder)
	if err == nil {
		return c, nil
	}
	if err := startHost(folder); err != nil {
		return nil, refused(err)
	}
	if c, err = dial(folder); err != nil {
		return nil, fmt.Errorf("connect to the host of the clusters: %w", refused(err))
	}
	return c, nil
}

// dial connects to the host of a folder, which has then counted this client.
func dial(folder string) (*client, error) {
	conn, err := net.Dial("unix", filepath.Join(folder, socketName))
	if err != nil {
		return nil, err
	}
	c := &client{folder: folder, conn: conn, reader: bufio.NewReader(conn)}
	if _, err := c.send(helloLine); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// refused keeps an error from being taken for a folder that a host removed.
func refused(err error) error { return errors.New(err.Error()) }

// ours refuses a folder that another user has put there.
func ours(folder string) error {
	info, err := os.Lstat(folder)
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(owner.Uid) != os.Getuid() {
		return fmt.Errorf("%s is not a folder of this user", folder)
	}
	// The account of the server must be able to reach its own folder inside.
	return os.Chmod(folder, 0o711)
}

// lock locks a folder. It returns fs.ErrNotExist if the folder was removed
// before that.
func lock(folder string) (unlock func(), err error) {
	path := filepath.Join(folder, lockName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	unlock = func() { _ = f.Close() }
	for {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		unlock()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	locked, err := f.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Stat(path); err == nil && !os.SameFile(locked, there) {
			err = fs.ErrNotExist
		}
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// startHost starts the host of a folder and waits until it listens.
func startHost(folder string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(folder, logName))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	// A binary whose TestMain does not call Run would run its tests: none.
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), hostVariable+"="+folder, runVariable+"="+runName(os.Getppid()))
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // an interrupt from the terminal must not end it first
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }()
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		return fmt.Errorf("the host of the clusters printed %q: does TestMain call pgtest.Run or keeptest.Run?", line)
	}
	return nil
}

// host serves a folder until the 'go test' has ended or nobody is connected.
func host(folder string) error {
	// What ends a run must not end its host before that has cleaned up.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	// A host that was killed may have left its socket.
	socket := filepath.Join(folder, socketName)
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	h := &clusterHost{folder: folder, emptied: make(chan struct{}, 1)}
	go h.accept(l)
	fmt.Println("ready")
	over := ended(os.Getenv(runVariable))
	idle := time.NewTimer(idleTime)
	for {
		final := true
		select {
		case <-h.emptied:
			idle.Reset(idleTime)
			continue
		case <-idle.C:
			final = false
		case <-over:
		case <-stop:
		}
		// Clients hold the lock until they are counted.
		unlock, err := lock(folder)
		if err == nil {
			defer unlock()
		}
		if !final && err == nil && h.count(0) > 0 {
			unlock()
			continue
		}
		return h.remove()
	}
}

// clusterHost is the state of a host.
type clusterHost struct {
	folder  string
	emptied chan struct{} // receives when the last connection ends

	mu          sync.Mutex // guards what follows
	connections int
	clients     int // ever
	cluster     *Cluster
}

func (h *clusterHost) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		h.count(1)
		go func() {
			h.serve(conn)
			_ = conn.Close()
			if h.count(-1) == 0 {
				select {
				case h.emptied <- struct{}{}:
				default:
				}
			}
		}()
	}
}

// count changes the number of connections and returns it.
func (h *clusterHost) count(by int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.connections += by
	return h.connections
}

// serve answers a client until it ends.
func (h *clusterHost) serve(conn net.Conn) {
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var a answer
		if lines.Text() == clusterLine {
			a = h.shared()
		}
		if json.NewEncoder(conn).Encode(a) != nil {
			return
		}
	}
}

// shared returns the cluster, with a prefix for the databases of one client.
func (h *clusterHost) shared() answer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cluster == nil {
		c, err := start(h.folder, Options{NoSync: true, Settings: map[string]string{"max_connections": "800"}})
		if err != nil {
			return answer{Error: err.Error()}
		}
		h.cluster = c
	}
	h.clients++
	return answer{Dir: h.cluster.dir, Bin: h.cluster.bin, Prefix: strconv.Itoa(h.clients) + "_"}
}

// remove ends the cluster and removes the folder. Servers of test binaries
// that were killed may still write into it for a moment.
func (h *clusterHost) remove() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cluster != nil {
		h.cluster.Remove()
	}
	var err error
	for range 100 {
		if err = os.RemoveAll(h.folder); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}
