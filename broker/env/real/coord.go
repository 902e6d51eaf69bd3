package real

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tidemark-log/tidemark/broker/coord"
)

const (
	// callsInFlightMax calls are at the server; that keeps its pipeline full.
	callsInFlightMax = 64
	// callsWaitingMax wait behind them; then ErrThrottled.
	callsWaitingMax = 1 << 16
	// watchesMax are set, each with a goroutine that waits; then ErrThrottled.
	watchesMax = 1 << 17
)

// coordClient is a coord.Client over go-zookeeper. What the library does otherwise than the contract says:
//
//   - It blocks: each call runs in one of callsInFlightMax goroutines.
//   - After the session's end it opens another by itself, and sends there what was still
//     queued: once the end is known, this client connects no more.
//   - What was queued when the connection went is sent after the reconnection. The caller has been told
//     ErrConnectionLoss by then, so Connected is told only when all of that has ended:
//     then no later write of the client can come before it.
//   - A lone server, the handshake, create's metadata, answers that make it panic: see hosts and wire.
//   - It knows no chroot.
type coordClient struct {
	chroot   string
	state    func(coord.SessionState)
	hosts    *hosts
	patience time.Duration // for an answer to the handshake
	ready    chan struct{} // closed when conn is set
	conn     *zk.Conn
	ended    chan struct{} // closed when the library has stopped

	mu      sync.Mutex
	wire    *wire        // of the last connection
	note    *sessionNote // nil: sessions are not noted
	old     *keptSession // of the process before; nil: none, or it is ended
	session coord.SessionID
	linked  bool // the library has its session
	up      bool // Connected was the last told
	rooted  bool // the chroot exists
	expired bool
	closed  bool
	running int // calls in the library, those that were given up included
	active  map[*coordCall]struct{}
	queue   []*coordCall
	watches int

	events  []func() // states and watches to tell, in order
	telling bool
}

// coordCall is one call. run blocks in the library, and gives what tells the caller the
// result; lost tells the caller that there will be none. One of the two is called, once.
type coordCall struct {
	run  func() (tell func())
	lost func(error)
	over bool // the caller has been told, or is about to be
}

var _ coord.Client = (*coordClient)(nil)

// OpenCoord opens a session with the ZooKeeper servers of connect (host:port,…[/chroot]; the chroot is made where
// it is missing). timeout is what the session asks for. It returns at once: state tells when the session is there.
func OpenCoord(connect string, timeout time.Duration, state func(coord.SessionState)) (coord.Client, error) {
	return openCoord(connect, timeout, nil, state)
}

func openCoord(connect string, timeout time.Duration, note *sessionNote, state func(coord.SessionState)) (coord.Client, error) {
	servers, chroot, err := parseConnect(connect)
	if err != nil {
		return nil, err
	}
	c := &coordClient{
		chroot: chroot, rooted: chroot == "", state: state, hosts: newHosts(),
		ready: make(chan struct{}), ended: make(chan struct{}), active: map[*coordCall]struct{}{}, patience: timeout, note: note,
	}
	if note != nil {
		c.old = note.take()
	}
	conn, events, err := zk.Connect(servers, timeout, zk.WithHostProvider(c.hosts), zk.WithDialer(c.dial),
		zk.WithEventCallback(c.eventOfLibrary), zk.WithLogger(noLog{}), zk.WithLogInfo(false), zk.WithMaxBufferSize(replyBytesMax))
	if err != nil {
		return nil, fmt.Errorf("zookeeper.connect %q: %w", connect, err)
	}
	c.conn = conn
	close(c.ready)
	go func() {
		for range events { // the callback has told them
		}
		close(c.ended)
	}()
	return c, nil
}

// dial connects the library to a server.
func (c *coordClient) dial(network, address string, limit time.Duration) (net.Conn, error) {
	if c.hosts.isClosed() {
		return nil, zk.ErrClosing // no second session
	}
	c.endOld(network, address, limit)
	nc, err := net.DialTimeout(network, address, limit)
	if err != nil {
		return nil, err
	}
	w := newWire(nc, c.patience)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wire = w
	return w, nil
}

type noLog struct{}

func (noLog) Printf(string, ...any) {}

// do takes a call, or ends it at once. It never runs anything of the call itself.
func (c *coordClient) do(k *coordCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed || c.expired:
		go k.lost(coord.ErrSessionExpired)
	case !c.up:
		go k.lost(coord.ErrConnectionLoss)
	case c.running < callsInFlightMax:
		c.start(k)
	case len(c.queue) < callsWaitingMax:
		c.queue = append(c.queue, k)
	default:
		go k.lost(coord.ErrThrottled)
	}
}

// start gives a call a goroutine. Called with the lock.
func (c *coordClient) start(k *coordCall) {
	c.running++
	c.active[k] = struct{}{}
	go c.work(k)
}

// work runs a call, and then those that wait.
func (c *coordClient) work(k *coordCall) {
	for k != nil {
		tell := k.run()
		c.mu.Lock()
		delete(c.active, k)
		told := k.over
		k.over = true
		c.mu.Unlock()
		if !told {
			tell()
		}
		k = c.nextCall()
	}
}

// nextCall takes a waiting call, or ends the worker.
func (c *coordClient) nextCall() *coordCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) > 0 {
		k := c.queue[0]
		c.queue[0] = nil
		if c.queue = c.queue[1:]; len(c.queue) == 0 {
			c.queue = nil
		}
		c.active[k] = struct{}{}
		return k
	}
	c.running--
	c.settle()
	return nil
}

// lose ends all calls; the library may yet carry out those that it has. Called with the lock.
func (c *coordClient) lose(err error) {
	lost := c.queue
	c.queue = nil
	for k := range c.active {
		if !k.over {
			lost = append(lost, k)
		}
	}
	for _, k := range lost {
		k.over = true
	}
	if len(lost) > 0 {
		go func() {
			for _, k := range lost {
				k.lost(err)
			}
		}()
	}
}
