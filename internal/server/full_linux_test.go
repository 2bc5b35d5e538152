package server_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// tmpfsVariable says, with the value "required", that a machine on which no
// file system can be mounted fails the test instead of skipping it.
const tmpfsVariable = "KEEPTEST_TMPFS"

// mountsVariable says that a process has mounts of its own.
const mountsVariable = "KEEPTEST_MOUNTS"

// withOwnMounts runs the test again in a process whose mounts end with it, also
// when it is killed, and reports whether this is the process that started it.
func withOwnMounts(t *testing.T) bool {
	t.Helper()
	if os.Getenv(mountsVariable) != "" {
		return false
	}
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), mountsVariable+"=own")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	// The kernel ends the process when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, unix.EPERM) && os.Getenv(tmpfsVariable) != "required":
		t.Skip("only root may mount a small file system; KEEPTEST_TMPFS=required makes this a failure")
	case err != nil:
		t.Fatalf("with mounts of its own: %v\n%s", err, out)
	case !bytes.Contains(out, []byte("--- PASS: "+t.Name())) && bytes.Contains(out, []byte("--- SKIP: ")):
		t.Skip(string(out))
	}
	return true
}

// smallDisk mounts a file system of so many bytes.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, fmt.Sprintf("size=%d,mode=0700", size))
	if errors.Is(err, unix.EPERM) && os.Getenv(tmpfsVariable) != "required" {
		t.Skip("only root may mount a small file system; KEEPTEST_TMPFS=required makes this a failure")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// ballast fills the disk with a file, up to so many bytes or to its end.
func ballast(t *testing.T, path string, size int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for written := 0; written < size; {
		n, err := f.Write(make([]byte, min(size-written, 4096)))
		if written += n; errors.Is(err, unix.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestOnAFullDiskWritesAreRefusedAndReadsGoOn fills a disk, first to where the
// reserve begins and then to its end, and makes room again, twice.
func TestOnAFullDiskWritesAreRefusedAndReadsGoOn(t *testing.T) {
	storetest.CheckOnly(t)
	keeptest.OnFiles(t)
	if withOwnMounts(t) {
		return
	}
	disk := smallDisk(t, 72<<20)
	data, filler, end := filepath.Join(disk, "data"), filepath.Join(disk, "filler"), filepath.Join(disk, "end")
	const reserve = 16 << 20
	o := keeptest.Options{Data: data, Settings: map[string]string{"store.reserve": fmt.Sprint(reserve)}}
	k := keeptest.Start(t, o)
	tenant := k.Tenant(t)
	key := k.Application(t, tenant.Tenant.ID, api.CreateApplication{Type: "private", Rules: []api.Rule{
		{Container: "/", Transform: "reveal", Permissions: []string{"token:create", "token:read", "token:delete"}},
	}}).Key
	value := string(bytes.Repeat([]byte("x"), 256<<10))
	made, reads := 0, 0
	create := func() keeptest.Answer {
		return k.Call(t, http.MethodPost, "/tokens", key, fmt.Sprintf(`{"id":"token-%d","type":"token","data":%q}`, made, value))
	}
	refused := func(got keeptest.Answer, when string) {
		t.Helper()
		if got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") != "5" {
			t.Fatalf("%s: %s, Retry-After %q; want 503 and 5", when, got, got.Header.Get("Retry-After"))
		}
		got.CheckProblem(t)
	}
	read := func(id string) keeptest.Answer {
		got := k.Call(t, http.MethodGet, "/tokens/"+id, key, "")
		if got.Status == http.StatusOK {
			reads++
		}
		return got
	}
	readAll := func(when string) {
		t.Helper()
		for n := range made {
			if got := read(fmt.Sprintf("token-%d", n)); got.Status != http.StatusOK || !strings.Contains(got.Body, value) {
				t.Fatalf("%s: token %d of %d, which was acknowledged: status %d", when, n, made, got.Status)
			}
		}
	}
	ready := func() int { return k.Call(t, http.MethodGet, "/readyz", "", "").Status }
	metric := func() string {
		_, rest, _ := strings.Cut(k.Call(t, http.MethodGet, "/metrics", "", "").Body, "\ntokenkeep_store_disk_full ")
		return rest[:1]
	}

	if got := k.Call(t, http.MethodPost, "/tokens", key, `{"id":"small","type":"token","data":"little"}`); got.Status != http.StatusCreated {
		t.Fatalf("create = %s", got)
	}
	ballast(t, filler, 34<<20)
	for round := range 2 {
		var got keeptest.Answer
		for got = create(); got.Status == http.StatusCreated; got = create() {
			made++
		}
		refused(got, "a create on the full disk")
		refused(create(), "another create")
		if metric() != "1" || ready() != http.StatusOK {
			t.Errorf("on the full disk the metric says %s and /readyz %d, want 1 and 200", metric(), ready())
		}
		readAll("on the full disk")
		for n := range 200 {
			if got := read("small"); got.Status != http.StatusOK {
				t.Fatalf("read %d on the full disk: %s", n, got)
			}
		}
		// What makes the store smaller, or takes access away, goes on too.
		made--
		if got := k.Call(t, http.MethodDelete, fmt.Sprintf("/tokens/token-%d", made), key, ""); got.Status != http.StatusNoContent {
			t.Errorf("a deletion on the full disk: %s", got)
		}
		if err := k.Operator().Call(t.Context(), http.MethodPost, "/sweep", nil, nil); err != nil {
			t.Errorf("a sweep on the full disk: %v", err)
		}

		// Somebody else takes the rest: now nothing can be logged, so nothing
		// is read.
		for n := 0; read("small").Status == http.StatusOK; n++ {
			if ballast(t, end, 72<<20); n == 5000 {
				t.Fatal("reads go on without room for their log")
			}
		}
		refused(read("small"), "a read without room for its log")
		if ready() != http.StatusServiceUnavailable {
			t.Error("/readyz does not say that nothing is served")
		}

		for _, path := range []string{end, filler} {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		waittest.Until(t, "creates are served again", func() bool { return create().Status == http.StatusCreated })
		made++
		waittest.Until(t, "the reserve is taken again", func() bool {
			info, err := os.Stat(filepath.Join(data, "reserve"))
			return err == nil && info.Size() == reserve && metric() == "0"
		})
		readAll("with room again")
		if ready() != http.StatusOK {
			t.Error("/readyz says 503 with room again")
		}
		if round == 0 {
			ballast(t, filler, 18<<20)
		}
	}

	nothing := func(admin.Progress) error { return nil }
	for path, in := range map[string]any{"/store/check": nil, "/tenants/" + tenant.Tenant.ID + "/audit/verify": admin.VerifyLog{}} {
		last, err := k.Operator().Follow(t.Context(), http.MethodPost, path, in, nothing)
		if err != nil || len(last.Found) > 0 || in != nil && !strings.Contains(string(last.Data), `"found":0`) {
			t.Errorf("%s = %+v, %v", path, last, err)
		}
	}
	if err := k.Stop(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(data, "tokenkeep.db"))
	if err != nil {
		t.Fatal(err)
	}
	var logged int
	err = db.QueryRow("SELECT count(*) FROM log WHERE entity_type = 'token' AND operation = 'read' AND outcome = 'allowed'").Scan(&logged)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	// An entry whose answer was never sent is no breach; the other way round is.
	if logged < reads {
		t.Errorf("%d reads were answered, and %d are in the log", reads, logged)
	}
	k = keeptest.Start(t, o)
	readAll("after a restart")
}

// TestAStoreThatFindsNoRoomForItsReserveBeginsAsOnAFullDisk is what a restart
// on a full disk does: it must not use up what is left for the log.
func TestAStoreThatFindsNoRoomForItsReserveBeginsAsOnAFullDisk(t *testing.T) {
	storetest.Long(t)
	keeptest.OnFiles(t)
	if withOwnMounts(t) {
		return
	}
	if withOwnMounts(t) {
		return
	}
	disk := smallDisk(t, 48<<20)
	data, filler := filepath.Join(disk, "data"), filepath.Join(disk, "filler")
	k := keeptest.Start(t, keeptest.Options{Data: data})
	key := k.Tenant(t).Application.Key
	if err := k.Stop(); err != nil {
		t.Fatal(err)
	}
	ballast(t, filler, 20<<20)
	k = keeptest.Start(t, keeptest.Options{Data: data, Settings: map[string]string{"store.reserve": fmt.Sprint(16 << 20)}})
	create := func() int {
		return k.Call(t, http.MethodPost, "/applications", key, `{"name":"a","type":"private","permissions":["token:create"]}`).Status
	}
	if got := create(); got != http.StatusServiceUnavailable {
		t.Errorf("a create without a reserve = %d, want 503", got)
	}
	if got := k.Call(t, http.MethodGet, "/tenants/self", key, ""); got.Status != http.StatusOK {
		t.Errorf("a read without a reserve = %s", got)
	}
	if !strings.Contains(k.Log.String(), "there is too little room on the disk") {
		t.Error("the log does not say so")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "creates are served", func() bool { return create() == http.StatusCreated })
}
