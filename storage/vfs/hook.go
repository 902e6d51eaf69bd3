package vfs

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// OpKind is an operation of FS or File.
type OpKind int

const (
	OpOpen OpKind = iota
	OpRemove
	OpRemoveAll
	OpRename
	OpMkdirAll
	OpList
	OpStat
	OpSyncDir    // or its BeginSyncDir
	OpSyncDirEnd // the finish of a BeginSyncDir
	OpLock
	OpRead
	OpWrite
	OpTruncate
	OpSize
	OpPreallocate
	OpSync    // or its BeginSync
	OpSyncEnd // the finish of a BeginSync
	OpClose
)

var opNames = [...]string{"open", "remove", "remove-all", "rename", "mkdir-all", "list", "stat", "sync-dir", "sync-dir-end", "lock", "read", "write", "truncate", "size", "preallocate", "sync", "sync-end", "close"}

func (k OpKind) String() string { return opNames[k] }

// Op is one operation, about to happen.
type Op struct {
	N       int64 // 1, 2, 3, … over all operations of this hooked file system
	Kind    OpKind
	Name    string
	NewName string // of a rename
	Mode    Mode   // of an open
	Off     int64  // of read and write; size of a truncate
	Len     int    // of read and write, bytes
}

func (op Op) String() string {
	switch op.Kind {
	case OpRead, OpWrite:
		return fmt.Sprintf("#%d %s %s at %d, %d bytes", op.N, op.Kind, op.Name, op.Off, op.Len)
	case OpTruncate:
		return fmt.Sprintf("#%d %s %s to %d", op.N, op.Kind, op.Name, op.Off)
	case OpRename:
		return fmt.Sprintf("#%d %s %s to %s", op.N, op.Kind, op.Name, op.NewName)
	}
	return fmt.Sprintf("#%d %s %s", op.N, op.Kind, op.Name)
}

// Hook is called before each operation. An error becomes the operation's answer
// and the operation does not happen, but for Partial. A hook may also panic: the
// simulator's crash mark.
type Hook func(Op) error

// Partial is the answer of a Hook to a write: Bytes of it happen and then it fails with Err.
type Partial struct {
	Bytes int
	Err   error
	// Then, unless nil, runs between the two; it may panic with a crash mark.
	Then func()
}

func (p *Partial) Error() string { return fmt.Sprintf("after %d bytes: %v", p.Bytes, p.Err) }
func (p *Partial) Unwrap() error { return p.Err }

// WithHook puts hook before every operation of fs and of the files it opens.
func WithHook(fs FS, hook Hook) FS { return &hookFS{fs: fs, hook: hook} }

type hookFS struct {
	fs   FS
	hook Hook
	n    atomic.Int64
}

func (h *hookFS) before(op Op) error {
	op.N = h.n.Add(1)
	return h.hook(op)
}

// Unwrap is the file system underneath.
func (h *hookFS) Unwrap() FS { return h.fs }

func (h *hookFS) Open(name string, mode Mode) (File, error) {
	if err := h.before(Op{Kind: OpOpen, Name: name, Mode: mode}); err != nil {
		return nil, err
	}
	f, err := h.fs.Open(name, mode)
	if err != nil {
		return nil, err
	}
	hf := &hookFile{File: f, h: h}
	if fd, ok := f.(FDHolder); ok {
		return &hookFDFile{hf, fd}, nil
	}
	return hf, nil
}

func (h *hookFS) Remove(name string) error {
	if err := h.before(Op{Kind: OpRemove, Name: name}); err != nil {
		return err
	}
	return h.fs.Remove(name)
}

func (h *hookFS) RemoveAll(name string) error {
	if err := h.before(Op{Kind: OpRemoveAll, Name: name}); err != nil {
		return err
	}
	return h.fs.RemoveAll(name)
}

func (h *hookFS) Rename(oldName, newName string) error {
	if err := h.before(Op{Kind: OpRename, Name: oldName, NewName: newName}); err != nil {
		return err
	}
	return h.fs.Rename(oldName, newName)
}

func (h *hookFS) MkdirAll(name string) error {
	if err := h.before(Op{Kind: OpMkdirAll, Name: name}); err != nil {
		return err
	}
	return h.fs.MkdirAll(name)
}

func (h *hookFS) List(dir string) ([]string, error) {
	if err := h.before(Op{Kind: OpList, Name: dir}); err != nil {
		return nil, err
	}
	return h.fs.List(dir)
}

func (h *hookFS) Stat(name string) (Info, error) {
	if err := h.before(Op{Kind: OpStat, Name: name}); err != nil {
		return Info{}, err
	}
	return h.fs.Stat(name)
}

func (h *hookFS) SyncDir(dir string) error {
	if err := h.before(Op{Kind: OpSyncDir, Name: dir}); err != nil {
		return err
	}
	return h.fs.SyncDir(dir)
}

// BeginSyncDir serves DirSyncer; without one underneath, all happens in finish.
func (h *hookFS) BeginSyncDir(dir string) (finish func() error) {
	return h.beginSync(OpSyncDir, OpSyncDirEnd, dir, DirSyncer(h.fs, dir))
}

func (h *hookFS) beginSync(begin, end OpKind, name string, s Syncer) (finish func() error) {
	if err := h.before(Op{Kind: begin, Name: name}); err != nil {
		failSync(s, err)
		return func() error { return err }
	}
	inner := s.Sync
	if b, ok := s.(BeginSyncer); ok {
		inner = b.BeginSync()
	}
	return func() error {
		if err := h.before(Op{Kind: end, Name: name}); err != nil {
			failSync(s, err)
			return err
		}
		return inner()
	}
}

func (h *hookFS) Lock(name string) (io.Closer, error) {
	if err := h.before(Op{Kind: OpLock, Name: name}); err != nil {
		return nil, err
	}
	return h.fs.Lock(name)
}

type hookFile struct {
	File
	h *hookFS
}

func (f *hookFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.h.before(Op{Kind: OpRead, Name: f.Name(), Off: off, Len: len(b)}); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, off)
}

func (f *hookFile) WriteAt(b []byte, off int64) (int, error) {
	err := f.h.before(Op{Kind: OpWrite, Name: f.Name(), Off: off, Len: len(b)})
	if err == nil {
		return f.File.WriteAt(b, off)
	}
	p, ok := errors.AsType[*Partial](err)
	if !ok {
		return 0, err
	}
	n, writeErr := f.File.WriteAt(b[:min(p.Bytes, len(b))], off)
	if p.Then != nil {
		p.Then()
	}
	return n, errors.Join(err, writeErr)
}

func (f *hookFile) Truncate(size int64) error {
	if err := f.h.before(Op{Kind: OpTruncate, Name: f.Name(), Off: size}); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *hookFile) Size() (int64, error) {
	if err := f.h.before(Op{Kind: OpSize, Name: f.Name()}); err != nil {
		return 0, err
	}
	return f.File.Size()
}

func (f *hookFile) Preallocate(offset, n int64) error {
	if err := f.h.before(Op{Kind: OpPreallocate, Name: f.Name(), Off: offset}); err != nil {
		return err
	}
	return f.File.Preallocate(offset, n)
}

func (f *hookFile) Sync() error {
	if err := f.h.before(Op{Kind: OpSync, Name: f.Name()}); err != nil {
		failSync(f.File, err)
		return err
	}
	return f.File.Sync()
}

func (f *hookFile) BeginSync() (finish func() error) {
	return f.h.beginSync(OpSync, OpSyncEnd, f.Name(), f.File)
}

func (f *hookFile) Close() error {
	if err := f.h.before(Op{Kind: OpClose, Name: f.Name()}); err != nil {
		_ = f.File.Close() // as on Linux, where a failed close closes all the same
		return err
	}
	return f.File.Close()
}

// hookFDFile is a hookFile over a descriptor. What goes through the descriptor is not hooked.
type hookFDFile struct {
	*hookFile
	FDHolder
}

// RealPath is the operating system's path for name, when fs is a Real or wraps one.
func RealPath(fs FS, name string) (path string, ok bool) {
	for {
		switch f := fs.(type) {
		case interface{ RealPath(string) string }:
			return f.RealPath(name), true
		case interface{ Unwrap() FS }:
			fs = f.Unwrap()
		default:
			return "", false
		}
	}
}
