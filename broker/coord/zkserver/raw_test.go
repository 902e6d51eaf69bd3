package zkserver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// testServer is a server in memory whose time stands still until the test lets it tick.
type testServer struct {
	*Server
	t *testing.T
}

func listen(t *testing.T, cfg Config) *testServer {
	t.Helper()
	cfg.noTick = true
	if cfg.now == nil {
		cfg.now = func() time.Duration { return 0 }
	}
	s, err := Listen("127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &testServer{s, t}
}

func (s *testServer) ticks(n int) {
	for range n {
		s.call(s.core.tick)
	}
}

// rawConn speaks the protocol byte by byte.
type rawConn struct {
	t        *testing.T
	nc       net.Conn
	session  coord.SessionID
	password []byte
	timeout  int32
	xid      int32
}

const patience = 20 * time.Second // for answers that must come; no test waits for it to pass

func dial(t *testing.T, addr string) *rawConn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	return &rawConn{t: t, nc: nc}
}

func (r *rawConn) write(body []byte) {
	r.t.Helper()
	if _, err := r.nc.Write(append(appendInt32(nil, int32(len(body))), body...)); err != nil {
		r.t.Fatal(err)
	}
}

// frame reads a frame; io.EOF when the server has closed.
func (r *rawConn) frame() (*juteReader, error) {
	var head [4]byte
	if _, err := io.ReadFull(r.nc, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(r.nc, b)
	return &juteReader{b: b}, err
}

func connectFrame(zxid int64, timeout int32, session coord.SessionID, password []byte) []byte {
	b := appendInt64(appendInt32(nil, 0), zxid)
	return appendString(appendInt64(appendInt32(b, timeout), int64(session)), password)
}

// open connects with a new session, or back to an old one.
func (r *rawConn) open(timeout int32, session coord.SessionID, password []byte) *rawConn {
	r.t.Helper()
	r.write(connectFrame(0, timeout, session, password))
	f, err := r.frame()
	if err != nil {
		r.t.Fatal(err)
	}
	f.int32()
	r.timeout, r.session, r.password = f.int32(), coord.SessionID(f.int64()), bytes.Clone(f.bytes())
	return r
}

// send writes a request.
func (r *rawConn) send(op int32, body []byte) {
	r.t.Helper()
	r.xid++
	r.write(append(appendInt32(appendInt32(nil, r.xid), op), body...))
}

// sendTooMuch sends what the server need not read to its end: it may have closed by then.
func (r *rawConn) sendTooMuch(op int32, body []byte) {
	r.xid++
	f := append(appendInt32(appendInt32(nil, r.xid), op), body...)
	_, _ = r.nc.Write(append(appendInt32(nil, int32(len(f))), f...))
}

// receive reads a reply's header, or an event's.
func (r *rawConn) receive() (xid int32, zxid int64, code int32, body *juteReader) {
	r.t.Helper()
	f, err := r.frame()
	if err != nil {
		r.t.Fatal(err)
	}
	return f.int32(), f.int64(), f.int32(), f
}

// do sends a request and gives the code of its reply, which must be the next frame.
func (r *rawConn) do(op int32, body []byte) (code int32, _ *juteReader) {
	r.t.Helper()
	r.send(op, body)
	xid, _, code, b := r.receive()
	if xid != r.xid {
		r.t.Fatalf("reply to %d, want %d", xid, r.xid)
	}
	return code, b
}

func (r *rawConn) wantEvent(kind coord.EventType, path string) {
	r.t.Helper()
	xid, zxid, code, b := r.receive()
	if gotKind, state, gotPath := coord.EventType(b.int32()), b.int32(), b.string(); xid != xidEvent || zxid != -1 || code != 0 || gotKind != kind || state != 3 || gotPath != path {
		r.t.Fatalf("event xid=%d %v %q state=%d, want %v %q", xid, gotKind, gotPath, state, kind, path)
	}
}

func (r *rawConn) wantClosed() {
	r.t.Helper()
	// With input unread the system resets the connection.
	if f, err := r.frame(); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		r.t.Fatalf("the connection is open: %v %v", f, err)
	}
}

func createBody(path, data string, flags int32) []byte {
	return appendInt32(appendWorldACL(appendString(appendString(nil, path), data)), flags)
}

func pathWatch(path string, watch bool) []byte { return appendBool(appendString(nil, path), watch) }

func pathVersion(path string, version int32) []byte {
	return appendInt32(appendString(nil, path), version)
}
