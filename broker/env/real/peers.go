package real

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/internal/workers"
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
	// peerIdleFor is how long: a broker that has come back at another port is never asked at the old one again.
	peerIdleFor = 5 * time.Minute
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
	idleSince   time.Time
}

// answers keeps the memory of answers for the next: most bytes that come from
// another broker are a fetch's records, which are in the log when done has returned.
var answers = sync.Pool{New: func() any { return &answer{make([]byte, answerMin)} }}

// answer is what one answer is read into.
type answer struct{ buf []byte }

const (
	answerMin = 4 << 10
	// answerKeptMax bounds what of an answer's memory is kept: that of a fetch which many partitions fill is given back.
	answerKeptMax = 2 << 20
)

func (a *answer) release() {
	if len(a.buf) <= answerKeptMax {
		answers.Put(a)
	}
}

// Send asks another broker, on a goroutine of its own.
func (e *Env) Send(to env.Peer, req kmsg.Request, timeout time.Duration, done func(kmsg.Response, error)) {
	workers.Go(func() {
		addr := net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port)))
		into := answers.Get().(*answer)
		defer into.release()
		resp, err := e.peers.ask(addr, req, timeout, into)
		if garbage := new(garbageError); errors.As(err, &garbage) && e.peers.tellsGarbage(addr) {
			e.Report(env.Warn, fmt.Sprintf("broker %d at %s answers %s with %v; the connection is dropped, and it is asked again", to.ID, addr, kmsg.NameForKey(req.Key()), garbage))
		}
		if err != nil {
			err = fmt.Errorf("%s to broker %d: %w", kmsg.NameForKey(req.Key()), to.ID, err)
		}
		done(resp, err)
	})
}

// tellsGarbage says whether garbage from there is to be reported: it was not for a while.
func (p *peers) tellsGarbage(addr string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, told := p.garbageTold[addr]; told && time.Since(last) < garbageInterval {
		return false
	}
	for at, last := range p.garbageTold { // so that it does not grow with every port that was one's
		if time.Since(last) >= garbageInterval {
			delete(p.garbageTold, at)
		}
	}
	if p.garbageTold == nil {
		p.garbageTold = map[string]time.Time{}
	}
	p.garbageTold[addr] = time.Now()
	return true
}

func (p *peers) ask(addr string, req kmsg.Request, timeout time.Duration, into *answer) (kmsg.Response, error) {
	deadline := time.Now().Add(timeout)
	c, reused, err := p.take(addr, deadline)
	if err != nil {
		return nil, err
	}
	resp, err := c.ask(req, deadline, into)
	garbage := new(garbageError)
	if err != nil && reused && !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &garbage) {
		// The peer may have closed it while it was idle, or been restarted. What is sent
		// between brokers may be carried out twice, so another connection may try.
		c.conn.Close()
		if c, err = p.dial(addr, deadline); err == nil {
			resp, err = c.ask(req, deadline, into)
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
	if p.busy[addr]--; p.busy[addr] == 0 {
		delete(p.busy, addr)
	}
	now := time.Now()
	switch {
	case c == nil:
	case good && len(p.idle[addr]) < peerIdleMax:
		c.idleSince = now
		p.idle[addr] = append(p.idle[addr], c)
	default:
		c.conn.Close()
	}
	p.closeIdle(now)
}

// closeIdle closes what has been idle for too long, of whatever address. Called with the lock.
func (p *peers) closeIdle(now time.Time) {
	for addr, conns := range p.idle {
		old := 0 // the last used is the last
		for old < len(conns) && now.Sub(conns[old].idleSince) >= peerIdleFor {
			conns[old].conn.Close()
			old++
		}
		if conns = slices.Delete(conns, 0, old); len(conns) == 0 {
			delete(p.idle, addr)
		} else {
			p.idle[addr] = conns
		}
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

// ask sends one request and reads its answer, whose bytes stay in into.
func (c *peerConn) ask(req kmsg.Request, deadline time.Time, into *answer) (kmsg.Response, error) {
	c.conn.SetDeadline(deadline)
	c.correlation++
	c.buf = kmsg.NewRequestFormatter(kmsg.FormatterClientID("broker")).AppendRequest(c.buf[:0], req, c.correlation)
	if _, err := c.conn.Write(c.buf); err != nil {
		return nil, err
	}
	if cap(c.buf) > 1<<20 {
		c.buf = nil
	}
	body, err := c.read(into)
	if err != nil {
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

// read reads one answer, without its correlation id, in as few reads as its bytes come in.
// The response's records stay where they are read to: one copy, from the socket.
func (c *peerConn) read(into *answer) (body []byte, err error) {
	const head = 8
	got, err := io.ReadAtLeast(c.conn, into.buf, head)
	if err != nil {
		return nil, err
	}
	n := int(int32(binary.BigEndian.Uint32(into.buf)))
	if n < head-4 || n > peerAnswerMax {
		return nil, &garbageError{fmt.Sprintf("an answer of %d bytes", n)}
	}
	if id := int32(binary.BigEndian.Uint32(into.buf[4:])); id != c.correlation {
		return nil, &garbageError{fmt.Sprintf("an answer to request %d, asked was %d", id, c.correlation)}
	}
	end := 4 + n
	if got > end {
		return nil, &garbageError{fmt.Sprintf("%d bytes behind an answer", got-end)} // one request at a time has one answer
	}
	if end > len(into.buf) {
		larger := make([]byte, max(end, min(2*len(into.buf), answerKeptMax)))
		copy(larger, into.buf[:got])
		into.buf = larger
	}
	if _, err := io.ReadFull(c.conn, into.buf[got:end]); err != nil {
		return nil, err
	}
	return into.buf[head:end], nil
}
