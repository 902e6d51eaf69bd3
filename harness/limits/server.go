// Package limits measures what the machine itself can do, in the shapes that a
// broker's work has, so that a broker's number can be given as a share of it.
//
// The bare loops serve in a process of their own, as the broker does, written in
// the same language on the same runtime; they do the system calls the job
// cannot do without and nothing else. The client is the load driver itself.
package limits

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tidemark-log/tidemark/harness/load"
)

// Mode is what a bare server does with a request.
type Mode string

const (
	ModeDiscard  Mode = "discard"  // receive it, answer: loopback TCP and nothing else
	ModeWrite    Mode = "write"    // receive it, pwrite it behind the last one, answer
	ModeSendfile Mode = "sendfile" // answer with a chunk of the file, by sendfile
	ModeCopy     Mode = "copy"     // the same by pread and write, 128 KiB at a time
	ModeMemory   Mode = "memory"   // the same by write from a mapping that is all in memory
	ModeSink     Mode = "sink"     // be a Kafka broker that forgets what is produced
)

// HiddenCommand is the command of the tidemark binary that runs Serve.
const HiddenCommand = "limits-server"

// ServerConfig is what a bare server is told.
type ServerConfig struct {
	Mode Mode
	File string // for write and sendfile
	// SegmentBytes, for write, makes a row of files of that size below the directory File, each synced
	// when the next is begun, instead of one file: what a broker does in the disk regime.
	SegmentBytes int64
	// FileBytes is preallocated for write; writing starts again at 0 behind it.
	FileBytes int64
	// FrameMax bounds one request, in bytes.
	FrameMax int
	// Overwrite keeps the file's pages in place (written before the loop starts) instead of
	// writing a new file: no page is allocated during the loop.
	Overwrite bool
	// SyncBytes makes fdatasync part of the loop, after so many bytes; 0: never.
	SyncBytes int64
}

// readyPrefix begins the line that says where the server listens.
const readyPrefix = "ready "

// Serve listens on loopback, says so on out, and serves until ctx ends.
func Serve(ctx context.Context, c ServerConfig, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	serve, cleanup, err := c.handler(l.Addr().(*net.TCPAddr))
	if err != nil {
		return err
	}
	defer cleanup()
	var conns sync.WaitGroup
	defer conns.Wait()
	fmt.Fprintf(out, "%s%s\n", readyPrefix, l.Addr())
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		} else if err != nil {
			return fmt.Errorf("limits: accept: %w", err)
		}
		conns.Go(func() {
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			if err := serve(conn.(*net.TCPConn)); err != nil && ctx.Err() == nil && !isHangUp(err) {
				fmt.Fprintln(os.Stderr, "limits:", err)
			}
		})
	}
}

// isHangUp is true when the client has gone, which is how every measurement ends.
func isHangUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

func (c ServerConfig) handler(addr *net.TCPAddr) (serve func(*net.TCPConn) error, cleanup func(), err error) {
	switch c.Mode {
	case ModeDiscard:
		return c.discard, func() {}, nil
	case ModeSink:
		s := newSink(addr)
		return s.serve, func() {}, nil
	case ModeSendfile, ModeCopy, ModeMemory:
		return c.chunkHandler()
	case ModeWrite:
		if c.SegmentBytes > 0 {
			return c.writeSegments, func() {}, nil
		}
		f, err := c.openForWrite()
		if err != nil {
			return nil, nil, err
		}
		return func(conn *net.TCPConn) error { return c.write(conn, f) }, func() { f.Close() }, nil
	}
	return nil, nil, fmt.Errorf("limits: unknown mode %q", c.Mode)
}

func (c ServerConfig) openForWrite() (*os.File, error) {
	f, err := os.OpenFile(c.File, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	// KEEP_SIZE, as the broker preallocates its segments.
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, c.FileBytes); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		f.Close()
		return nil, fmt.Errorf("limits: preallocate %s: %w", c.File, err)
	}
	if c.Overwrite {
		zeros := make([]byte, 1<<20)
		for off := int64(0); off < c.FileBytes; off += int64(len(zeros)) {
			if _, err := f.WriteAt(zeros, off); err != nil {
				f.Close()
				return nil, fmt.Errorf("limits: %w", err)
			}
		}
	}
	return f, nil
}

// answerBytes is the length of a bare answer's frame: length 4, correlation 4, and as much as a produce answer has.
const answerBytes = 4 + 60

func answerTo(answer, request []byte) {
	binary.BigEndian.PutUint32(answer, uint32(len(answer)-4))
	copy(answer[4:], request[4:8])
}

func (c ServerConfig) discard(conn *net.TCPConn) error {
	frames, answer := load.NewFrames(conn, c.FrameMax), make([]byte, answerBytes)
	for {
		req, err := frames.Next()
		if err != nil {
			return err
		}
		answerTo(answer, req)
		if _, err := conn.Write(answer); err != nil {
			return err
		}
	}
}

func (c ServerConfig) write(conn *net.TCPConn, f *os.File) error {
	frames, answer := load.NewFrames(conn, c.FrameMax), make([]byte, answerBytes)
	fd := int(f.Fd())
	var at, unsynced int64
	for {
		req, err := frames.Next()
		if err != nil {
			return err
		}
		if at+int64(len(req)) > c.FileBytes {
			at = 0
		}
		for b := req; len(b) > 0; {
			n, err := unix.Pwrite(fd, b, at)
			if err != nil && err != unix.EINTR {
				return fmt.Errorf("pwrite %s: %w", f.Name(), err)
			}
			b, at = b[max(n, 0):], at+int64(max(n, 0))
		}
		if unsynced += int64(len(req)); c.SyncBytes > 0 && unsynced >= c.SyncBytes {
			unsynced = 0
			if err := unix.Fdatasync(fd); err != nil {
				return fmt.Errorf("fdatasync %s: %w", f.Name(), err)
			}
		}
		answerTo(answer, req)
		if _, err := conn.Write(answer); err != nil {
			return err
		}
	}
}

// writeSegments writes what a connection sends into a row of files of its own.
func (c ServerConfig) writeSegments(conn *net.TCPConn) error {
	dir, err := os.MkdirTemp(c.File, "segments-")
	if err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	w := newSegments(dir, c.SegmentBytes)
	defer w.close()
	frames, answer := load.NewFrames(conn, c.FrameMax), make([]byte, answerBytes)
	for {
		req, err := frames.Next()
		if err != nil {
			return err
		}
		if err := w.write(req); err != nil {
			return err
		}
		answerTo(answer, req)
		if _, err := conn.Write(answer); err != nil {
			return err
		}
	}
}
