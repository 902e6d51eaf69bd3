package storage

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"unsafe"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// alignedFile lets a log write any number of bytes at its end, and read any
// range, through a file that was opened for direct I/O, which takes whole
// sectors of vfs.DirectAlign bytes only.
//
// An append rewrites the last partial sector, whose old bytes the file keeps in
// tail, and pads the new last one with zeros. So the file is up to a sector
// longer than its logical size until the next Sync, Truncate or Close cuts it:
//
//   - What a Sync has made durable has its exact size, so a segment below the
//     recovery point never shows padding.
//   - After a kill the padding of the last append is a tail of zeros, which
//     recovery cuts like any torn tail.
//   - A power cut in the middle of an append may tear the rewritten sector, but
//     its durable part is rewritten with the same bytes, so it stays whole.
type alignedFile struct {
	file vfs.File

	mu     sync.Mutex // guards the rest, and keeps Sync's cut apart from appends; not held during the sync itself
	size   int64      // logical
	padded bool       // the file is longer than size
	tail   []byte     // one sector: its first size%DirectAlign bytes are the file's last
}

// alignedWriteMax is how many bytes one write call takes: the bound of its bounce buffer.
const alignedWriteMax = 1 << 20

func newAlignedFile(f vfs.File) (*alignedFile, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	a := &alignedFile{file: f, size: size, tail: alignedBytes(vfs.DirectAlign)}
	return a, a.loadTail()
}

// loadTail reads the last partial sector, after size has changed to what is on disk.
func (a *alignedFile) loadTail() error {
	part := int(a.size % vfs.DirectAlign)
	if part == 0 {
		return nil
	}
	if n, err := a.file.ReadAt(a.tail, a.size-int64(part)); n < part {
		return shortRead(err)
	}
	return nil
}

// ReadAt reads straight into p where p, its length and off are aligned, as the
// cache's blocks are; otherwise through a bounce buffer.
func (a *alignedFile) ReadAt(p []byte, off int64) (int, error) {
	a.mu.Lock()
	size := a.size
	a.mu.Unlock()
	if off >= size || len(p) == 0 {
		return 0, io.EOF
	}
	want := int(min(int64(len(p)), size-off))
	if off%vfs.DirectAlign == 0 && len(p)%vfs.DirectAlign == 0 && uintptr(unsafe.Pointer(&p[0]))%vfs.DirectAlign == 0 {
		n, err := a.file.ReadAt(p, off)
		return a.readResult(min(n, want), want, len(p), err)
	}
	start := off - off%vfs.DirectAlign
	skip := int(off - start)
	span := int(roundUp(int64(skip+want), vfs.DirectAlign))
	bounce := newPooledBytes(span)
	defer bounce.unpin()
	n, err := a.file.ReadAt(bounce.data[:span], start)
	n = copy(p[:want], bounce.data[min(skip, n):n])
	return a.readResult(n, want, len(p), err)
}

func (a *alignedFile) readResult(n, want, asked int, err error) (int, error) {
	switch {
	case n < want:
		return n, shortRead(err)
	case want < asked:
		return n, io.EOF
	}
	return n, nil
}

// WriteAt appends: off must be the logical size. A log writes nowhere else.
func (a *alignedFile) WriteAt(p []byte, off int64) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if off != a.size {
		return 0, fmt.Errorf("a direct file is only appended to: write at byte %d of a file of %d bytes", off, a.size)
	}
	bounce := newPooledBytes(min(alignedWriteMax, int(roundUp(int64(len(p)), vfs.DirectAlign))+vfs.DirectAlign))
	defer bounce.unpin()
	done := 0
	for done < len(p) {
		part := int(a.size % vfs.DirectAlign)
		copy(bounce.data, a.tail[:part])
		n := copy(bounce.data[part:min(len(bounce.data), alignedWriteMax)], p[done:])
		end := part + n
		sectors := int(roundUp(int64(end), vfs.DirectAlign))
		clear(bounce.data[end:sectors])
		a.padded = true // also when the write fails half way
		if _, err := a.file.WriteAt(bounce.data[:sectors], a.size-int64(part)); err != nil {
			return done, err
		}
		copy(a.tail, bounce.data[sectors-vfs.DirectAlign:sectors])
		a.size += int64(n)
		a.padded = a.size%vfs.DirectAlign != 0
		done += n
	}
	return done, nil
}

// Truncate sets the logical size and the file's.
func (a *alignedFile) Truncate(size int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.file.Truncate(size); err != nil {
		return err
	}
	a.size, a.padded = size, false
	return a.loadTail()
}

// cut removes the padding behind the logical size.
func (a *alignedFile) cut() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.padded {
		return nil
	}
	if err := a.file.Truncate(a.size); err != nil {
		return err
	}
	a.padded = false
	return nil
}

// Sync cuts the padding and makes the rest durable. The cut goes to the size at
// that moment, under the lock: one that an earlier caller chose could cut off an
// append made since.
func (a *alignedFile) Sync() error {
	if err := a.cut(); err != nil {
		return err
	}
	return a.file.Sync()
}

func (a *alignedFile) Close() error {
	err := a.cut()
	if e := a.file.Close(); err == nil {
		err = e
	}
	return err
}

func (a *alignedFile) Size() (int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.size, nil
}

func (a *alignedFile) Preallocate(offset, n int64) error { return a.file.Preallocate(offset, n) }
func (a *alignedFile) Name() string                      { return a.file.Name() }

// CheckDirect says, before anything depends on it, whether the directory's file
// system can do what lab.cache=direct needs.
func (d *Dir) CheckDirect() error {
	const probe = ".direct-probe"
	f, err := d.fs.Open(d.file(probe), vfs.Create|vfs.Direct)
	if errors.Is(err, vfs.ErrUnsupported) {
		err = fmt.Errorf("log directory %s: lab.cache=direct needs O_DIRECT, which its file system has not: choose another directory in log.dirs, or set lab.cache=process or page", d.path)
	} else if err == nil {
		err = f.Close()
	}
	return errors.Join(err, removeIfThere(d.fs, d.file(probe)))
}
