package powercut

import (
	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// methods is the table of every file that we open. Version 2 has shared memory
// and leaves out memory-mapped I/O.
var methods = sqlite3.Tsqlite3_io_methods{
	FiVersion:               2,
	FxClose:                 method(fileClose),
	FxRead:                  method(fileRead),
	FxWrite:                 method(fileWrite),
	FxTruncate:              method(fileTruncate),
	FxSync:                  method(fileSync),
	FxFileSize:              method(fileSize),
	FxLock:                  method(fileLock),
	FxUnlock:                method(fileUnlock),
	FxCheckReservedLock:     method(fileCheckReservedLock),
	FxFileControl:           method(fileControl),
	FxSectorSize:            method(fileSectorSize),
	FxDeviceCharacteristics: method(fileDeviceCharacteristics),
	FxShmMap:                method(fileShmMap),
	FxShmLock:               method(fileShmLock),
	FxShmBarrier:            method(fileShmBarrier),
	FxShmUnmap:              method(fileShmUnmap),
}

// wrapped returns the methods of the file behind ours.
func wrapped(pFile uintptr) *sqlite3.Tsqlite3_io_methods {
	return at[sqlite3.Tsqlite3_io_methods](at[sqlite3.Tsqlite3_file](pFile + headerSize).FpMethods)
}

// fileControl refuses what would change a file's size behind our back.
func fileControl(tls *libc.TLS, pFile uintptr, op int32, pArg uintptr) int32 {
	switch op {
	case sqlite3.SQLITE_FCNTL_SIZE_HINT, sqlite3.SQLITE_FCNTL_CHUNK_SIZE, sqlite3.SQLITE_FCNTL_MMAP_SIZE:
		return sqlite3.SQLITE_NOTFOUND
	}
	return function[func(*libc.TLS, uintptr, int32, uintptr) int32](wrapped(pFile).FxFileControl)(tls, pFile+headerSize, op, pArg)
}

// fileDeviceCharacteristics promises no more than a Disk keeps: no atomic
// writes, no order among them.
func fileDeviceCharacteristics(tls *libc.TLS, pFile uintptr) int32 {
	const kept = sqlite3.SQLITE_IOCAP_POWERSAFE_OVERWRITE | sqlite3.SQLITE_IOCAP_SUBPAGE_READ
	return kept & function[func(*libc.TLS, uintptr) int32](wrapped(pFile).FxDeviceCharacteristics)(tls, pFile+headerSize)
}

// The rest passes straight through.

func fileRead(tls *libc.TLS, pFile, pBuf uintptr, amount int32, offset int64) int32 {
	return function[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](wrapped(pFile).FxRead)(tls, pFile+headerSize, pBuf, amount, offset)
}

func fileSize(tls *libc.TLS, pFile, pSize uintptr) int32 {
	return function[func(*libc.TLS, uintptr, uintptr) int32](wrapped(pFile).FxFileSize)(tls, pFile+headerSize, pSize)
}

func fileLock(tls *libc.TLS, pFile uintptr, level int32) int32 {
	return function[func(*libc.TLS, uintptr, int32) int32](wrapped(pFile).FxLock)(tls, pFile+headerSize, level)
}

func fileUnlock(tls *libc.TLS, pFile uintptr, level int32) int32 {
	return function[func(*libc.TLS, uintptr, int32) int32](wrapped(pFile).FxUnlock)(tls, pFile+headerSize, level)
}

func fileCheckReservedLock(tls *libc.TLS, pFile, pOut uintptr) int32 {
	return function[func(*libc.TLS, uintptr, uintptr) int32](wrapped(pFile).FxCheckReservedLock)(tls, pFile+headerSize, pOut)
}

func fileSectorSize(tls *libc.TLS, pFile uintptr) int32 {
	return function[func(*libc.TLS, uintptr) int32](wrapped(pFile).FxSectorSize)(tls, pFile+headerSize)
}

func fileShmMap(tls *libc.TLS, pFile uintptr, page, size, extend int32, pp uintptr) int32 {
	return function[func(*libc.TLS, uintptr, int32, int32, int32, uintptr) int32](wrapped(pFile).FxShmMap)(tls, pFile+headerSize, page, size, extend, pp)
}

func fileShmLock(tls *libc.TLS, pFile uintptr, offset, n, flags int32) int32 {
	return function[func(*libc.TLS, uintptr, int32, int32, int32) int32](wrapped(pFile).FxShmLock)(tls, pFile+headerSize, offset, n, flags)
}

func fileShmBarrier(tls *libc.TLS, pFile uintptr) {
	function[func(*libc.TLS, uintptr)](wrapped(pFile).FxShmBarrier)(tls, pFile+headerSize)
}

func fileShmUnmap(tls *libc.TLS, pFile uintptr, remove int32) int32 {
	return function[func(*libc.TLS, uintptr, int32) int32](wrapped(pFile).FxShmUnmap)(tls, pFile+headerSize, remove)
}
