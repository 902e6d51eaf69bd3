//go:build linux

package vfs

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/tidemark-log/tidemark/storage/vfs/syscount"
)

// Real is the file system of the operating system. It makes system calls
// directly, one per operation where one is enough, and counts each attempt:
// os.File would add polls and read loops that no experiment could account for.
//
// A relative name lies under the root; an absolute one is used as it is, so that
// log.dirs may name any place.
type Real struct {
	root  string
	count *syscount.Counters
}

var _ FS = (*Real)(nil)

// NewReal gives the file system under root ("" is the working directory). Calls
// are counted in c, which may be nil.
func NewReal(root string, c *syscount.Counters) *Real { return &Real{root: root, count: c} }

// RealPath is the operating system's path for name, for engines that open files by themselves.
func (r *Real) RealPath(name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(r.root, name)
}

// Open opens name; see FS.
func (r *Real) Open(name string, mode Mode) (File, error) {
	flags := unix.O_RDONLY | unix.O_CLOEXEC
	if mode&(ReadWrite|Create) != 0 {
		flags = unix.O_RDWR | unix.O_CLOEXEC
	}
	if mode&Create != 0 {
		flags |= unix.O_CREAT
	}
	if mode&Exclusive != 0 {
		flags |= unix.O_EXCL
	}
	if mode&Truncate != 0 {
		flags |= unix.O_TRUNC
	}
	if mode&Direct != 0 {
		flags |= unix.O_DIRECT
	}
	fd, err := r.open(name, flags)
	if err != nil {
		if mode&Direct != 0 && errors.Is(err, unix.EINVAL) {
			return nil, fmt.Errorf("%w: O_DIRECT: %w", ErrUnsupported, err)
		}
		return nil, err
	}
	return &realFile{fd: fd, name: name, count: r.count, direct: mode&Direct != 0}, nil
}

func (r *Real) open(name string, flags int) (int, error) {
	for {
		r.count.Call(syscount.Open, 1)
		fd, err := unix.Open(r.RealPath(name), flags, 0o644)
		if err == unix.EINTR {
			continue
		}
		return fd, pathError("open", name, err)
	}
}

// Remove removes a file or an empty directory.
func (r *Real) Remove(name string) error {
	path := r.RealPath(name)
	r.count.Call(syscount.Unlink, 1)
	err := unix.Unlink(path)
	if err == unix.EISDIR || err == unix.EPERM { // a directory: Linux says EISDIR, POSIX EPERM
		err = unix.Rmdir(path)
	}
	return pathError("remove", name, err)
}

// RemoveAll removes name and what it holds. A missing name is no error.
func (r *Real) RemoveAll(name string) error {
	err := r.Remove(name)
	if err == nil || errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
		return err
	}
	names, err := r.List(name)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := r.RemoveAll(filepath.Join(name, n)); err != nil {
			return err
		}
	}
	return r.Remove(name)
}

// Rename renames atomically; see FS.
func (r *Real) Rename(oldName, newName string) error {
	r.count.Call(syscount.Rename, 1)
	return pathError("rename", oldName+" to "+newName, unix.Rename(r.RealPath(oldName), r.RealPath(newName)))
}

// MkdirAll makes name and its missing parents.
func (r *Real) MkdirAll(name string) error { return os.MkdirAll(r.RealPath(name), 0o755) }

// List gives the names in dir, ascending.
func (r *Real) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(r.RealPath(dir))
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// Stat describes name.
func (r *Real) Stat(name string) (Info, error) {
	fi, err := os.Stat(r.RealPath(name))
	if err != nil {
		return Info{}, err
	}
	return Info{Size: fi.Size(), Dir: fi.IsDir(), ModTime: fi.ModTime()}, nil
}

// SyncDir makes the names in dir durable: an fsync of the directory.
func (r *Real) SyncDir(dir string) error {
	fd, err := r.open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err != nil {
		return err
	}
	r.count.Call(syscount.Fsync, 1)
	err = retryEINTR(func() error { return unix.Fsync(fd) })
	r.count.Call(syscount.Close, 1)
	return errors.Join(pathError("fsync", dir, err), pathError("close", dir, unix.Close(fd)))
}

// Lock takes an flock of name and writes this process's id into it, so that the
// next one to try can say who holds it. The kernel drops the lock when the
// process dies, however it dies.
func (r *Real) Lock(name string) (io.Closer, error) {
	fd, err := r.open(name, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := &realFile{fd: fd, name: name, count: r.count}
	err = retryEINTR(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	if err == unix.EWOULDBLOCK {
		err = fmt.Errorf("%s: %w%s", r.RealPath(name), ErrLocked, holder(f))
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = fmt.Fprintf(io.NewOffsetWriter(f, 0), "%d\n", os.Getpid())
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// holder reads the process id that the holder of a lock wrote; "" when there is none.
func holder(f File) string {
	var b [20]byte
	n, _ := f.ReadAt(b[:], 0)
	pid := strings.TrimSpace(string(b[:n]))
	if pid == "" {
		return ""
	}
	return " (pid " + pid + ")"
}

// realFile is a descriptor. Its low bit of state says closed, the rest counts
// calls under way in steps of two: Close never takes a descriptor away from a
// call (its number might by then name another file); the last call closes it.
type realFile struct {
	fd     int
	name   string
	count  *syscount.Counters
	direct bool // the device moves the bytes, so they are not copied between kernel and user
	state  atomic.Int64
}

var (
	_ File        = (*realFile)(nil)
	_ FDHolder    = (*realFile)(nil)
	_ WriteBacker = (*realFile)(nil)
)

const (
	closedBit = 1
	oneUser   = 2
)

func (f *realFile) acquire(op string) error {
	for {
		s := f.state.Load()
		if s&closedBit != 0 {
			return pathError(op, f.name, iofs.ErrClosed)
		}
		if f.state.CompareAndSwap(s, s+oneUser) {
			return nil
		}
	}
}

func (f *realFile) release() {
	if f.state.Add(-oneUser) == closedBit {
		_ = f.closeFD() // Close has returned already: nobody is left to hear of it
	}
}

func (f *realFile) closeFD() error {
	f.count.Call(syscount.Close, 1)
	// No retry on EINTR: Linux has closed the descriptor by then.
	return pathError("close", f.name, unix.Close(f.fd))
}

// Close closes the file, at the end of the last call under way.
func (f *realFile) Close() error {
	switch old := f.state.Or(closedBit); {
	case old&closedBit != 0:
		return pathError("close", f.name, iofs.ErrClosed)
	case old == 0:
		return f.closeFD()
	}
	return nil
}

func (f *realFile) Name() string { return f.name }

// ReadAt reads len(b) bytes at off, or up to the end of the file and io.EOF.
func (f *realFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.acquire("read"); err != nil {
		return 0, err
	}
	defer f.release()
	total := 0
	for total < len(b) {
		f.count.Call(syscount.Pread, 1)
		n, err := unix.Pread(f.fd, b[total:], off+int64(total))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return total, pathError("read", f.name, err)
		}
		if n == 0 {
			return total, io.EOF
		}
		if !f.direct {
			f.count.ToUser(int64(n))
		}
		total += n
	}
	return total, nil
}

// WriteAt writes all of b at off, or says how much it wrote and why not the rest.
func (f *realFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.acquire("write"); err != nil {
		return 0, err
	}
	defer f.release()
	total := 0
	for total < len(b) {
		f.count.Call(syscount.Pwrite, 1)
		n, err := unix.Pwrite(f.fd, b[total:], off+int64(total))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return total, pathError("write", f.name, err)
		}
		if n == 0 {
			return total, pathError("write", f.name, io.ErrShortWrite)
		}
		if !f.direct {
			f.count.ToKernel(int64(n))
		}
		total += n
	}
	return total, nil
}

// Sync is fdatasync. It writes out the data and every piece of metadata that
// reading the data back needs: the size, and the state of preallocated extents.
// What it leaves out, compared with fsync, is the modification time, so that an
// append inside preallocated space costs no journal commit.
func (f *realFile) Sync() error {
	if err := f.acquire("fdatasync"); err != nil {
		return err
	}
	defer f.release()
	f.count.Call(syscount.Fdatasync, 1)
	return pathError("fdatasync", f.name, retryEINTR(func() error { return unix.Fdatasync(f.fd) }))
}

// BeginWriteBack has the kernel begin to write all dirty pages out.
func (f *realFile) BeginWriteBack() error {
	err := f.writeBack(unix.SYNC_FILE_RANGE_WRITE)
	if errors.Is(err, ErrUnsupported) {
		return nil
	}
	return err
}

// WriteBack waits for all dirty pages to be written out, those included that the kernel began with by itself.
// Like fdatasync it reports what has failed since this descriptor was opened, or was told last.
func (f *realFile) WriteBack() error {
	err := f.writeBack(unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER)
	if errors.Is(err, ErrUnsupported) {
		return f.Sync()
	}
	return err
}

// writesBack names the file systems of which sync_file_range is known to write a file's own pages, and to end
// when the file system is done with them. A file of an overlay has none: they are the file's below, and the call
// succeeds without a look at those. btrfs goes on with what it wrote after the pages are clean,
// NFS keeps what the server may lose, and ZFS does nothing at all.
var writesBack = map[int64]bool{unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.TMPFS_MAGIC: true}

func (f *realFile) writeBack(flags int) error {
	if err := f.acquire("sync_file_range"); err != nil {
		return err
	}
	defer f.release()
	var st unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Fstatfs(f.fd, &st) }); err != nil {
		return pathError("fstatfs", f.name, err)
	}
	if !writesBack[int64(st.Type)] {
		return fmt.Errorf("%w: sync_file_range %s", ErrUnsupported, f.name)
	}
	f.count.Call(syscount.SyncFileRange, 1)
	err := retryEINTR(func() error { return unix.SyncFileRange(f.fd, 0, 0, flags) })
	if err == unix.ENOSYS || err == unix.EINVAL || err == unix.EOPNOTSUPP {
		return fmt.Errorf("%w: sync_file_range %s: %w", ErrUnsupported, f.name, err)
	}
	return pathError("sync_file_range", f.name, err)
}

// Truncate sets the size in bytes.
func (f *realFile) Truncate(size int64) error {
	if err := f.acquire("truncate"); err != nil {
		return err
	}
	defer f.release()
	f.count.Call(syscount.Ftruncate, 1)
	return pathError("truncate", f.name, retryEINTR(func() error { return unix.Ftruncate(f.fd, size) }))
}

// Size is the file's length in bytes.
func (f *realFile) Size() (int64, error) {
	if err := f.acquire("stat"); err != nil {
		return 0, err
	}
	defer f.release()
	var st unix.Stat_t
	if err := retryEINTR(func() error { return unix.Fstat(f.fd, &st) }); err != nil {
		return 0, pathError("stat", f.name, err)
	}
	return st.Size, nil
}

// Preallocate reserves blocks; the size stays (FALLOC_FL_KEEP_SIZE), so that a
// reader never sees the zeros as part of the log.
func (f *realFile) Preallocate(offset, n int64) error {
	if err := f.acquire("fallocate"); err != nil {
		return err
	}
	defer f.release()
	f.count.Call(syscount.Fallocate, 1)
	err := retryEINTR(func() error { return unix.Fallocate(f.fd, unix.FALLOC_FL_KEEP_SIZE, offset, n) })
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return fmt.Errorf("%w: fallocate %s: %w", ErrUnsupported, f.name, err)
	}
	return pathError("fallocate", f.name, err)
}

// WithFD runs fn with the descriptor, which stays open meanwhile even if Close is called.
func (f *realFile) WithFD(fn func(fd uintptr) error) error {
	if err := f.acquire("use"); err != nil {
		return err
	}
	defer f.release()
	return fn(uintptr(f.fd))
}

func retryEINTR(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

// pathError adds what was done to which file, and makes a full disk and a spent
// quota match ErrNoSpace, and a lack of descriptors ErrTooManyOpen. A nil err gives nil.
func pathError(op, name string, err error) error {
	switch err {
	case nil:
		return nil
	case unix.ENOSPC, unix.EDQUOT:
		err = fmt.Errorf("%w (%w)", ErrNoSpace, err)
	case unix.EMFILE, unix.ENFILE:
		err = fmt.Errorf("%w (%w)", ErrTooManyOpen, err)
	}
	return &iofs.PathError{Op: op, Path: name, Err: err}
}
