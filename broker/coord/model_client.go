package coord

import (
	"slices"
	"time"
)

// ModelClient is a Client of a Model.
type ModelClient struct {
	m       *Model
	sched   Scheduler // of the client's process
	peer    string
	timeout time.Duration // negotiated
	state   func(SessionState)

	session  SessionID
	zxid     int64 // the newest that it has seen
	conn     *modelConn
	online   bool // Connected was told last
	stranded bool // it waits for the service to be reachable
	closing  bool // Close was called
	ended    bool // expired, closed or abandoned
	// abandoned is the end of the process: nothing of it runs any more.
	abandoned bool

	next    int64
	calls   map[int64]*modelCall // not answered yet, by order of coming; bound: modelInFlightMax
	watches [3]map[string][]*modelWatch
	queued  []*modelCall // FaultQueuedCalls alone
}

var _ Client = (*ModelClient)(nil)

// modelInFlightMax is how many calls of a client may be unanswered; more get ErrThrottled.
const modelInFlightMax = 1 << 16

// watchTable tells apart what reconnection must: ZooKeeper's clients keep the same three.
type watchTable int

const (
	tableData   watchTable = iota // of a node that was there
	tableExists                   // of one that was not
	tableChild
)

func (t watchTable) kind() WatchKind {
	if t == tableChild {
		return WatchChildren
	}
	return WatchData
}

// modelWatch is a callback that is set.
type modelWatch struct {
	f    func(Event)
	call *modelCall // that set it
}

// modelReply is what a call is answered with.
type modelReply struct {
	results []Result
	data    []byte
	stat    Stat
	names   []string
	err     error
}

// modelCall is one call.
type modelCall struct {
	n     int64
	kind  TxnKind // of a write
	ops   []Op
	read  func(*Tree) modelReply // of a read
	table watchTable             // of a read that watches
	path  string
	watch func(Event)
	done  func(modelReply)

	late     bool     // FaultAppliedLate alone
	answered bool     // done is on its way
	ended    bool     // done has run
	then     []func() // watches that must not come before it
}

// watches says whether an outcome sets the call's watch, and which.
func (k *modelCall) watches(err error) (watchTable, bool) {
	switch {
	case k.watch == nil:
	case err == nil:
		if k.table == tableExists {
			return tableData, true
		}
		return k.table, true
	case err == ErrNoNode && k.table == tableExists:
		return tableExists, true
	}
	return 0, false
}

// Open opens a session for a process. peer names it for Block and Drop; everything that happens in the process
// runs on its scheduler. A process that dies must Abandon its clients.
func (m *Model) Open(sched Scheduler, peer string, timeout time.Duration, state func(SessionState)) *ModelClient {
	c := &ModelClient{
		m: m, sched: sched, peer: peer, state: state, calls: map[int64]*modelCall{},
		timeout: time.Duration(NegotiateTimeout(timeout.Milliseconds())) * time.Millisecond,
	}
	if m.planted(FaultTimeoutAsAsked) {
		c.timeout = timeout
	}
	for i := range c.watches {
		c.watches[i] = map[string][]*modelWatch{}
	}
	m.clients = append(m.clients, c)
	c.connect()
	return c
}

// Abandon is the death of the client's process: no callback runs any more, the connection
// is gone, and the session lives until its timeout is over.
func (c *ModelClient) Abandon() {
	c.m.lose(c.conn)
	c.abandoned = true
	c.end()
}

// end takes the client out of the service's sight.
func (c *ModelClient) end() {
	c.ended, c.conn, c.online = true, nil, false
	for i := range c.watches {
		clear(c.watches[i])
	}
	c.m.clients = slices.DeleteFunc(c.m.clients, func(other *ModelClient) bool { return other == c })
}

// connect tries to reach a server, a while from now.
func (c *ModelClient) connect() {
	c.sched.After(c.m.draw(c.m.cfg.Jitter), func() {
		zxid := c.zxid
		c.m.sched.After(c.m.draw(c.m.cfg.Latency), func() { c.m.accept(c, zxid) })
	})
}

// connected is the service's word that the session stands.
func (c *ModelClient) connected(session SessionID) {
	if c.ended || c.closing {
		return
	}
	c.session, c.online = session, true
	c.pingLater(c.conn)
	c.tell(Connected)
	queued := c.queued
	c.queued = nil
	for _, k := range queued {
		c.begin(k)
	}
}

// tell tells the state inside an event of the client's process.
func (c *ModelClient) tell(s SessionState) {
	if !c.closing && c.state != nil {
		c.state(s)
	}
}

// pingLater keeps an idle session alive, from the client's process: one that stands still does not ping.
func (c *ModelClient) pingLater(conn *modelConn) {
	c.sched.After(c.timeout/3, func() {
		if c.conn != conn || c.ended {
			return
		}
		c.m.sched.After(c.m.draw(c.m.cfg.Latency), func() { c.m.hear(conn) })
		c.pingLater(conn)
	})
}

// noticeLoss is the client seeing that a connection is gone.
func (c *ModelClient) noticeLoss(conn *modelConn) {
	if c.conn != conn || c.ended {
		return
	}
	told := c.online
	c.conn, c.online = nil, false
	if !c.m.planted(FaultLossUnreported) {
		c.failAll(ErrConnectionLoss)
	}
	if c.closing { // the timeout ends the session
		c.end()
		return
	}
	if told {
		c.tell(Disconnected)
	}
	if !c.ended { // told may have abandoned it
		c.connect()
	}
}

// expire is the service's word that the session is gone.
func (c *ModelClient) expire() {
	if c.ended {
		return
	}
	c.plantedLastWords()
	c.end()
	c.failAll(ErrSessionExpired)
	c.tell(Expired)
	if c.m.planted(FaultExpiredTwice) {
		c.tell(Expired)
	}
}

// failAll ends every call that has no answer.
func (c *ModelClient) failAll(err error) {
	for _, n := range sortedKeys(c.calls) {
		c.reply(c.calls[n], modelReply{err: err}, 0)
	}
}

// begin sends a call to the service, or answers it when it cannot go.
func (c *ModelClient) begin(k *modelCall) {
	switch {
	case c.ended || c.closing && k.kind != TxnCloseSession:
		c.refuse(k, ErrSessionExpired)
	case !c.online && c.m.planted(FaultQueuedCalls):
		c.queued = append(c.queued, k)
	case !c.online && c.m.planted(FaultInsideCall):
		k.done(modelReply{err: ErrConnectionLoss})
	case !c.online:
		c.refuse(k, ErrConnectionLoss)
	case len(c.calls) >= modelInFlightMax:
		c.refuse(k, ErrThrottled)
	default:
		c.next++
		k.n = c.next
		c.calls[k.n] = k
		conn := c.conn
		c.m.sched.After(c.m.draw(c.m.cfg.Jitter)+c.m.draw(c.m.cfg.Latency), func() { c.m.arrive(conn, k) })
	}
}

// refuse answers a call that was not sent.
func (c *ModelClient) refuse(k *modelCall, err error) {
	c.soon(func() { k.done(modelReply{err: err}) })
}

// reply is an answer that the connection has read: the watch stands, and done runs soon.
func (c *ModelClient) reply(k *modelCall, r modelReply, zxid int64) {
	if k.answered {
		return
	}
	k.answered = true
	c.zxid = max(c.zxid, zxid)
	delete(c.calls, k.n)
	if table, ok := k.watches(r.err); ok && !c.ended {
		c.watches[table][k.path] = append(c.watches[table][k.path], &modelWatch{k.watch, k})
	}
	c.soon(func() {
		k.ended = true
		k.done(r)
		for _, f := range k.then {
			c.soon(f)
		}
		k.then = nil
	})
}

// soon runs f in an event of the client's process, after others or before.
func (c *ModelClient) soon(f func()) {
	c.sched.After(c.m.draw(c.m.cfg.Jitter), func() {
		if !c.abandoned {
			f()
		}
	})
}

// event is an event that the connection has read.
func (c *ModelClient) event(e Event, zxid int64) {
	c.zxid = max(c.zxid, zxid)
	tables := []watchTable{tableData, tableExists}
	switch e.Type {
	case NodeChildrenChanged:
		tables = []watchTable{tableChild}
	case NodeDeleted:
		tables = []watchTable{tableData, tableExists, tableChild}
	}
	for _, table := range tables {
		watches := c.watches[table][e.Path]
		delete(c.watches[table], e.Path)
		for _, w := range watches {
			c.fire(w, e)
			if c.m.planted(FaultWatchTwice) {
				c.fire(w, e)
			}
		}
	}
}

// fire runs a watch, but not before the call that set it is done, and not after the session's end.
func (c *ModelClient) fire(w *modelWatch, e Event) {
	run := func() {
		if !c.ended && !c.closing {
			w.f(e)
		}
	}
	if w.call.ended || c.m.planted(FaultWatchBeforeCall) {
		c.soon(run)
		return
	}
	w.call.then = append(w.call.then, run)
}
