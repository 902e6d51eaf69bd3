package limits

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tidemark-log/tidemark/harness/load"
)

// copyChunkBytes is how much ModeCopy moves at a time, as the broker does.
const copyChunkBytes = 128 << 10

// sendChunk answers one request: head, then n bytes at pos of the file.
type sendChunk func(head []byte, pos int64, n int) error

// chunkHandler serves chunks of the file in the way of the mode.
func (c ServerConfig) chunkHandler() (serve func(*net.TCPConn) error, cleanup func(), err error) {
	f, err := os.Open(c.File)
	if err != nil {
		return nil, nil, fmt.Errorf("limits: %w", err)
	}
	cleanup = func() { f.Close() }
	newSender := func(conn *net.TCPConn) (sendChunk, error) { return sendfileSender(conn, int(f.Fd())) }
	switch c.Mode {
	case ModeCopy:
		newSender = func(conn *net.TCPConn) (sendChunk, error) { return copySender(conn, f), nil }
	case ModeMemory:
		st, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, nil, fmt.Errorf("limits: %w", err)
		}
		mapped, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
		if err != nil {
			f.Close()
			return nil, nil, fmt.Errorf("limits: map %s: %w", c.File, err)
		}
		cleanup = func() { unix.Munmap(mapped); f.Close() }
		newSender = func(conn *net.TCPConn) (sendChunk, error) { return memorySender(conn, mapped), nil }
	}
	return func(conn *net.TCPConn) error {
		send, err := newSender(conn)
		if err != nil {
			return err
		}
		return serveChunks(conn, send)
	}, cleanup, nil
}

func serveChunks(conn *net.TCPConn, send sendChunk) error {
	frames, head := load.NewFrames(conn, 4096), make([]byte, 8)
	for {
		req, err := frames.Next()
		if err != nil {
			return err
		}
		if len(req) != load.BareFetchBytes-4 {
			return fmt.Errorf("a chunk request of %d bytes", len(req))
		}
		pos, n := int64(binary.BigEndian.Uint64(req[4:])), int(binary.BigEndian.Uint32(req[12:]))
		binary.BigEndian.PutUint32(head, uint32(4+n))
		copy(head[4:], req[:4])
		if err := send(head, pos, n); err != nil {
			return err
		}
	}
}

func copySender(conn *net.TCPConn, f *os.File) sendChunk {
	buf := make([]byte, copyChunkBytes)
	return func(head []byte, pos int64, n int) error {
		at := copy(buf, head)
		for n > 0 {
			m, err := f.ReadAt(buf[at:min(len(buf), at+n)], pos)
			if m == 0 {
				return fmt.Errorf("read %s at %d: %w", f.Name(), pos, err)
			}
			if _, err := conn.Write(buf[:at+m]); err != nil {
				return err
			}
			pos, n, at = pos+int64(m), n-m, 0
		}
		return nil
	}
}

func memorySender(conn *net.TCPConn, mapped []byte) sendChunk {
	return func(head []byte, pos int64, n int) error {
		if pos < 0 || pos+int64(n) > int64(len(mapped)) {
			return io.ErrUnexpectedEOF
		}
		buffers := net.Buffers{head, mapped[pos : pos+int64(n)]}
		_, err := buffers.WriteTo(conn)
		return err
	}
}

// sendfileSender corks a small header to the data that sendfile then sends.
func sendfileSender(conn *net.TCPConn, file int) (sendChunk, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	return func(head []byte, pos int64, n int) error { return sendfileChunk(raw, head, file, pos, n) }, nil
}

func sendfileChunk(raw syscall.RawConn, head []byte, file int, pos int64, n int) error {
	var failed error
	err := raw.Write(func(fd uintptr) bool {
		for len(head) > 0 {
			m, err := unix.SendmsgN(int(fd), head, nil, nil, unix.MSG_MORE|unix.MSG_NOSIGNAL)
			if err == unix.EAGAIN {
				return false
			} else if err != nil && err != unix.EINTR {
				failed = err
				return true
			}
			head = head[max(m, 0):]
		}
		for n > 0 {
			m, err := unix.Sendfile(int(fd), file, &pos, n)
			switch {
			case err == unix.EAGAIN:
				return false
			case err == unix.EINTR:
			case err != nil:
				failed = err
				return true
			case m == 0:
				failed = io.ErrUnexpectedEOF
				return true
			}
			n -= max(m, 0)
		}
		return true
	})
	if err == nil {
		err = failed
	}
	return err
}
