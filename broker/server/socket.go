package server

import (
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tidemark-log/tidemark/storage/vfs"
	"github.com/tidemark-log/tidemark/storage/vfs/syscount"
)

// socket moves bytes over a TCP connection with the system calls of our choice,
// each attempt counted. An attempt that ends in EAGAIN parks the goroutine on
// the runtime's poller, as net.Conn's own methods do.
//
// One goroutine reads and one writes at a time. The operands of the call in
// progress are fields, since a closure made for each call would be an
// allocation for each call.
type socket struct {
	conn     net.Conn
	raw      syscall.RawConn
	counters *syscount.Counters

	// Progress, for the sweeper: they only grow.
	bytesRead, bytesWritten atomic.Int64

	// holding: the reader waits for bytes with a large buffer in hand.
	holding atomic.Bool

	quiet bool // the kernel tells the poller of many bytes and no fewer; the reader's

	recv    *recvBuffer
	readErr error
	tryRead func(fd uintptr) bool

	out         [2][]byte // what remains to be written, in order
	file        vfs.FDHolder
	filePos     int64
	fileLeft    int
	more        bool
	writeErr    error
	tryWrite    func(fd uintptr) bool
	trySendfile func(fd uintptr) bool
	sendfileFD  func(fd uintptr) error
	socketFD    int
}

func newSocket(conn *net.TCPConn, counters *syscount.Counters) (*socket, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &socket{conn: conn, raw: raw, counters: counters}
	s.tryRead, s.tryWrite, s.trySendfile, s.sendfileFD = s.readOnce, s.writeOnce, s.sendfileOnce, s.sendfileFrom
	return s, nil
}

func (s *socket) close() {
	s.counters.Call(syscount.Close, 1)
	s.conn.Close()
}

// peerClosed says whether the end of the stream, or a reset, has arrived, perhaps behind bytes not read yet.
func (s *socket) peerClosed() (closed bool) {
	_ = s.raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(poll, 0)
		closed = err == nil && n > 0
	})
	return closed
}

// fill reads once into recv, waiting for bytes when there are none. At the end
// of the stream it gives io.EOF.
func (s *socket) fill(recv *recvBuffer) error {
	s.recv, s.readErr = recv, nil
	if err := s.raw.Read(s.tryRead); err != nil {
		return err
	}
	return s.readErr
}

func (s *socket) readOnce(fd uintptr) (done bool) {
	space, err := s.recv.space()
	if err != nil {
		s.readErr = err
		return true
	}
	for {
		n, err := unix.Read(int(fd), space)
		s.counters.Call(syscount.Read, 1)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN && s.quiet:
			if s.readErr = s.setQuiet(int(fd), false); s.readErr == nil {
				continue
			}
		case err == unix.EAGAIN:
			s.recv.park()
			s.holding.Store(s.recv.large != nil)
			return false
		case err != nil:
			s.readErr = err
		case n == 0:
			s.readErr = io.EOF
		default:
			s.recv.received(n)
			if s.holding.Load() {
				s.holding.Store(false)
			}
			s.bytesRead.Add(int64(n))
			s.counters.ToUser(int64(n))
			if n >= busyReadBytes {
				s.readErr = s.setQuiet(int(fd), true)
			}
		}
		return true
	}
}

// A reader that has bytes to work on comes back for more by itself. But the runtime's
// poller hears of every piece that arrives meanwhile: a thread is woken, looks for a
// goroutine that waits, and finds none, at a sixth of what a produce request of 64 KiB
// costs in all. So while the reader works on much, the kernel keeps quiet until half of what
// the receive buffer may hold is there. A higher mark would make the buffer grow, for good.
//
// It is told otherwise before the reader waits, who then looks once more: nobody spoke of
// what came in between. The end of the stream is told at any mark.
const busyReadBytes = 16 << 10 // below, three more system calls are not worth it

func (s *socket) setQuiet(fd int, quiet bool) error {
	if s.quiet == quiet {
		return nil
	}
	if !quiet {
		s.quiet = false
		return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, 1))
	}
	if buffer, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err == nil {
		s.quiet = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, buffer/2) == nil
	}
	return nil
}

// write writes all of a and then all of b (either may be empty). With more set
// the kernel holds a partial packet back for what the next call sends.
func (s *socket) write(a, b []byte, more bool) error {
	s.out[0], s.out[1], s.more, s.writeErr = a, b, more, nil
	err := s.raw.Write(s.tryWrite)
	s.out = [2][]byte{}
	if err == nil {
		err = s.writeErr
	}
	return err
}

func (s *socket) writeOnce(fd uintptr) (done bool) {
	for {
		if len(s.out[0]) == 0 {
			s.out[0], s.out[1] = s.out[1], nil
		}
		if len(s.out[0]) == 0 {
			return true
		}
		switch n, err := s.writeCall(int(fd)); {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return false
		case err != nil:
			s.writeErr = err
			return true
		default:
			s.bytesWritten.Add(int64(n))
			s.counters.ToKernel(int64(n))
			first := min(n, len(s.out[0]))
			s.out[0] = s.out[0][first:]
			s.out[1] = s.out[1][n-first:]
		}
	}
}

// writeCall makes the one system call that suits what is to be written.
func (s *socket) writeCall(fd int) (int, error) {
	switch {
	case len(s.out[1]) > 0:
		s.counters.Call(syscount.Writev, 1)
		return unix.Writev(fd, s.out[:])
	case s.more:
		s.counters.Call(syscount.Sendmsg, 1)
		return unix.SendmsgN(fd, s.out[0], nil, nil, unix.MSG_MORE|unix.MSG_NOSIGNAL)
	default:
		s.counters.Call(syscount.Write, 1)
		return unix.Write(fd, s.out[0])
	}
}

// sendfile moves n bytes at pos of file to the socket inside the kernel. The
// descriptor is held for each attempt only: a client that is slow to read must
// not keep descriptors from the cache.
func (s *socket) sendfile(file vfs.FDHolder, pos int64, n int) error {
	s.file, s.filePos, s.fileLeft, s.writeErr = file, pos, n, nil
	err := s.raw.Write(s.trySendfile)
	s.file = nil
	if err == nil {
		err = s.writeErr
	}
	return err
}

func (s *socket) sendfileOnce(fd uintptr) (done bool) {
	s.socketFD = int(fd)
	for s.fileLeft > 0 {
		switch err := s.file.WithFD(s.sendfileFD); {
		case err == unix.EAGAIN:
			return false
		case err != nil && err != unix.EINTR:
			s.writeErr = err
			return true
		}
	}
	return true
}

func (s *socket) sendfileFrom(fd uintptr) error {
	n, err := unix.Sendfile(s.socketFD, int(fd), &s.filePos, s.fileLeft)
	s.counters.Call(syscount.Sendfile, 1)
	if err != nil {
		return err
	}
	if n == 0 {
		return io.ErrUnexpectedEOF // the file is shorter than the region that pins it
	}
	s.fileLeft -= n
	s.bytesWritten.Add(int64(n))
	s.counters.InKernel(int64(n))
	return nil
}
