package server

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/storage/vfs"
	"github.com/tidemark-log/tidemark/storage/vfs/syscount"
)

// fake is a Handler whose answers a test writes. It supports what kmsg knows,
// but ApiVersions to version 3 only.
type fake struct {
	handle func(broker.Request, broker.Reply)

	mu           sync.Mutex
	disconnected map[broker.ConnID]int
}

func (f *fake) Handle(r broker.Request, reply broker.Reply) { f.handle(r, reply) }

func (f *fake) Disconnected(id broker.ConnID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.disconnected == nil {
		f.disconnected = map[broker.ConnID]int{}
	}
	f.disconnected[id]++
}

func (f *fake) Supports(key, version int16) bool {
	if key == apiVersions {
		return version >= 0 && version <= 3
	}
	r := kmsg.RequestForKey(key)
	return r != nil && version >= 0 && version <= r.MaxVersion()
}

// echo answers at once with an empty response of the right kind.
func echo(r broker.Request, reply broker.Reply) {
	reply(broker.Answer{Body: r.Body.ResponseKind()})
}

// logs collects what the server logs.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type world struct {
	*Server
	addr     string
	counters *syscount.Counters
	logs     *logs
	handler  *fake
}

// start runs a server on a port of its own until the test ends.
func start(t testing.TB, o Options, handle func(broker.Request, broker.Reply)) *world {
	t.Helper()
	w := &world{counters: new(syscount.Counters), logs: new(logs), handler: &fake{handle: handle}}
	o.Counters = w.counters
	o.Log = slog.New(slog.NewTextHandler(w.logs, nil))
	s, err := New(w.handler, o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.Server, w.addr = s, l.Addr().String()
	s.Serve(l)
	t.Cleanup(func() {
		s.Close()
		if n := s.buffers.lent.Load(); n != 0 {
			t.Errorf("%d bytes of receive buffers were never given back", n)
		}
		w.handler.mu.Lock()
		defer w.handler.mu.Unlock()
		for id, n := range w.handler.disconnected {
			if n != 1 {
				t.Errorf("connection %d was reported disconnected %d times", id, n)
			}
		}
	})
	return w
}

// closeAfter lets the sweeper see time go by in steps of limit, until no more than
// left connections are open. A step too early is harmless: no limit is reached at the first look.
func (w *world) closeAfter(t *testing.T, limit time.Duration, left int) {
	t.Helper()
	now := time.Now()
	waitFor(t, "a connection to be closed", func() bool {
		w.sweep(now)
		now = now.Add(limit)
		return len(w.connections()) <= left
	})
	if n := len(w.connections()); n < left {
		t.Fatalf("%d connections are open, want %d", n, left)
	}
}

// bytesWritten is what all open connections have written.
func (w *world) bytesWritten() (n int64) {
	for _, c := range w.connections() {
		n += c.sock.bytesWritten.Load()
	}
	return n
}

// answerWaits says whether some connection has an answer that is not written.
func (w *world) answerWaits() bool {
	for _, c := range w.connections() {
		if c.pipe.state().waiting {
			return true
		}
	}
	return false
}

// dialSilent connects a client that will not read, with little room in the kernel for what it does not read.
func (w *world) dialSilent(t testing.TB) *client {
	c := w.dial(t)
	c.Conn.(*net.TCPConn).SetReadBuffer(32 << 10)
	return c
}

// client speaks frames.
type client struct {
	net.Conn
	t testing.TB
}

func (w *world) dial(t testing.TB) *client {
	t.Helper()
	nc, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(20 * time.Second)) // a hang fails, and says where
	return &client{nc, t}
}

func encode(req kmsg.Request, correlationID int32) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, correlationID)
}

func (c *client) send(req kmsg.Request, correlationID int32) {
	c.t.Helper()
	if _, err := c.Write(encode(req, correlationID)); err != nil {
		c.t.Fatal(err)
	}
}

// next reads one response frame without its length.
func (c *client) next() ([]byte, error) {
	var prefix [4]byte
	if _, err := io.ReadFull(c, prefix[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(prefix[:]))
	_, err := io.ReadFull(c, frame)
	return frame, err
}

func (c *client) receive() (correlationID int32, body []byte) {
	c.t.Helper()
	frame, err := c.next()
	if err != nil {
		c.t.Fatalf("reading an answer: %v", err)
	}
	return int32(binary.BigEndian.Uint32(frame)), frame[4:]
}

// mustBeClosed fails unless the server closes the connection without a further answer.
func (c *client) mustBeClosed() {
	c.t.Helper()
	n, err := io.Copy(io.Discard, c)
	if n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("the connection should have been closed: %d bytes came, then %v", n, err)
	}
}

// mustServe fails unless an ordinary exchange works.
func (c *client) mustServe() {
	c.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 4
	c.send(req, 77)
	if id, _ := c.receive(); id != 77 {
		c.t.Fatalf("correlation id %d, want 77", id)
	}
}

// osFile is a vfs.File with a descriptor.
type osFile struct {
	vfs.File
	f *os.File
}

func (f osFile) Name() string                            { return f.f.Name() }
func (f osFile) ReadAt(p []byte, off int64) (int, error) { return f.f.ReadAt(p, off) }
func (f osFile) WithFD(use func(uintptr) error) error    { return use(f.f.Fd()) }
