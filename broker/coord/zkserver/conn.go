package zkserver

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// Bounds of one connection. Reading stops at the first three until answers have gone out.
const (
	requestsInFlightMax  = 128
	requestBytesMax      = 2 << 20
	outputBytesPause     = 4 << 20
	outputBytesMax       = 256 << 20 // of events and answers together: a peer that does not read is dropped
	outputTotalMax       = 1 << 30   // of all connections: past it who has over outputBytesPause is dropped
	batchOutputMax       = 16 << 20  // of one batch: then it ends, and the two bounds above are looked at
	handshakeTimeout     = 2 * coord.TickMs * time.Millisecond
	writeTimeout         = 30 * time.Second
	lingerTimeout        = time.Second // how long the peer may take to close after us
	bufferedOutputRetain = 64 << 10    // bytes of an empty buffer that are kept
)

// conn is one connection: a goroutine reads requests and hands them to the core,
// another writes what the core has released.
type conn struct {
	nc     net.Conn
	peer   string
	server *Server

	// The core's alone.
	session   coord.SessionID // 0: none yet
	timeoutMs int64           // granted to this connection
	held      []byte          // output of this batch
	heldN     int             // requests answered in this batch
	heldB     int             // their bytes
	dirty     bool            // is in the core's list
	finished  bool            // nothing more is answered

	mu       sync.Mutex
	changed  sync.Cond
	out      []byte // released, not yet written
	writing  int    // bytes that the writer has taken and not yet got rid of
	inFlight int    // requests read and not yet answered
	bytes    int    // of them
	closing  bool   // close when out was written
	dead     bool   // the socket is of no more use
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{nc: nc, peer: nc.RemoteAddr().String(), server: s}
	c.changed.L = &c.mu
	return c
}

// answered notes that a request was carried out.
func (c *conn) answered(q *request) {
	c.heldN++
	c.heldB += q.size
}

// release hands the batch's output to the writer. The core calls it.
func (c *conn) release() {
	c.dirty = false
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight -= c.heldN
	c.bytes -= c.heldB
	c.heldN, c.heldB = 0, 0
	c.closing = c.closing || c.finished
	size := c.writing + len(c.out) + len(c.held)
	switch total := c.server.stats.output.Load(); {
	case c.dead:
	case size > outputBytesMax || size > outputBytesPause && total > outputTotalMax:
		c.server.log.Warn("connection dropped: the peer does not read its answers", "peer", c.peer)
		c.kill()
	case len(c.out) == 0:
		c.server.stats.output.Add(int64(len(c.held)))
		c.out, c.held = c.held, c.out
	default:
		c.server.stats.output.Add(int64(len(c.held)))
		c.out = append(c.out, c.held...)
	}
	c.held = reuse(c.held)
	c.changed.Broadcast()
}

func reuse(b []byte) []byte {
	if cap(b) > bufferedOutputRetain {
		return nil
	}
	return b[:0]
}

// kill ends both goroutines. Called with the lock.
func (c *conn) kill() {
	c.dead = true
	c.server.stats.output.Add(-int64(len(c.out)))
	c.out = nil
	_ = c.nc.Close()
	c.changed.Broadcast()
}

func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kill()
}

// write sends what is released until the connection ends.
func (c *conn) write() {
	var spare []byte
	for {
		c.mu.Lock()
		for len(c.out) == 0 && !c.closing && !c.dead {
			c.changed.Wait()
		}
		if c.dead || len(c.out) == 0 {
			c.mu.Unlock()
			break
		}
		b := c.out
		c.out = spare
		c.writing = len(b)
		c.mu.Unlock()
		_ = c.nc.SetWriteDeadline(time.Now().Add(writeTimeout))
		_, err := c.nc.Write(b)
		c.mu.Lock()
		c.writing = 0
		c.server.stats.output.Add(-int64(len(b)))
		c.changed.Broadcast() // the reader may wait for room
		c.mu.Unlock()
		if err != nil {
			c.close()
			return
		}
		spare = reuse(b)
	}
	// A close with unread input would reset the connection and could take the last
	// answer with it: end our side, and let the reader wait for the peer's.
	_ = c.nc.SetReadDeadline(time.Now().Add(lingerTimeout))
	if t, ok := c.nc.(*net.TCPConn); ok {
		_ = t.CloseWrite()
	}
}

// serve reads until the connection ends.
func (c *conn) serve() {
	defer c.close()
	r := bufio.NewReaderSize(c.nc, 16<<10)
	_ = c.nc.SetReadDeadline(time.Now().Add(handshakeTimeout))
	first, err := c.firstFrame(r)
	if err != nil || first == nil {
		return
	}
	q, err := decodeConnect(first)
	if err != nil {
		c.server.log.Warn("connection dropped: malformed connect request", "peer", c.peer)
		return
	}
	_ = c.nc.SetReadDeadline(time.Time{})
	c.server.submit(item{call: func() { c.server.core.connect(c, q) }})
	defer c.server.submit(item{call: func() { c.server.core.disconnected(c) }})
	for c.waitForRoom() {
		frame, err := readFrame(r, frameBytesMax)
		if err != nil {
			if errors.Is(err, errFrameLength) {
				c.server.log.Warn("connection dropped", "peer", c.peer, "error", err)
			}
			return
		}
		q, err := decodeRequest(frame)
		if err != nil {
			c.server.log.Warn("connection dropped: malformed request header", "peer", c.peer)
			return
		}
		c.server.stats.received.Add(1)
		q.at = c.server.now()
		c.mu.Lock()
		c.inFlight++
		c.bytes += q.size
		c.mu.Unlock()
		c.server.submit(item{conn: c, req: q})
	}
	if c.ended() { // let the peer close first
		_, _ = io.Copy(io.Discard, io.LimitReader(r, outputBytesPause))
	}
}

// firstFrame reads the connect request, or answers a four-letter word and gives nil.
func (c *conn) firstFrame(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(4)
	if err != nil {
		return nil, err
	}
	if answer, ok := c.server.fourLetterWord(string(head)); ok {
		_ = c.nc.SetWriteDeadline(time.Now().Add(handshakeTimeout))
		_, err := io.WriteString(c.nc, answer)
		return nil, err
	}
	return readFrame(r, connectBytesMax)
}

// waitForRoom waits until another request may be read; false when none may be any more.
func (c *conn) waitForRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.dead && !c.closing && (c.inFlight >= requestsInFlightMax || c.bytes >= requestBytesMax || c.writing+len(c.out) >= outputBytesPause) {
		c.changed.Wait()
	}
	return !c.dead && !c.closing
}

func (c *conn) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing && !c.dead
}

var errFrameLength = errors.New("the frame's length is out of bounds")

func readFrame(r *bufio.Reader, bytesMax uint32) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > bytesMax {
		return nil, errFrameLength
	}
	frame := make([]byte, n)
	_, err := io.ReadFull(r, frame)
	return frame, err
}
