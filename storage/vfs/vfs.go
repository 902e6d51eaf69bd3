// Package vfs is the file system as the storage layer sees it: a small
// interface, the real one over the operating system, a simulated one with crash
// semantics, and wrappers that make operations fail.
//
// What a File holds is volatile until a Sync of it has succeeded, and a name in
// a directory is volatile until a SyncDir of that directory has. Code that
// forgets either works on every machine that never loses power, so the
// simulated disk takes both back at a crash.
package vfs

import (
	"errors"
	"io"
	"time"
)

// Errors that callers tell apart, beside io/fs.ErrNotExist and io/fs.ErrExist.
var (
	// ErrLocked: another process holds the lock. The wrapped text says which, where it is known.
	ErrLocked = errors.New("locked by another process")
	// ErrNoSpace: the disk is full. A real file system's ENOSPC and EDQUOT match it under errors.Is.
	ErrNoSpace = errors.New("no space left on device")
	// ErrTooManyOpen: the process, or the machine, may open no more files; nothing was done. EMFILE and ENFILE match it.
	ErrTooManyOpen = errors.New("too many open files")
	// ErrUnsupported: this file system cannot do that (preallocation, direct I/O).
	ErrUnsupported = errors.New("not supported by this file system")
	// ErrInjected marks every fault that a test or the simulator put in, so that a
	// checker can tell it from a bug of ours.
	ErrInjected = errors.New("injected fault")
)

// Mode says how Open opens a file. Without Create a missing file is fs.ErrNotExist.
type Mode uint8

const (
	ReadOnly  Mode = 0
	ReadWrite Mode = 1 << 0 // for writing too
	Create    Mode = 1 << 1 // create it when missing; implies ReadWrite
	Exclusive Mode = 1 << 2 // with Create: fs.ErrExist when it is there
	Truncate  Mode = 1 << 3 // with ReadWrite: empty it
	Direct    Mode = 1 << 4 // O_DIRECT: offsets, lengths and buffers in multiples of DirectAlign
)

// DirectAlign is the alignment, in bytes, of offset, length and buffer address that Direct files need.
const DirectAlign = 4096

// FS is a file system. Names are slash-separated paths. All methods may be
// called from several goroutines.
type FS interface {
	Open(name string, mode Mode) (File, error)
	Remove(name string) error
	RemoveAll(name string) error
	// Rename replaces newName when it exists, atomically; durable after SyncDir of both parents.
	Rename(oldName, newName string) error
	MkdirAll(name string) error
	// List gives the names in a directory, ascending.
	List(dir string) ([]string, error)
	Stat(name string) (Info, error)
	// SyncDir makes the names in dir durable. It says nothing about the bytes of the files.
	SyncDir(dir string) error
	// Lock takes the lock file name for this process until it closes the result; ErrLocked when another holds it.
	Lock(name string) (io.Closer, error)
}

// Info describes a file or directory.
type Info struct {
	Size    int64 // bytes
	Dir     bool
	ModTime time.Time
}

// File holds bytes that are volatile until a Sync of it has succeeded. After a
// failed Sync nothing is known of them: close the file, take its log directory
// offline, recover. They may be read as written, and another Sync may succeed, though the disk never
// gets them: only what is written again is the next Sync's to make durable.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Syncer
	Truncate(size int64) error
	Size() (int64, error)
	// Preallocate reserves [offset, offset+n) without changing Size; ErrUnsupported is harmless.
	Preallocate(offset, n int64) error
	Name() string
}

// Syncer is anything whose durability can be waited for: a File, a directory
// (see DirSyncer), a database.
type Syncer interface {
	Sync() error
}

// BeginSyncer is a Syncer of the simulated disk. BeginSync notes what is
// volatile now; finish, called at a later event, makes just that durable. What
// was written in between stays volatile, as with a real fsync that had already
// passed those pages.
type BeginSyncer interface {
	Syncer
	BeginSync() (finish func() error)
}

// WriteBacker is a File of which the operating system can be asked to hand all writes to the disk,
// and to say how that went, without their being durable: size, names and the disk's own cache are left out.
// It is far cheaper than a Sync, above all of many files: begin all, then wait for each.
type WriteBacker interface {
	BeginWriteBack() error
	// WriteBack waits until the disk has taken everything written before. An error is one
	// that a Sync would have given, and as with a Sync is given once.
	WriteBack() error
}

// FDHolder is a File behind which stands a descriptor of the operating system.
// WithFD keeps the descriptor open while f runs (a bounded descriptor cache may
// close it at any other time). Simulated files have none.
type FDHolder interface {
	WithFD(f func(fd uintptr) error) error
}

// DirSyncer is the Syncer of a directory's names.
func DirSyncer(fs FS, dir string) Syncer { return dirSyncer{fs, dir} }

type dirSyncer struct {
	fs  FS
	dir string
}

func (d dirSyncer) Sync() error { return d.fs.SyncDir(d.dir) }

// BeginSync lets a simulated file system take part in DirSyncer too.
func (d dirSyncer) BeginSync() func() error {
	if b, ok := d.fs.(interface{ BeginSyncDir(string) func() error }); ok {
		return b.BeginSyncDir(d.dir)
	}
	return d.Sync
}
