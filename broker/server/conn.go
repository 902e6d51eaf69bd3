package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
)

// fetchCostMax caps what one fetch counts for against Options.InFlightBytesMax; the
// broker's own fetch.max.bytes is below it.
const fetchCostMax = 64 << 20

// At the bound of all request buffers: a stalled client's partial request is
// dropped after Options.StallMax, so a wait that is longer ends one way or the other.
const (
	bufferWaitMax = time.Minute
	bufferRetry   = 50 * time.Millisecond
)

// conn is one client connection: a goroutine that reads, decodes and handles,
// and a pipeline that writes.
type conn struct {
	server   *Server
	id       broker.ConnID
	sock     *socket
	pipe     *pipeline
	recv     recvBuffer
	produce  produceBuffer
	local    string // the address the client connected to
	remote   string
	clientID atomic.Pointer[string] // of the last request: most clients never change it

	out outBuffer // the writer's

	closeOnce sync.Once
	watch     watch // the sweeper's notes
}

func newConn(s *Server, id broker.ConnID, tcp *net.TCPConn) (*conn, error) {
	if n := s.options.SendBuffer; n > 0 {
		tcp.SetWriteBuffer(n) // a hint: the kernel caps it in silence
	}
	if n := s.options.ReceiveBuffer; n > 0 {
		tcp.SetReadBuffer(n)
	}
	sock, err := newSocket(tcp, s.counters)
	if err != nil {
		return nil, err
	}
	c := &conn{server: s, id: id, sock: sock, local: tcp.LocalAddr().String(), remote: tcp.RemoteAddr().String()}
	c.recv = newRecvBuffer(&s.buffers, s.options.RequestBytesMax)
	c.pipe = newPipeline(s.options.InFlightMax, s.options.InFlightBytesMax, c.writeBatch, c.end)
	return c, nil
}

// serve reads and handles requests until the connection ends.
func (c *conn) serve() {
	err := c.readLoop()
	if errors.Is(err, os.ErrDeadlineExceeded) && c.server.draining.Load() {
		c.pipe.waitEmpty() // what was accepted is answered before the end
	}
	c.end(err)
	c.recv.release()
	c.server.handler.Disconnected(c.id)
}

func (c *conn) readLoop() error {
	for {
		frame, err := c.recv.frame()
		if err != nil {
			return err
		}
		if frame == nil {
			if err := c.fill(); err != nil {
				return err
			}
			continue
		}
		if err := c.request(frame); err != nil {
			return err
		}
	}
}

// fill reads once. While the request buffers of all connections are at their
// bound, reading stops; a connection that has waited for bufferWaitMax is closed.
func (c *conn) fill() error {
	err := c.sock.fill(&c.recv)
	if !errors.Is(err, errBufferBudget) {
		return err
	}
	for deadline := time.Now().Add(bufferWaitMax); errors.Is(err, errBufferBudget); err = c.sock.fill(&c.recv) {
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("%w: queued.max.request.bytes=%d are in use", errBufferBudget, c.server.options.BufferBytesMax)
		}
		// A buffer that came back before wait began is seen at the latest after bufferRetry.
		c.server.buffers.wait(min(left, bufferRetry), c.server.stop)
	}
	return err
}

// request decodes one frame and hands it to the broker.
func (c *conn) request(frame []byte) error {
	h, rest, err := parseHeader(frame)
	if err != nil {
		return err
	}
	q := &pending{key: h.key, version: h.version, correlationID: h.correlationID, cost: int64(len(frame)), began: c.server.metrics.now()}
	if !c.server.handler.Supports(h.key, h.version) {
		return c.unsupported(h, q)
	}
	body, err := c.decode(h, rest)
	if err != nil {
		return err
	}
	q.flexible = body.IsFlexible()
	if fetch, ok := body.(*kmsg.FetchRequest); ok {
		q.cost += min(max(0, int64(fetch.MaxBytes)), fetchCostMax)
	}
	if !c.pipe.admit(q) {
		return net.ErrClosed
	}
	err = c.handle(broker.Request{Conn: c.id, ClientID: c.client(h.clientID), Body: body, Local: c.local}, q)
	if h.key == produce {
		c.produce.clear()
	}
	c.pipe.handled()
	return err
}

// client is the client id as a string, made anew only when it changes.
func (c *conn) client(id []byte) string {
	if last := c.clientID.Load(); last != nil && *last == string(id) { // the comparison does not allocate
		return *last
	}
	fresh := string(id)
	c.clientID.Store(&fresh)
	return fresh
}

// unsupported does what Kafka does with a request it does not know: an
// ApiVersions of any version is answered in version 0, so that the client can
// learn what is known; for anything else there is no answer that the client
// could read, and the connection is closed.
func (c *conn) unsupported(h header, q *pending) error {
	if h.key != apiVersions {
		return fmt.Errorf("%w: api key %d (%s) version %d; ask ApiVersions first", errUnsupported, h.key, kmsg.NameForKey(h.key), h.version)
	}
	q.version = 0
	if !c.pipe.admit(q) {
		return net.ErrClosed
	}
	q.reply(broker.Answer{Body: apiVersionsFallback(c.server.handler.Supports)})
	c.pipe.handled()
	return nil
}

// decode decodes a body. A panic in the decoder is its bug, found by a hostile
// client: it costs that client its connection and nobody else anything.
func (c *conn) decode(h header, rest []byte) (body kmsg.Request, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %s v%d: decoder panic: %v", errFrameBody, kmsg.NameForKey(h.key), h.version, v)
			c.server.panicked(c, v, debug.Stack())
		}
	}()
	if h.key == produce {
		return c.produce.decode(h, rest)
	}
	return decodeBody(h, rest)
}

// handle calls the broker.
//
// A panic that begins with "BUG:" is an invariant of ours found broken, perhaps
// in the middle of a change: nothing may be acknowledged after it, so it takes
// the process down, and recovery brings back what was acknowledged. Any other
// panic (an index, a nil) is most likely one request's: it is logged with its
// stack and counted, and costs that connection. Tests set CrashOnPanic, and runs
// of the real binary check the count.
func (c *conn) handle(req broker.Request, q *pending) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if text, ok := v.(string); c.server.options.CrashOnPanic || (ok && strings.HasPrefix(text, "BUG:")) {
			panic(v)
		}
		c.server.panicked(c, v, debug.Stack())
		err = fmt.Errorf("handler of %s v%d panicked: %v", kmsg.NameForKey(q.key), q.version, v)
	}()
	c.server.handler.Handle(req, q.reply)
	return nil
}

// end closes the connection, once. err says why, and is logged when it is not
// the ordinary end of a connection.
func (c *conn) end(err error) {
	c.closeOnce.Do(func() {
		c.server.logEnd(c, err)
		c.sock.close()
		c.pipe.close()
		c.server.forget(c)
	})
}

// ordinary says whether err is how connections end when nobody did anything wrong.
func ordinary(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, errAskedToClose) ||
		errors.Is(err, os.ErrDeadlineExceeded) || isReset(err)
}
