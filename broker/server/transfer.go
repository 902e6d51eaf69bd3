package server

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tidemark-log/tidemark/storage"
	"github.com/tidemark-log/tidemark/storage/vfs"
	"github.com/tidemark-log/tidemark/storage/vfs/syscount"
)

// A transfer moves a region of a file to a socket, after head, which is what
// remains of the response before it. It is the switch lab.fetch.transfer:
//
//	sendfile  page cache → socket, in the kernel: no copy by the CPU to or from user space
//	copy      page cache → our buffer → socket: two copies, two system calls a chunk
//	mmap      page cache, mapped → socket: one copy, and the cost of mapping
type transfer func(s *socket, head []byte, r *storage.Region) error

func transferFor(t storage.Transfer) (transfer, error) {
	switch t {
	case storage.TransferSendfile, "":
		return sendfileRegion, nil
	case storage.TransferCopy:
		return copyRegion, nil
	case storage.TransferMmap:
		return mmapRegion, nil
	}
	return nil, fmt.Errorf("lab.fetch.transfer=%s: not one of sendfile, copy, mmap", t)
}

func sendfileRegion(s *socket, head []byte, r *storage.Region) error {
	file, ok := r.File.(vfs.FDHolder)
	if !ok { // a file that is no descriptor's: an error wrapper, a simulated disk in a test
		return copyRegion(s, head, r)
	}
	if err := s.write(head, nil, true); err != nil {
		return err
	}
	if err := s.sendfile(file, r.Pos, r.Len); err != nil {
		return fmt.Errorf("sendfile of %s at %d: %w", r.File.Name(), r.Pos, err)
	}
	return nil
}

// copyChunkBytes is how much copyRegion moves at a time: small enough to stay in
// the processor's second-level cache between the two copies, large enough to
// make system calls few.
const copyChunkBytes = 128 << 10

var copyBuffers = sync.Pool{New: func() any { b := make([]byte, copyChunkBytes); return &b }}

func copyRegion(s *socket, head []byte, r *storage.Region) error {
	if len(head) > copyChunkBytes/2 {
		if err := s.write(head, nil, true); err != nil {
			return err
		}
		head = nil
	}
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	have := copy(*buf, head) // the head leaves with the first chunk
	for pos, left := r.Pos, r.Len; left > 0; have = 0 {
		n := min(left, len(*buf)-have)
		if err := readFull(r.File, (*buf)[have:have+n], pos); err != nil {
			return fmt.Errorf("read of %s at %d: %w", r.File.Name(), pos, err)
		}
		if err := s.write((*buf)[:have+n], nil, false); err != nil {
			return err
		}
		pos += int64(n)
		left -= n
	}
	return nil
}

func readFull(f io.ReaderAt, p []byte, pos int64) error {
	n, err := f.ReadAt(p, pos)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// mmapChunkBytes bounds one mapping.
const mmapChunkBytes = 4 << 20

// mmapRegion maps, writes and unmaps. Only the kernel touches the mapping, so a
// file that is shorter than it should be is an EFAULT and not a SIGBUS.
func mmapRegion(s *socket, head []byte, r *storage.Region) error {
	file, ok := r.File.(vfs.FDHolder)
	if !ok {
		return copyRegion(s, head, r)
	}
	page := int64(os.Getpagesize())
	for pos, left := r.Pos, r.Len; left > 0; {
		n := min(left, mmapChunkBytes)
		skip := int(pos % page)
		var mapping []byte
		err := file.WithFD(func(fd uintptr) (err error) {
			s.counters.Call(syscount.Mmap, 1)
			mapping, err = unix.Mmap(int(fd), pos-int64(skip), skip+n, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
			return err
		})
		if err != nil {
			return fmt.Errorf("mmap of %s at %d: %w", r.File.Name(), pos, err)
		}
		err = s.write(head, mapping[skip:], false)
		s.counters.Call(syscount.Munmap, 1)
		if e := unix.Munmap(mapping); err == nil {
			err = e
		}
		if err != nil {
			return err
		}
		head, pos, left = nil, pos+int64(n), left-n
	}
	return nil
}
