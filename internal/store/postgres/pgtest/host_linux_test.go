package pgtest_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// roleVariable makes this binary another part of a run: "run" stands for a 'go
// test' with two packages, "package" for one of these.
const roleVariable = "KEEPTEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "run" {
		os.Exit(asRun())
	}
	os.Exit(pgtest.Run(m))
}

// asRun runs two packages at once, which print what they use.
func asRun() int {
	var packages []*exec.Cmd
	for range 2 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestOnePackage$")
		cmd.Env = append(os.Environ(), roleVariable+"=package")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.Stdin = os.Stdin
		if err := cmd.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
		packages = append(packages, cmd)
	}
	for _, cmd := range packages {
		_ = cmd.Wait()
	}
	return 0
}

// TestOnePackage is a package of a run: it uses both kinds of clusters until
// its input ends.
func TestOnePackage(t *testing.T) {
	if os.Getenv(roleVariable) != "package" {
		t.Skip("it is a part of the other tests")
	}
	fmt.Println("shared", pgtest.Database(t))
	fmt.Println("own", pgtest.Start(t, pgtest.Options{NoSync: true}).URL("postgres"))
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// run is a 'go test' with two packages.
type run struct {
	cmd   *exec.Cmd
	stdin io.Closer
	urls  map[string][]string // by kind
}

func startRun(t *testing.T) *run {
	t.Helper()
	r := &run{cmd: exec.Command("/proc/self/exe"), urls: map[string][]string{}}
	r.cmd.Env = append(os.Environ(), roleVariable+"=run")
	r.cmd.Stderr = os.Stderr
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for len(r.urls["shared"])+len(r.urls["own"]) < 4 && lines.Scan() {
		kind, url, _ := strings.Cut(lines.Text(), " ")
		r.urls[kind] = append(r.urls[kind], url)
	}
	if len(r.urls["shared"]) != 2 || len(r.urls["own"]) != 2 {
		t.Fatalf("the packages printed %v", r.urls)
	}
	return r
}

// cluster returns the folder of the cluster of a URL.
func cluster(t *testing.T, text string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("host")
}

func TestThePackagesOfARunShareAClusterAndRunsDoNot(t *testing.T) {
	storetest.CheckOnly(t)
	pgtest.Database(t) // skips without PostgreSQL
	first, second := startRun(t), startRun(t)
	for _, r := range []*run{first, second} {
		shared, own := r.urls["shared"], r.urls["own"]
		if cluster(t, shared[0]) != cluster(t, shared[1]) {
			t.Errorf("two packages of a run use the clusters %s and %s", shared[0], shared[1])
		}
		if shared[0] == shared[1] {
			t.Errorf("two tests of a run use the database %s", shared[0])
		}
		if cluster(t, own[0]) == cluster(t, own[1]) || cluster(t, own[0]) == cluster(t, shared[0]) {
			t.Errorf("a test that starts a cluster shares it: %v, %v", own, shared)
		}
	}
	if cluster(t, first.urls["shared"][0]) == cluster(t, second.urls["shared"][0]) {
		t.Error("two runs use one cluster")
	}
}

func TestNothingIsLeftBehindByARun(t *testing.T) {
	storetest.CheckOnly(t)
	pgtest.Database(t) // skips without PostgreSQL
	for name, end := range map[string]func(*run){
		"that ends":      func(r *run) { _ = r.stdin.Close() },
		"that is killed": func(r *run) { _ = r.cmd.Process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			r := startRun(t)
			folder := filepath.Dir(cluster(t, r.urls["shared"][0]))
			// The host of the clusters ends last, and its connections with it.
			host, err := net.Dial("unix", filepath.Join(folder, "socket"))
			if err != nil {
				t.Fatal(err)
			}
			end(r)
			_, _ = io.Copy(io.Discard, host)
			_ = host.Close()
			if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is still there: %v", folder, err)
			}
			for _, url := range r.urls["shared"] {
				if c, err := pgx.Connect(t.Context(), url); err == nil {
					_ = c.Close(t.Context())
					t.Errorf("a server still accepts connections at %s", url)
				}
			}
		})
	}
}
