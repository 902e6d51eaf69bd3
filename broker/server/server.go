// Package server is the live shell of a broker: it listens, frames, decodes,
// keeps the order of each connection's responses, and moves fetched regions to
// sockets. It decides nothing about logs.
//
// What it must keep: responses of one connection leave in the order of their
// requests; a region is released once it is written or its connection has ended;
// Reply never blocks; and whatever a client sends or fails to read, memory stays
// bounded and other connections are unharmed. The bounds:
//
//	connections           Options.ConnectionsMax; the newest is closed
//	a request             Options.RequestBytesMax; memory grows with what arrives, not with what a length claims
//	what a request names  elementsMax things, counted before they are decoded
//	receive buffers       Options.BufferBytesMax over all connections; reading stops there, bufferWaitMax at most
//	a connection          Options.InFlightMax requests and InFlightBytesMax bytes, of requests and
//	                      answers; reading stops there
//	a client not reading  Options.StallMax without progress, Options.IdleMax for one answer (also
//	                      one that waits behind the client's own long poll); closed
//	half a large request  Options.StallMax without progress; closed
//	an idle client        Options.IdleMax; closed
//	log lines             logLinesMax a second about connections; the rest are counted
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/storage"
	"github.com/tidemark-log/tidemark/storage/vfs/syscount"
)

// Handler is what the shell needs of a broker.
type Handler interface {
	Handle(broker.Request, broker.Reply)
	// Disconnected is called once for each connection, after its last Handle.
	Disconnected(broker.ConnID)
	// Supports says whether ApiVersions would advertise this.
	Supports(key, version int16) bool
}

// Options are the shell's settings. Zero fields take the default in the comment.
type Options struct {
	RequestBytesMax  int              // socket.request.max.bytes; 100 MiB
	BufferBytesMax   int64            // queued.max.request.bytes; 1 GiB
	ConnectionsMax   int              // max.connections; 10,000
	InFlightMax      int              // lab.connection.inflight.requests; 64
	InFlightBytesMax int64            // lab.connection.inflight.bytes; 64 MiB
	SendBuffer       int              // socket.send.buffer.bytes; the kernel's
	ReceiveBuffer    int              // socket.receive.buffer.bytes; the kernel's
	IdleMax          time.Duration    // connections.max.idle.ms; 10 minutes
	StallMax         time.Duration    // 30 seconds
	Transfer         storage.Transfer // lab.fetch.transfer; sendfile
	// CrashOnPanic lets a panic of a handler take the process down, whatever it says.
	CrashOnPanic bool

	Counters *syscount.Counters // nil: nothing is counted
	Log      *slog.Logger       // slog.Default
}

func (o *Options) setDefaults() {
	setDefault(&o.RequestBytesMax, 100<<20)
	setDefault(&o.BufferBytesMax, 1<<30)
	setDefault(&o.ConnectionsMax, 10_000)
	setDefault(&o.InFlightMax, 64)
	setDefault(&o.InFlightBytesMax, 64<<20)
	setDefault(&o.IdleMax, 10*time.Minute)
	setDefault(&o.StallMax, 30*time.Second)
	if o.Log == nil {
		o.Log = slog.Default()
	}
}

func setDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Server serves one broker to the network.
type Server struct {
	options  Options
	handler  Handler
	transfer transfer
	counters *syscount.Counters
	metrics  *metrics
	buffers  bufferPool
	lines    lineLimiter

	draining atomic.Bool
	lastID   atomic.Uint64
	panics   atomic.Int64
	rejected atomic.Int64 // connections over the limit

	sweeping sync.Mutex // guards each connection's watch

	mu        sync.Mutex
	closed    bool
	listeners []net.Listener
	conns     map[broker.ConnID]*conn
	serving   sync.WaitGroup // accept loops, connections, the sweeper
	stop      chan struct{}
	emptied   chan struct{} // closed when draining has left no connection
	emptyOnce sync.Once
}

// New makes a server for handler. It listens to nothing yet.
func New(handler Handler, o Options) (*Server, error) {
	o.setDefaults()
	t, err := transferFor(o.Transfer)
	if err != nil {
		return nil, err
	}
	s := &Server{
		options: o, handler: handler, transfer: t, counters: o.Counters, metrics: newMetrics(),
		conns: map[broker.ConnID]*conn{}, stop: make(chan struct{}), emptied: make(chan struct{}),
	}
	s.buffers.max = o.BufferBytesMax
	s.serving.Go(s.sweepLoop)
	return s, nil
}

// Serve accepts connections from l, in the background, until Close.
func (s *Server) Serve(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.draining.Load() {
		l.Close()
		return
	}
	s.listeners = append(s.listeners, l)
	s.serving.Go(func() { s.acceptLoop(l) })
}

func (s *Server) acceptLoop(l net.Listener) {
	var delay time.Duration
	for {
		nc, err := l.Accept()
		s.counters.Call(syscount.Accept, 2) // the runtime accepts, and once more into EAGAIN
		switch {
		case err == nil:
			delay = 0
			s.accept(nc)
		case errors.Is(err, net.ErrClosed):
			return
		default: // out of descriptors, most likely: wait for some to come back
			delay = min(max(5*time.Millisecond, 2*delay), time.Second)
			s.logLine("accept failed; trying again", "err", err, "in", delay)
			select {
			case <-time.After(delay):
			case <-s.stop:
				return
			}
		}
	}
}

// accept starts a connection, or closes it at once when there are too many.
func (s *Server) accept(nc net.Conn) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		nc.Close()
		s.logLine("closed a connection that is not TCP", "network", nc.LocalAddr().Network())
		return
	}
	c, err := newConn(s, broker.ConnID(s.lastID.Add(1)), tcp)
	if err != nil {
		nc.Close()
		return
	}
	s.mu.Lock()
	switch {
	case s.closed || s.draining.Load():
		s.mu.Unlock()
		nc.Close()
		return
	case len(s.conns) >= s.options.ConnectionsMax:
		s.mu.Unlock()
		nc.Close()
		s.rejected.Add(1)
		s.logLine("closed a new connection: too many", "remote", c.remote, "max.connections", s.options.ConnectionsMax)
		return
	}
	s.conns[c.id] = c
	s.serving.Go(c.serve)
	s.mu.Unlock()
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c.id)
	s.noteEmptied()
}

// noteEmptied tells WaitDrained when the last connection has gone. s.mu is held.
func (s *Server) noteEmptied() {
	if s.draining.Load() && len(s.conns) == 0 {
		s.emptyOnce.Do(func() { close(s.emptied) })
	}
}

func (s *Server) connections() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*conn, 0, len(s.conns))
	for _, c := range s.conns {
		all = append(all, c)
	}
	return all
}

// Drain begins a graceful end: no new connection, no further request; what has
// been asked is still answered. The caller then shuts the broker down, which
// answers the long polls, and calls Close.
func (s *Server) Drain() {
	s.draining.Store(true)
	s.mu.Lock()
	for _, l := range s.listeners {
		l.Close()
	}
	s.noteEmptied()
	s.mu.Unlock()
	for _, c := range s.connections() {
		c.sock.conn.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
	}
}

// WaitDrained waits until every connection has ended after Drain, or ctx has.
func (s *Server) WaitDrained(ctx context.Context) error {
	select {
	case <-s.emptied:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d connections still have unanswered requests: %w", len(s.connections()), ctx.Err())
	}
}

// Close closes the listeners and every connection, and waits for their
// goroutines: after it no Handle runs and none will.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.stop)
	}
	for _, l := range s.listeners {
		l.Close()
	}
	s.mu.Unlock()
	for _, c := range s.connections() {
		c.end(net.ErrClosed)
	}
	s.serving.Wait()
}

// panicked notes a panic that was recovered.
func (s *Server) panicked(c *conn, v any, stack []byte) {
	s.panics.Add(1)
	s.options.Log.Error("panic while serving a request: a bug; the connection is closed", "remote", c.remote, "panic", fmt.Sprint(v), "stack", string(stack))
}

// logEnd says why a connection ended when that is worth a line.
func (s *Server) logEnd(c *conn, err error) {
	if !ordinary(err) {
		client := ""
		if id := c.clientID.Load(); id != nil {
			client = *id
		}
		s.logLine("closed a connection", "remote", c.remote, "client", client, "why", err)
	}
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
