package sim

import (
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
)

// conn is a connection to one incarnation, of a client or of another broker.
// Requests travel and are handled in order, and so are answers, as on TCP; each
// message is encoded and decoded, so that nothing is shared. Messages of different
// connections overtake each other.
type conn struct {
	w      *base
	id     broker.ConnID
	from   end
	owner  *process // whose connection it is; nil: the world's
	to     *incarnation
	lost   func() // tells the owner; called once, at a later event
	broken bool
	drains bool // though broken: what was on its way to the broker arrives
	// timeout of a call, after which its connection is given up; 0: none.
	timeout time.Duration

	up, down         stream
	arrives, returns time.Duration // of the newest request and of the newest answer: none overtakes another
	pending          []*call       // in order, not yet answered to the client
}

// stream is one direction of a connection: what was sent and has not arrived, in order.
type stream []func()

// next takes the oldest off.
func (s *stream) next() {
	f := (*s)[0]
	(*s)[0] = nil
	*s = (*s)[1:]
	f()
}

// call is one request and its answer.
type call struct {
	req     kmsg.Request
	done    func(kmsg.Response)
	answer  *broker.Answer // nil until the broker has replied
	sending bool
	ended   bool // answered to the client
}

// dial connects w's clients, or says that nobody listens.
func (w *World) dial(lost func()) *conn {
	if w.live == nil || !w.live.open || w.live.stopping {
		return nil
	}
	return w.connect(w.live, lost)
}

// connect makes a connection to an incarnation.
func (b *base) connect(to *incarnation, lost func()) *conn {
	b.lastConn++
	c := &conn{w: b, id: b.lastConn, to: to, lost: lost}
	b.conns = append(b.conns, c)
	return c
}

// rise lets f happen at the server when a message that leaves now has arrived, d from now.
func (c *conn) rise(d time.Duration, f func()) {
	c.up = append(c.up, f)
	c.w.transit(c.from, c.to.end, &c.to.process, d, c.up.next)
}

// fall is rise for the other direction.
func (c *conn) fall(d time.Duration, f func()) {
	c.down = append(c.down, f)
	c.w.transit(c.to.end, c.from, c.owner, d, c.down.next)
}

func (c *conn) latency(up bool) time.Duration {
	switch {
	case c.w.net == nil:
		return c.w.latency()
	case up:
		return c.w.net.latency(c.from, c.to.end)
	}
	return c.w.net.latency(c.to.end, c.from)
}

// ask sends a request; done gets its answer, unless the connection breaks first.
// done nil: the broker answers nothing (acks=0).
func (c *conn) ask(req kmsg.Request, version int16, done func(kmsg.Response)) {
	req.SetVersion(version)
	body := req.AppendTo(nil)
	k := &call{req: req, done: done}
	c.pending = append(c.pending, k)
	c.arrives = max(c.arrives, c.w.now+c.latency(true))
	c.rise(c.arrives-c.w.now, func() { c.handle(k, body) })
	if c.timeout > 0 && done != nil {
		c.w.after(c.owner, c.timeout, func() { c.expire(k) })
	}
}

// expire gives the connection up if the call is not answered: the outcome is unknown.
func (c *conn) expire(k *call) {
	if !k.ended && !c.broken {
		c.w.trace.probe("request timed out")
		c.breakDown()
	}
}

// handle is the arrival at the broker. The receive buffer is overwritten when
// Handle returns: what the broker keeps of it has to be copies.
func (c *conn) handle(k *call, body []byte) {
	if c.broken && !c.drains {
		return
	}
	req := kmsg.RequestForKey(k.req.Key())
	req.SetVersion(k.req.GetVersion())
	if err := req.ReadFrom(body); err != nil {
		panic(fmt.Sprintf("BUG: sim: request does not decode: %v", err))
	}
	c.w.planted.request(req)
	c.to.broker.Handle(broker.Request{Conn: c.id, ClientID: "sim", Body: req, Local: "sim:9092"}, func(a broker.Answer) {
		if c.w.planted.loses(k.req) {
			return
		}
		if k.answer != nil {
			c.w.violated("a request was answered twice: %T", k.req)
			return
		}
		k.answer = &a
		if c.w.answered != nil {
			c.w.answered(c.to, k.req, &a)
		}
		c.w.planted.answer(&a)
		if c.broken && a.Fetch != nil {
			a.Fetch.Release()
		}
		c.flush()
	})
	for i := range body {
		body[i] = 0xEE
	}
}

// flush sends the answers at the head that are there. An answer leaves at a later
// event than it was given: its regions are read then.
func (c *conn) flush() {
	if c.broken {
		return
	}
	for _, k := range c.pending {
		if k.answer == nil {
			return
		}
		if !k.sending {
			k.sending = true
			c.returns = max(c.returns, c.w.now+c.w.sendDelay())
			c.w.after(&c.to.process, c.returns-c.w.now, func() { c.send(k) })
		}
	}
}

// send resolves the answer into bytes, as the socket would take them, and lets
// them travel.
func (c *conn) send(k *call) {
	if f := k.answer.Fetch; f != nil {
		defer f.Release()
	}
	if c.broken {
		return
	}
	c.pending = c.pending[1:]
	if k.answer.Silent {
		if k.answer.Close {
			c.breakDown()
		}
		return
	}
	body, err := c.encode(k)
	if err != nil {
		if !c.to.injected {
			c.w.violated("the bytes of a fetch answer cannot be read: %v", err)
		}
		c.breakDown()
		return
	}
	if k.answer.Close {
		c.w.after(c.owner, 0, c.breakDown)
	}
	c.returns = max(c.returns, c.w.now+c.latency(false))
	c.fall(c.returns-c.w.now, func() { c.deliver(k, body) })
}

func (c *conn) encode(k *call) ([]byte, error) {
	f := k.answer.Fetch
	if f == nil {
		k.answer.Body.SetVersion(k.req.GetVersion())
		return k.answer.Body.AppendTo(nil), nil
	}
	body := make([]byte, 0, f.Size())
	for p := range f.Parts {
		part := &f.Parts[p]
		body = append(body, part.Head...)
		switch r := &part.Region; {
		case r.Len == 0:
		case r.Bytes != nil:
			body = append(body, r.Bytes[:r.Len]...)
		default:
			if _, err := c.to.node.disk.Stat(r.File.Name()); err != nil {
				c.w.trace.probe("region outlived its file's name")
			}
			at := len(body)
			body = body[:at+r.Len]
			if n, err := r.File.ReadAt(body[at:], r.Pos); err != nil && !(err == io.EOF && n == r.Len) {
				return nil, fmt.Errorf("%s at byte %d, %d of %d bytes: %w", r.File.Name(), r.Pos, n, r.Len, err)
			}
		}
	}
	return append(body, f.Tail...), nil
}

// deliver is the arrival at the client. An answer may arrive after the process
// that sent it has died.
func (c *conn) deliver(k *call, body []byte) {
	if c.broken {
		return
	}
	if c.to.dead {
		c.w.trace.probe("answer that outlived its broker")
	}
	resp := k.req.ResponseKind()
	if err := resp.ReadFrom(body); err != nil {
		c.w.violated("an answer does not decode: %T: %v", resp, err)
		return
	}
	k.ended = true
	k.done(resp)
}

// breakDown ends the connection for both sides. What is on its way is lost: a
// request may have been carried out, and the client will not know.
func (c *conn) breakDown() {
	if c.broken {
		return
	}
	c.broken, c.drains = true, c.w.chance(2)
	for _, k := range c.pending {
		if k.answer != nil {
			c.w.trace.probe("answer lost with its connection")
		}
		if k.answer != nil && k.answer.Fetch != nil && !c.to.dead && !k.sending {
			k.answer.Fetch.Release()
		}
	}
	c.w.conns = remove(c.w.conns, c)
	if !c.to.dead {
		c.rise(max(0, c.arrives-c.w.now)+c.latency(true), func() { c.to.broker.Disconnected(c.id) })
	}
	c.w.after(c.owner, c.latency(false), c.lost)
}

func remove[T comparable](all []T, one T) []T {
	for i := range all {
		if all[i] == one {
			return append(all[:i], all[i+1:]...)
		}
	}
	return all
}
