package real

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/storage/vfs/syscount"
)

// peers sends requests to other brokers. Each connection carries one request at
// a time, so that a fetch which waits at its leader holds up nothing else; idle
// ones are kept for the next.
type peers struct {
	mu   sync.Mutex
	idle map[string][]*peerConn // by address; the last used is the last
	busy map[string]int         // by address

	garbageTold map[string]time.Time // by address: when garbage from there was reported last

	counters *syscount.Counters // may be nil
}

const (
	// peerConnsMax bounds the connections to one peer: its fetcher's, its
	// controller's, and a few for what is rare. One more request fails at once.
	peerConnsMax = 32
	// peerIdleMax is how many of them are kept without a request.
	peerIdleMax = 4
	// peerAnswerMax is more than any answer: a fetch's bytes are bounded by replica.fetch.response.max.bytes.
	peerAnswerMax = 128 << 20
	dialTimeout   = 2 * time.Second
)

// garbageInterval keeps a peer that answers garbage, again and again, from filling the log.
const garbageInterval = time.Minute

// garbageError is an answer that is none: what else the connection brings is not to be trusted either.
type garbageError struct{ what string }

func (e *garbageError) Error() string { return "garbage: " + e.what }

// errPeerBusy: more requests to one peer are in flight than connections are allowed.
var errPeerBusy = errors.New("too many requests to one broker are in flight")

type peerConn struct {
	conn        net.Conn
	correlation int32
	buf         []byte // of the requests
}

// Send asks another broker, on a goroutine of its own.
func (e *Env) Send(to env.Peer, req kmsg.Request, timeout time.Duration, done func(kmsg.Response, error)) {
	go func() {
		addr := net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port)))
		resp, err := e.peers.ask(addr, req, timeout)
		if garbage := new(garbageError); errors.As(err, &garbage) && e.peers.tellsGarbage(addr) {
			e.Report(env.Warn, fmt.Sprintf("broker %d at %s answers %s with %v; the connection is dropped, and it is asked again", to.ID, addr, kmsg.NameForKey(req.Key()), garbage))
		}
		if err != nil {
			err = fmt.Errorf("%s to broker %d: %w", kmsg.NameForKey(req.Key()), to.ID, err)
		}
		done(resp, err)
	}()
}

// tellsGarbage says whether garbage from there is to be reported: it was not for a while.
func (p *peers) tellsGarbage(addr string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, told := p.garbageTold[addr]; told && time.Since(last) < garbageInterval {
		return false
	}
	if p.garbageTold == nil {
		p.garbageTold = map[string]time.Time{}
	}
	p.garbageTold[addr] = time.Now()
	return true
}

func (p *peers) ask(addr string, req kmsg.Request, timeout time.Duration) (kmsg.Response, error) {
	deadline := time.Now().Add(timeout)
	c, reused, err := p.take(addr, deadline)
	if err != nil {
		return nil, err
	}
	resp, err := c.ask(req, deadline)
	garbage := new(garbageError)
	if err != nil && reused && !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &garbage) {
		// The peer may have closed it while it was idle, or been restarted. What is sent
		// between brokers may be carried out twice, so another connection may try.
		c.conn.Close()
		if c, err = p.dial(addr, deadline); err == nil {
			resp, err = c.ask(req, deadline)
		}
	}
	p.give(addr, c, err == nil)
	return resp, err
}

// take gives an idle connection or a new one.
func (p *peers) take(addr string, deadline time.Time) (c *peerConn, reused bool, err error) {
	p.mu.Lock()
	if p.busy == nil {
		p.busy, p.idle = map[string]int{}, map[string][]*peerConn{}
	}
	if p.busy[addr] >= peerConnsMax {
		p.mu.Unlock()
		return nil, false, errPeerBusy
	}
	p.busy[addr]++
	if n := len(p.idle[addr]); n > 0 {
		c = p.idle[addr][n-1]
		p.idle[addr] = p.idle[addr][:n-1]
	}
	p.mu.Unlock()
	if c != nil {
		return c, true, nil
	}
	if c, err = p.dial(addr, deadline); err != nil {
		p.give(addr, nil, false)
	}
	return c, false, err
}

// give ends the use of a connection, which may be nil.
func (p *peers) give(addr string, c *peerConn, good bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy[addr]--
	switch {
	case c == nil:
	case good && len(p.idle[addr]) < peerIdleMax:
		p.idle[addr] = append(p.idle[addr], c)
	default:
		c.conn.Close()
	}
}

func (p *peers) dial(addr string, deadline time.Time) (*peerConn, error) {
	conn, err := net.DialTimeout("tcp", addr, min(dialTimeout, time.Until(deadline)))
	if err != nil {
		return nil, err
	}
	return &peerConn{conn: countedConn{conn, p.counters}}, nil
}

// countedConn counts what crosses a connection to another broker: a replica's bytes are copied too.
type countedConn struct {
	net.Conn
	counters *syscount.Counters
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.counters.Call(syscount.Read, 1)
	c.counters.ToUser(int64(n))
	return n, err
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.counters.Call(syscount.Write, 1)
	c.counters.ToKernel(int64(n))
	return n, err
}

// ask sends one request and reads its answer.
func (c *peerConn) ask(req kmsg.Request, deadline time.Time) (kmsg.Response, error) {
	c.conn.SetDeadline(deadline)
	c.correlation++
	c.buf = kmsg.NewRequestFormatter(kmsg.FormatterClientID("broker")).AppendRequest(c.buf[:0], req, c.correlation)
	if _, err := c.conn.Write(c.buf); err != nil {
		return nil, err
	}
	if cap(c.buf) > 1<<20 {
		c.buf = nil
	}
	var head [8]byte
	if _, err := io.ReadFull(c.conn, head[:]); err != nil {
		return nil, err
	}
	n := int(int32(binary.BigEndian.Uint32(head[:])))
	if n < 4 || n > peerAnswerMax {
		return nil, &garbageError{fmt.Sprintf("an answer of %d bytes", n)}
	}
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != c.correlation {
		return nil, &garbageError{fmt.Sprintf("an answer to request %d, asked was %d", got, c.correlation)}
	}
	body := make([]byte, n-4) // the response's records stay in it: one copy, from the socket
	if _, err := io.ReadFull(c.conn, body); err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		if len(body) == 0 || body[0] != 0 {
			return nil, &garbageError{"an answer with tagged fields in its header"}
		}
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, &garbageError{fmt.Sprintf("an answer that does not decode: %v", err)}
	}
	return resp, nil
}
