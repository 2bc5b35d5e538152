package powercut

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// SQLite here is C translated to Go: pointers are uintptrs into memory that the
// garbage collector neither moves nor frees, and a function pointer is the word
// inside a Go function value.

// at gives typed access to SQLite's memory.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

// method makes a function callable by SQLite. It must be a declared one, for
// nothing would keep a closure alive.
func method[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

// function makes one of SQLite's function pointers callable.
func function[F any](p uintptr) F { return *(*F)(unsafe.Pointer(&p)) }

// headerSize is the space that our sqlite3_file takes. The wrapped VFS keeps
// its own right behind it.
const headerSize = 16

// What SQLite hands back to us is an address; these find what belongs to it.
var (
	byVFS  sync.Map // address of a sqlite3_vfs to *Recorder
	byFile sync.Map // address of a sqlite3_file to *handle
)

// handle is an open file.
type handle struct {
	r    *Recorder
	path string // below the recorder's folder
	// file is nil where nothing is recorded: temporary files and other folders.
	file *file
	// syncsFolder says that the next sync is one of the folder too. The
	// recorder's lock guards it.
	syncsFolder bool
}

func (r *Recorder) register() error {
	tls := libc.NewTLS()
	defer tls.Close()
	r.real = sqlite3.Xsqlite3_vfs_find(tls, 0)
	if r.real == 0 {
		return errors.New("there is no default VFS")
	}
	size := int32(unsafe.Sizeof(sqlite3.Tsqlite3_vfs{}))
	r.vfs = sqlite3.Xsqlite3_malloc(tls, size+int32(len(r.name))+1)
	if r.vfs == 0 {
		return errors.New("out of memory")
	}
	cname := r.vfs + uintptr(size)
	copy(unsafe.Slice(at[byte](cname), len(r.name)+1), r.name+"\x00")

	// The methods that are not ours ignore the VFS that they are called on.
	vfs := *at[sqlite3.Tsqlite3_vfs](r.real)
	vfs.FszOsFile += headerSize
	vfs.FpNext = 0
	vfs.FzName = cname
	vfs.FpAppData = 0
	vfs.FxOpen = method(vfsOpen)
	vfs.FxDelete = method(vfsDelete)
	*at[sqlite3.Tsqlite3_vfs](r.vfs) = vfs

	byVFS.Store(r.vfs, r)
	if rc := sqlite3.Xsqlite3_vfs_register(tls, r.vfs, 0); rc != sqlite3.SQLITE_OK {
		return fmt.Errorf("result code %d", rc)
	}
	return nil
}

// unregister returns how many files are still open. If there are any, SQLite
// may yet call us, and our VFS stays in memory.
func (r *Recorder) unregister() int {
	tls := libc.NewTLS()
	defer tls.Close()
	sqlite3.Xsqlite3_vfs_unregister(tls, r.vfs)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == 0 {
		byVFS.Delete(r.vfs)
		sqlite3.Xsqlite3_free(tls, r.vfs)
	}
	return r.open
}

func recorderOf(pVfs uintptr) *Recorder {
	r, _ := byVFS.Load(pVfs)
	return r.(*Recorder)
}

func handleOf(pFile uintptr) *handle {
	h, _ := byFile.Load(pFile)
	return h.(*handle)
}

// below returns the path of a file below the folder, and whether it is there.
func (r *Recorder) below(zName uintptr) (string, bool) {
	return strings.CutPrefix(libc.GoString(zName), r.dir+string(filepath.Separator))
}

func vfsOpen(tls *libc.TLS, pVfs, zName, pFile uintptr, flags int32, pOutFlags uintptr) int32 {
	r := recorderOf(pVfs)
	r.mu.Lock()
	defer r.mu.Unlock()
	at[sqlite3.Tsqlite3_file](pFile).FpMethods = 0 // no xClose unless we get to the end
	open := function[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](at[sqlite3.Tsqlite3_vfs](r.real).FxOpen)
	if rc := open(tls, r.real, zName, pFile+headerSize, flags, pOutFlags); rc != sqlite3.SQLITE_OK {
		return rc
	}
	h := &handle{r: r}
	if zName != 0 && flags&sqlite3.SQLITE_OPEN_DELETEONCLOSE == 0 {
		if path, ok := r.below(zName); ok {
			h.path, h.file = path, r.opened(path)
			const journals = sqlite3.SQLITE_OPEN_MAIN_JOURNAL | sqlite3.SQLITE_OPEN_SUPER_JOURNAL | sqlite3.SQLITE_OPEN_WAL
			h.syncsFolder = flags&sqlite3.SQLITE_OPEN_CREATE != 0 && flags&journals != 0
		}
	}
	r.open++
	byFile.Store(pFile, h)
	at[sqlite3.Tsqlite3_file](pFile).FpMethods = uintptr(unsafe.Pointer(&methods))
	return sqlite3.SQLITE_OK
}

// opened returns the file under a path, a new one if there was none.
func (r *Recorder) opened(path string) *file {
	n := r.names[path]
	if n == nil {
		n = &name{states: []*file{nil}}
		r.names[path] = n
	}
	if n.now() == nil {
		if info, err := os.Stat(filepath.Join(r.dir, path)); err == nil && info.Size() > 0 {
			r.t.Errorf("powercut: %s was filled without the recorder", path)
		}
		n.point(&file{})
	}
	return n.now()
}

func vfsDelete(tls *libc.TLS, pVfs, zName uintptr, syncDir int32) int32 {
	r := recorderOf(pVfs)
	r.mu.Lock()
	defer r.mu.Unlock()
	remove := function[func(*libc.TLS, uintptr, uintptr, int32) int32](at[sqlite3.Tsqlite3_vfs](r.real).FxDelete)
	rc := remove(tls, r.real, zName, 0) // see fileSync
	path, ok := r.below(zName)
	if rc != sqlite3.SQLITE_OK || !ok {
		return rc
	}
	if n := r.names[path]; n != nil {
		n.point(nil)
	}
	if syncDir != 0 {
		r.settleFolder(path)
	}
	r.count()
	return rc
}

// settleFolder makes all names beside path durable as they are.
func (r *Recorder) settleFolder(path string) {
	for other, n := range r.names {
		if filepath.Dir(other) == filepath.Dir(path) {
			n.settle()
		}
	}
}

func fileWrite(tls *libc.TLS, pFile, pBuf uintptr, amount int32, offset int64) int32 {
	h := handleOf(pFile)
	write := function[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](wrapped(pFile).FxWrite)
	if h.file == nil {
		return write(tls, pFile+headerSize, pBuf, amount, offset)
	}
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	if code := h.r.writes.spring(); code != 0 {
		return code
	}
	rc := write(tls, pFile+headerSize, pBuf, amount, offset)
	if rc == sqlite3.SQLITE_OK {
		data := bytes.Clone(unsafe.Slice(at[byte](pBuf), amount))
		h.file.pending = append(h.file.pending, operation{at: offset, data: data})
		h.r.count()
	}
	return rc
}

func fileTruncate(tls *libc.TLS, pFile uintptr, size int64) int32 {
	h := handleOf(pFile)
	truncate := function[func(*libc.TLS, uintptr, int64) int32](wrapped(pFile).FxTruncate)
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	rc := truncate(tls, pFile+headerSize, size)
	if rc == sqlite3.SQLITE_OK && h.file != nil {
		h.file.pending = append(h.file.pending, operation{at: size, truncate: true})
		h.r.count()
	}
	return rc
}

// fileSync does not trouble the real disk: after a cut, ours is the one that
// counts, and a test should not wait for another.
func fileSync(tls *libc.TLS, pFile uintptr, flags int32) int32 {
	h := handleOf(pFile)
	if h.file == nil {
		return function[func(*libc.TLS, uintptr, int32) int32](wrapped(pFile).FxSync)(tls, pFile+headerSize, flags)
	}
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	if code := h.r.syncs.spring(); code != 0 {
		return code
	}
	issued := h.file.issued()
	if !h.syncsFolder {
		// A sync takes time. What others write meanwhile stays unsynced. Names
		// must not change, or it would be unclear what the folder was synced with.
		h.r.mu.Unlock()
		runtime.Gosched()
		h.r.mu.Lock()
	}
	h.file.sync(issued)
	if n := h.r.names[h.path]; n.now() == h.file {
		n.settle()
	}
	if h.syncsFolder {
		h.syncsFolder = false
		h.r.settleFolder(h.path)
	}
	h.r.count()
	return sqlite3.SQLITE_OK
}

func fileClose(tls *libc.TLS, pFile uintptr) int32 {
	h := handleOf(pFile)
	rc := function[func(*libc.TLS, uintptr) int32](wrapped(pFile).FxClose)(tls, pFile+headerSize)
	byFile.Delete(pFile)
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	h.r.open--
	return rc
}
