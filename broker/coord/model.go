package coord

import (
	"fmt"
	"slices"
	"time"
)

// Model is a coordination service for a simulator: an ensemble that answers in
// virtual time, out of one source of chance. It keeps Client's contract and nothing
// beyond it: whatever that leaves open is drawn.
//
// Server 0 leads: a change is applied there, takes its place in the log, and reaches
// the other servers later. A session is attached to one server, reads what that server has
// applied, and hears of its watches from it; so reads are stale as an ensemble's are. The answer to a
// write, a refused one too, comes when the session's own server has caught up with it.
//
// What travels to a client on one connection arrives in order, as over TCP; what the
// client's process makes of it, calls its callbacks, comes in any order, as with
// goroutines.
//
// Not safe for concurrent use. Each method runs in an event of the simulator or between two.
type Model struct {
	cfg   ModelConfig
	sched Scheduler
	rng   ModelRand

	servers []*modelServer
	log     []Txn // what some server has not applied yet; log[0] made zxid logFrom+1
	logFrom int64

	owner       map[SessionID]*modelConn // the connection that a session was attached to last
	nextSession SessionID
	doomed      map[SessionID]bool // to be expired on the next tick: see ExpireSession
	expired     map[SessionID]time.Duration
	ticking     bool

	down    bool
	blocked map[string]bool
	clients []*ModelClient // that live, in the order of opening
	counts  ModelCounts
}

// Scheduler is a simulator's time. A client's own may hold events back while its
// process stands still, and drop them when it is dead.
type Scheduler interface {
	Now() time.Duration
	// After runs f once, d from now, never inside the call.
	After(d time.Duration, f func())
}

// ModelRand is the source of chance; *rand.Rand of math/rand/v2 is one.
type ModelRand interface{ Int64N(n int64) int64 }

// ModelConfig is how a Model behaves. Latencies are drawn between 0 and twice the given, mostly near the low end.
type ModelConfig struct {
	Servers int           // 1 to 9; with one, reads are never stale
	Latency time.Duration // one way, between client and server and between servers
	Lag     time.Duration // until a server has applied what the leader has
	Jitter  time.Duration // between what a client's connection reads and its callback
	WallMs  func() int64  // ctime and mtime; nil: the scheduler's time
	Fault   ModelFault    // planted
}

// DefaultModelConfig is an ensemble on a local network.
func DefaultModelConfig() ModelConfig {
	return ModelConfig{Servers: 3, Latency: 500 * time.Microsecond, Lag: 5 * time.Millisecond, Jitter: time.Millisecond}
}

// ModelCounts is what has happened so far.
type ModelCounts struct {
	Reads, Writes, Refused int64 // calls that reached the service; Refused are writes that changed nothing
	StaleReads             int64 // answered by a server that was behind the leader
	Watches                int64 // events sent
	Opened, Reattached     int64 // sessions
	Expired                int64
	Lost                   int64 // connections
	AppliedUnanswered      int64 // writes that were applied though their connection was gone
	DroppedUnanswered      int64 // writes that were not
	MissedWatches          int64 // events found on reconnection
}

// modelServer is one server of the ensemble.
type modelServer struct {
	tree     *Tree
	conns    map[SessionID]*modelConn // that hear of watches here
	waiting  []modelWait              // answers that wait for this server to catch up
	catching bool                     // a catch-up is scheduled
}

// modelWait is an answer that may go once the server has applied zxid.
type modelWait struct {
	zxid int64
	send func()
}

// NewModel makes a service with an empty tree.
func NewModel(sched Scheduler, rng ModelRand, cfg ModelConfig) *Model {
	if cfg.Servers < 1 || cfg.Servers > 9 {
		panic(fmt.Sprintf("BUG: coord: a model of %d servers", cfg.Servers))
	}
	m := &Model{
		cfg: cfg, sched: sched, rng: rng,
		owner: map[SessionID]*modelConn{}, doomed: map[SessionID]bool{}, expired: map[SessionID]time.Duration{}, blocked: map[string]bool{},
	}
	for range cfg.Servers {
		m.servers = append(m.servers, &modelServer{tree: NewTree(), conns: map[SessionID]*modelConn{}})
	}
	return m
}

// Tree is the leader's: what has been decided. For checkers, to read alone.
func (m *Model) Tree() *Tree { return m.servers[0].tree }

// Counts is what has happened so far.
func (m *Model) Counts() ModelCounts { return m.counts }

// ExpiredAt tells when the service expired a session.
func (m *Model) ExpiredAt(id SessionID) (at time.Duration, ok bool) {
	at, ok = m.expired[id]
	return at, ok
}

func (m *Model) nowMs() int64 { return m.sched.Now().Milliseconds() }

func (m *Model) wallMs() int64 {
	if m.cfg.WallMs != nil {
		return m.cfg.WallMs()
	}
	return m.nowMs()
}

// draw gives a duration in [0, 2·mean), mostly short ones: the less of two draws.
func (m *Model) draw(mean time.Duration) time.Duration {
	if mean <= 0 {
		return 0
	}
	return time.Duration(min(m.rng.Int64N(int64(2*mean)), m.rng.Int64N(int64(2*mean))))
}

func (m *Model) coin() bool { return m.rng.Int64N(2) == 0 }

// commit applies a transaction at the leader. reached is the zxid that a server must have applied before the outcome may be told.
func (m *Model) commit(txn Txn) (results []Result, reached int64, err error) {
	leader := m.servers[0]
	txn.Time = m.wallMs()
	before := leader.tree.Zxid()
	results, err = m.decide(&txn)
	if leader.tree.Zxid() != before {
		for _, s := range m.servers[1:] {
			m.catchUpLater(s)
		}
		m.release(leader)
		m.trimLog()
	}
	return results, leader.tree.Zxid(), err
}

// apply applies a transaction at one server and tells its watchers.
func (m *Model) apply(s *modelServer, txn Txn) ([]Result, error) {
	m.plantBefore(s.tree, txn)
	results, fired, err := s.tree.Apply(txn)
	if err != nil {
		return results, err
	}
	m.plantAfter(s.tree, txn)
	if s == m.servers[0] {
		m.log = append(m.log, txn)
	}
	for _, f := range fired {
		if c := s.conns[f.Session]; c != nil {
			m.counts.Watches++
			c.sendEvent(f.Event, s.tree.Zxid())
		}
	}
	return results, nil
}

func (m *Model) catchUpLater(s *modelServer) {
	if s.catching {
		return
	}
	s.catching = true
	m.sched.After(m.draw(m.cfg.Lag), func() {
		s.catching = false
		for s.tree.Zxid() < m.servers[0].tree.Zxid() {
			if _, err := m.apply(s, m.log[s.tree.Zxid()-m.logFrom]); err != nil {
				panic(fmt.Sprintf("BUG: coord: a server refuses transaction %d: %v", s.tree.Zxid()+1, err))
			}
		}
		m.release(s)
		m.trimLog()
	})
}

// trimLog forgets what every server has applied.
func (m *Model) trimLog() {
	low := m.servers[0].tree.Zxid()
	for _, s := range m.servers {
		low = min(low, s.tree.Zxid())
	}
	m.log = slices.Delete(m.log, 0, int(low-m.logFrom))
	m.logFrom = low
}

// whenReached runs send once s has applied zxid.
func (m *Model) whenReached(s *modelServer, zxid int64, send func()) {
	s.waiting = append(s.waiting, modelWait{zxid, send})
	m.release(s)
}

func (m *Model) release(s *modelServer) {
	ready := s.waiting
	s.waiting = nil
	for i, w := range ready {
		if w.zxid > s.tree.Zxid() {
			s.waiting = append(s.waiting, ready[i])
			continue
		}
		w.send()
	}
}

// tickLater lets sessions expire on the next boundary. It goes on while there are any.
func (m *Model) tickLater() {
	if m.ticking {
		return
	}
	m.ticking = true
	const tick = TickMs * time.Millisecond
	next := (m.sched.Now()/tick + 1) * tick
	m.sched.After(next-m.sched.Now()+m.plantedDelay(), func() {
		m.ticking = false
		if !m.down { // without a leader nothing expires
			m.expire()
		}
		if len(m.servers[0].tree.Sessions()) > 0 {
			m.tickLater()
		}
	})
}

func (m *Model) expire() {
	leader := m.servers[0].tree
	over := leader.Expired(m.nowMs())
	for _, id := range leader.Sessions() {
		if m.doomed[id] || slices.Contains(over, id) {
			delete(m.doomed, id)
			m.counts.Expired++
			m.expired[id] = m.sched.Now()
			m.endSession(id)
		}
	}
}

// endSession closes a session at the service, whatever its client thinks.
func (m *Model) endSession(id SessionID) {
	if _, _, err := m.commit(Txn{Kind: TxnCloseSession, Session: id}); err != nil {
		panic(fmt.Sprintf("BUG: coord: end of session %d: %v", id, err))
	}
	if c := m.owner[id]; c != nil {
		delete(m.owner, id)
		m.lose(c)
	}
}

// touch says that a session was heard from.
func (m *Model) touch(id SessionID) error { return m.servers[0].tree.Touch(id, m.nowMs()) }
