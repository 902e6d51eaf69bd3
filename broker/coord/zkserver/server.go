// Package zkserver puts the tree of broker/coord behind ZooKeeper's wire protocol,
// with the semantics of a lone ZooKeeper 3.8 server, so that stock clients (go-zookeeper, zkCli.sh, Kafka's) work.
//
// It is a live shell: goroutines, sockets, the machine's clock. The tree decides. One goroutine, the core,
// owns it; connections bring it requests and take its answers.
//
// Served: connect and reconnect (session id and password, negotiated timeout), ping, create and
// create2 (ephemeral, sequential), delete, exists, getData, setData, getChildren and
// getChildren2, sync, check, multi, multiRead, setWatches, getACL and setACL (everybody may do
// everything, whatever is set), auth (anybody is believed), closeSession, and the
// four-letter words ruok, srvr, stat, mntr, conf and isro. Everything else is answered
// UNIMPLEMENTED: containers, TTL nodes, persistent watches, reconfiguration, SASL, TLS. Stricter than ZooKeeper:
// a path that it would not let be created is refused by reads, too; and there is a quota over all, treeBytesMax.
package zkserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// Config is what a server can be told. The zero value is a server in memory.
type Config struct {
	Log *slog.Logger // nil: nothing is logged
	// Disk and Dir: where the tree is kept. Without a Disk it is kept in memory alone.
	Disk vfs.FS
	Dir  string
	// ConnectionsMax at once; who comes later is closed at once. 0: ConnectionsMaxDefault.
	ConnectionsMax int

	now    func() time.Duration // tests: another clock,
	noTick bool                 // and ticks by hand

	treeMax int64 // treeBytesMax, less in tests
}

// ConnectionsMaxDefault is Config.ConnectionsMax where it is not set.
const ConnectionsMaxDefault = 256

// Server is a running server.
type Server struct {
	cfg      Config
	log      *slog.Logger
	listener net.Listener
	lock     io.Closer // of Dir
	core     *core
	now      func() time.Duration
	stats    stats

	mu      sync.Mutex
	conns   map[*conn]struct{}
	closing bool

	readers sync.WaitGroup // whoever submits to the core
	writers sync.WaitGroup
	stop    chan struct{} // closed when the server is to end
	stopped chan struct{} // closed when the core has ended
	failure error         // why the core ended; set before stopped
}

// stats are counters that any goroutine may read.
type stats struct {
	received, sent, connections, outstanding, expired, output atomic.Int64
}

// Listen opens a server on a TCP address and serves until Close, or until the
// disk fails (see Wait).
func Listen(addr string, cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.ConnectionsMax == 0 {
		cfg.ConnectionsMax = ConnectionsMaxDefault
	}
	if cfg.treeMax == 0 {
		cfg.treeMax = treeBytesMax
	}
	if cfg.now == nil {
		start := time.Now()
		cfg.now = func() time.Duration { return time.Since(start) }
	}
	s := &Server{
		cfg: cfg, log: cfg.Log, now: cfg.now, conns: map[*conn]struct{}{},
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	s.core = &core{
		log: cfg.Log, now: cfg.now, wall: time.Now, stats: &s.stats,
		arrived: make(chan item, arrivedMax), sessions: map[coord.SessionID]*conn{},
	}
	if err := s.load(); err != nil {
		s.unlock()
		return nil, err
	}
	s.core.tree.Limit(cfg.treeMax)
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		_ = s.closeStore()
		s.unlock()
		return nil, fmt.Errorf("zkserver: %w", err)
	}
	s.listener = l
	go s.runCore()
	s.readers.Add(1)
	go s.accept()
	if !cfg.noTick {
		s.readers.Add(1)
		go s.tick()
	}
	return s, nil
}

// load makes or reads the tree. Sessions of an earlier life go on: their timeouts begin now.
func (s *Server) load() error {
	c := s.core
	if s.cfg.Disk == nil {
		c.tree, c.secret = coord.NewTree(), make([]byte, 32)
		_, err := rand.Read(c.secret)
		return err
	}
	if err := s.cfg.Disk.MkdirAll(s.cfg.Dir); err != nil {
		return fmt.Errorf("zkserver: %w", err)
	}
	var err error
	if s.lock, err = s.cfg.Disk.Lock(path.Join(s.cfg.Dir, ".lock")); err != nil {
		return fmt.Errorf("zkserver: %s: %w", s.cfg.Dir, err)
	}
	if c.secret, err = loadSecret(s.cfg.Disk, s.cfg.Dir); err != nil {
		return fmt.Errorf("zkserver: %w", err)
	}
	var torn string
	if c.store, c.tree, torn, err = coord.OpenStore(s.cfg.Disk, s.cfg.Dir); err != nil {
		return fmt.Errorf("zkserver: %w", err)
	}
	if torn != "" {
		s.log.Warn(torn)
	}
	for _, id := range c.tree.Sessions() {
		if err := c.tree.Touch(id, c.sessionTime()); err != nil {
			panic("BUG: zkserver: a session that was read is not open")
		}
	}
	return nil
}

func (s *Server) closeStore() error {
	if s.core.store == nil {
		return nil
	}
	return s.core.store.Close(s.core.tree)
}

func (s *Server) unlock() {
	if s.lock != nil {
		_ = s.lock.Close()
	}
}

// Addr is where the server listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

func (s *Server) runCore() {
	err := s.core.run()
	if cerr := s.closeStore(); err == nil {
		err = cerr
	}
	s.failure = err
	close(s.stopped)
	if err != nil {
		s.log.Error("the server ends", "error", err)
		s.shut()
	}
}

// submit hands an item to the core, in the order of its caller's items. When the core has ended it is dropped.
func (s *Server) submit(it item) {
	s.stats.outstanding.Add(1)
	defer s.stats.outstanding.Add(-1)
	select {
	case s.core.arrived <- it:
	case <-s.stopped:
	}
}

// call runs f in the core and waits for it; false when the core has ended.
func (s *Server) call(f func()) bool {
	done := make(chan struct{})
	s.submit(item{call: func() { f(); close(done) }})
	select {
	case <-done:
		return true
	case <-s.stopped:
		return false
	}
}

func (s *Server) tick() {
	defer s.readers.Done()
	t := time.NewTicker(coord.TickMs * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			s.submit(item{call: s.core.tick})
		case <-s.stop:
			return
		}
	}
}

func (s *Server) accept() {
	defer s.readers.Done()
	for {
		nc, err := s.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors, say: that passes.
			s.log.Warn("accept failed", "error", err)
			select {
			case <-time.After(50 * time.Millisecond):
			case <-s.stop:
				return
			}
			continue
		}
		s.start(newConn(s, nc))
	}
}

// start runs a connection, or closes it where there are too many.
func (s *Server) start(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || len(s.conns) >= s.cfg.ConnectionsMax {
		if !s.closing {
			s.log.Warn("connection refused: there are too many", "peer", c.peer, "max", s.cfg.ConnectionsMax)
		}
		_ = c.nc.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.stats.connections.Add(1)
	s.readers.Add(1)
	s.writers.Add(1)
	go func() {
		defer s.readers.Done()
		c.serve()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		s.stats.connections.Add(-1)
	}()
	go func() {
		defer s.writers.Done()
		c.write()
	}()
}

// shut stops listening and closes all connections.
func (s *Server) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.closing = true
		close(s.stop)
		_ = s.listener.Close()
	}
	for c := range s.conns {
		c.close()
	}
}

// Wait returns when the server has ended: nil after Close, else why.
func (s *Server) Wait() error {
	<-s.stopped
	return s.failure
}

// Close ends the server and waits until all that it had answered, and more, is kept. Sessions live on where there is a
// Dir; they expire as if the server had not stood still. It may be called once.
func (s *Server) Close() error {
	s.shut()
	s.readers.Wait()
	s.submit(item{call: func() { s.core.quit = true }})
	<-s.stopped
	s.writers.Wait()
	s.unlock()
	return s.failure
}

// ExpireSession ends a session at once, as if its peer had been silent: a fault for tests and experiments.
func (s *Server) ExpireSession(id coord.SessionID) (was bool) {
	s.call(func() { was = s.core.endSession(id) })
	return was
}

// DropConnections closes all connections, as a network may: a fault for tests and experiments.
func (s *Server) DropConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.close()
	}
}
