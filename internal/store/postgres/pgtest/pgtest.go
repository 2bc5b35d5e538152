// Package pgtest runs PostgreSQL for tests.
//
// The packages of one 'go test' share a cluster, with a database for each test;
// a test that stops or configures its server has a cluster to itself. Every
// cluster is in a temporary folder and reached only through a socket in that
// folder. It promises that servers and folders are gone soon after the 'go test'
// that started them, on Linux also when that was killed. It never accesses a
// database that it did not create, and only tests use it.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// requiredVariable says, with the value "required", that a missing PostgreSQL
// fails the tests instead of skipping them.
const requiredVariable = "KEEPTEST_POSTGRES"

// errNoPostgres says that no server was found to run.
var errNoPostgres = errors.New("no PostgreSQL found in PATH or /usr/lib/postgresql: 'make postgres' installs it")

// startWait is how long a server may take to come up, recovery included.
const startWait = 10 * time.Minute

// Options choose how a cluster runs.
type Options struct {
	// NoSync lets the server skip every sync: faster, and nothing survives a
	// crash of the machine. Crashes of the server itself are survived.
	NoSync bool
	// Settings are further lines of the server's configuration.
	Settings map[string]string
	// Base is a base backup that the cluster begins as, and takes away.
	Base string
	// Signal is a file that tells the server how to recover from that.
	Signal string
}

// Cluster is a running server with its folder.
type Cluster struct {
	dir, bin string
	prefix   string // of the names of its databases
	options  Options
	account  *syscall.Credential // nil: run as the user of the tests

	mu      sync.Mutex // guards what follows
	process *os.Process
	ended   chan struct{} // closed when the process is gone
	made    int           // databases
	free    []string      // of those, the ones that are empty again
}

// Database returns the URL of a new, empty database in the cluster that the
// packages of a 'go test' share. The URL is a superuser's.
func Database(t testing.TB) string {
	t.Helper()
	c, err := shared()
	need(t, err)
	return c.Database(t)
}

// Start runs a cluster for the length of one test.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	folder, err := runFolder()
	need(t, err)
	c, err := start(folder, o)
	need(t, err)
	t.Cleanup(c.Remove)
	return c
}

// need skips the test without PostgreSQL, unless it must be there.
func need(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, errNoPostgres) && os.Getenv(requiredVariable) != "required":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
}

// start starts a cluster in a new folder inside folder.
func start(folder string, o Options) (_ *Cluster, err error) {
	bin, err := findBinaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(folder, "cluster-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, bin: bin, options: o}
	defer func() {
		if err != nil {
			c.Remove()
		}
	}()
	if err := c.chooseAccount(); err != nil {
		return nil, err
	}
	if o.Base != "" {
		if err := c.take(o.Base, o.Signal); err != nil {
			return nil, err
		}
		return c, c.Restart()
	}
	initdb := c.command("initdb", "-D", c.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--data-checksums")
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	return c, c.Restart()
}

// take makes a base backup the cluster's own.
func (c *Cluster) take(base, signal string) error {
	if err := os.Rename(base, c.data()); err != nil {
		return err
	}
	path := filepath.Join(c.data(), signal)
	if err := os.WriteFile(path, nil, 0o600); err != nil || c.account == nil {
		return err
	}
	return os.Chown(path, int(c.account.Uid), int(c.account.Gid))
}

// Backup takes a base backup and returns its folder.
func (c *Cluster) Backup(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp(c.dir, "base-")
	if err == nil {
		err = os.Remove(folder)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := c.command("pg_basebackup", "-D", folder, "-h", c.dir, "-U", "postgres", "--checkpoint=fast", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v: %s", err, out)
	}
	return folder
}

// Standby runs a copy of the cluster that follows it, for the length of one
// test, under the same settings. It calls itself standby.
func (c *Cluster) Standby(t testing.TB) *Cluster {
	t.Helper()
	o := c.options
	o.Settings = map[string]string{}
	maps.Copy(o.Settings, c.options.Settings)
	o.Settings["primary_conninfo"] = "host=" + c.dir + " user=postgres application_name=standby"
	o.Settings["wal_retrieve_retry_interval"] = "1s" // which a promotion may have to wait for
	o.Base, o.Signal = c.Backup(t), "standby.signal"
	return Start(t, o)
}

// Promote makes a standby take changes.
func (c *Cluster) Promote() error {
	if out, err := c.command("pg_ctl", "promote", "-D", c.data()).CombinedOutput(); err != nil {
		return fmt.Errorf("pg_ctl promote: %w: %s", err, out)
	}
	return nil
}

// findBinaries returns the folder with the newest server.
func findBinaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return "", errNoPostgres
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4])
		return n
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
	return filepath.Dir(newest), nil
}

// chooseAccount picks another user when the tests run as root, which the
// server refuses to do.
func (c *Cluster) chooseAccount() error {
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(errUID, errGID); err != nil {
			return err
		}
		c.account = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return os.Chown(c.dir, int(uid), int(gid))
	}
	return errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody")
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

func (c *Cluster) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.bin, name), args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = attributes(c.account)
	return cmd
}

// Command prepares one of PostgreSQL's own programs against a database.
func (c *Cluster) Command(name, database string, args ...string) *exec.Cmd {
	return c.command(name, append([]string{"-h", c.dir, "-U", "postgres", "-d", database}, args...)...)
}

// Folder returns a folder that the server and its programs can read.
func (c *Cluster) Folder() string { return c.dir }

// URL returns the URL of a database, as the superuser.
func (c *Cluster) URL(database string) string {
	return "postgres:///" + database + "?user=postgres&host=" + url.QueryEscape(c.dir)
}

// Database returns the URL of an empty database for one test. To make one takes
// longer than to empty one that another test has left.
func (c *Cluster) Database(t testing.TB) string {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	name := fmt.Sprintf("test_%s%d", c.prefix, c.made)
	if n := len(c.free); n > 0 {
		name, c.free = c.free[n-1], c.free[:n-1]
	} else {
		c.made++
		if err := c.run("postgres", "CREATE DATABASE "+name); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if c.run(name, "SET client_min_messages = warning; SET lock_timeout = 1000; DROP SCHEMA IF EXISTS tokenkeep CASCADE") == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.free = append(c.free, name)
		}
	})
	return c.URL(name)
}

// run runs statements in a database.
func (c *Cluster) run(database, statements string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startWait)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.URL(database))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return conn.PgConn().Exec(ctx, statements).Close()
}

// Restart starts the server, which must not be running, and waits until it
// serves.
func (c *Cluster) Restart() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	deadline := time.Now().Add(startWait)
	for {
		err := c.launch(deadline)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		// The processes of a killed server may still hold its memory.
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *Cluster) launch(deadline time.Time) error {
	settings := map[string]string{
		"listen_addresses": "", "unix_socket_directories": c.dir, "max_connections": "200", "shared_buffers": "128MB",
		"fsync": "on", "synchronous_commit": "on", "log_min_messages": "fatal", "max_wal_size": "2GB",
	}
	if c.options.NoSync {
		settings["fsync"], settings["full_page_writes"] = "off", "off"
	}
	args := []string{"-D", c.data()}
	for _, more := range []map[string]string{settings, c.options.Settings} {
		for name, value := range more {
			args = append(args, "-c", name+"="+value)
		}
	}
	log, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := c.command("postgres", args...)
	cmd.Stdout, cmd.Stderr = log, log
	started, ended := make(chan error), make(chan struct{})
	go func() {
		// The kernel ends the server when the thread that started it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	for {
		select {
		case <-ended:
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("the server ended at once: %s", text)
		default:
		}
		if err := c.run("postgres", ""); err == nil {
			c.process, c.ended = cmd.Process, ended
			return nil
		} else if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Kill ends every process of the server at once with SIGKILL.
func (c *Cluster) Kill() { c.end(killAll) }

// Quit ends the server without a shutdown, as 'pg_ctl stop -m immediate' does.
func (c *Cluster) Quit() { c.end(func(p *os.Process) { _ = p.Signal(syscall.SIGQUIT) }) }

func (c *Cluster) end(stop func(*os.Process)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return
	}
	stop(c.process)
	<-c.ended
	c.process = nil
}

// Remove ends the server and removes its folder.
func (c *Cluster) Remove() {
	c.Quit()
	_ = os.RemoveAll(c.dir)
}
