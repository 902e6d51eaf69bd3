package broker

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/env"
)

// member is the broker's part in a cluster whose metadata a coordination service
// keeps (zookeeper.connect). From the first session to the registration:
//
//  1. a session is opened, the tree is made where it is new, the cluster id read;
//  2. the broker takes part in the election of a controller, since the fencing
//     that step 4 waits for is the controller's work, also when all brokers died;
//  3. once no other session has the broker's id, the broker epoch is bumped: from here on no leader can add the incarnation
//     before this one to an ISR, as that write checks the epoch (KIP-903);
//  4. unless it is proven that nothing was lost since the last one that was dealt with, it waits until no partition names that incarnation as its leader
//     or in its ISR (A7: else a log that lost its tail would be counted as it was before);
//  5. it registers, in a transaction that checks the epoch.
//
// A session that expires begins again at 1 in the same process, without the
// log having lost anything: the new epoch says so by its clean epoch.
type member struct {
	b *Broker

	mu       sync.Mutex
	session  *session // the present one; nil before the first
	epoch    int64    // the broker epoch that this process registered last; -1: never
	stopping bool
	ready    func(error) // Start's, until it was called

	// registered is the broker epoch while the registration stands, else -1.
	registered atomic.Int64
	// clean is the epoch that the marks on the disks proved when the process began; -1: none.
	// Everything from chain on, up to bumped, is known to have lost nothing: this process, and
	// what the marks prove of the one before it.
	clean, chain int64

	// bumped is the newest broker epoch that this process took, registered yet or not: commands for older ones are refused (C6).
	bumped atomic.Int64
	// commandEpoch is the largest controller epoch that a command came with (C4).
	commandEpoch atomic.Int32

	election election
}

// session is one session with the coordination service. What comes back for one
// that is over does nothing.
type session struct {
	m      *member
	mu     sync.Mutex // held while the session is opened: nothing of it is heard before client is set
	client coord.Client
	over   atomic.Bool
	joined atomic.Bool // Connected was heard, and the steps begun
	began  time.Duration
	looks  atomic.Int64 // at /controller, so far; of another session's looks this one's are not outdated
}

const (
	// coordRetry is the pause before what the coordination service did not answer is tried again.
	coordRetry = 100 * time.Millisecond
	// fencedPoll is the pause before a broker looks again whether its last incarnation is fenced.
	fencedPoll = 50 * time.Millisecond
)

func newMember(b *Broker) *member {
	m := &member{b: b, epoch: -1, clean: -1, chain: -1}
	m.registered.Store(-1)
	m.bumped.Store(-1)
	m.election.m = m
	return m
}

// replicated is true where a coordination service keeps the metadata.
func (b *Broker) replicated() bool { return b.member != nil }

// join opens the first session and calls ready once the broker is registered, or cannot be.
func (m *member) join(ready func(error)) {
	m.mu.Lock()
	m.ready = ready
	m.mu.Unlock()
	m.open()
	limit := m.b.static.ZooKeeperConnectTimeout
	m.b.env.After(limit, func() {
		m.mu.Lock()
		connected := m.session != nil && m.session.joined.Load()
		m.mu.Unlock()
		if !connected {
			m.started(fmt.Errorf("zookeeper.connect=%s: no session within zookeeper.connection.timeout.ms=%d", m.b.static.ZooKeeperConnect, limit.Milliseconds()))
		}
	})
}

// started answers Start, once.
func (m *member) started(err error) {
	m.mu.Lock()
	ready := m.ready
	m.ready = nil
	if err != nil {
		m.stopping = true
	}
	m.mu.Unlock()
	if ready != nil {
		ready(err)
	}
}

// open begins a session.
func (m *member) open() {
	s := &session{m: m, began: m.b.env.Now()}
	m.mu.Lock()
	if m.stopping {
		m.mu.Unlock()
		return
	}
	m.session = s
	m.mu.Unlock()
	s.mu.Lock()
	s.client = m.b.env.OpenCoord(m.b.static.ZooKeeperSessionTimeout, s.heard)
	m.b.cluster.use(s.client)
	s.mu.Unlock()
}

// heard is what the session tells of itself.
func (s *session) heard(state coord.SessionState) {
	s.mu.Lock()
	opened := s.client != nil
	s.mu.Unlock()
	if !opened {
		panic("BUG: broker: a session is heard of inside the call that opens it")
	}
	switch state {
	case coord.Connected:
		if !s.joined.Swap(true) {
			s.makeTree(coord.PersistentPaths)
		}
	case coord.Disconnected:
		s.m.b.report(env.Warn, "the connection to the coordination service is lost")
	case coord.Expired:
		s.end()
		s.m.b.report(env.Warn, "the session with the coordination service has expired: this broker registers anew")
		s.m.open()
	}
}

// end makes a session that is over one that does nothing any more.
func (s *session) end() {
	s.over.Store(true)
	s.m.registered.Store(-1)
	s.m.election.lost(s)
}

// again tries f again after a pause, unless the session is over.
func (s *session) again(pause time.Duration, f func()) {
	s.m.b.env.After(pause, func() {
		if !s.over.Load() {
			f()
		}
	})
}

// failed handles an answer that is no answer: true when f will be tried again, or
// the session is over.
func (s *session) failed(err error, f func()) bool {
	switch {
	case s.over.Load():
		return true
	case errors.Is(err, coord.ErrSessionExpired):
		return true // Expired follows
	case errors.Is(err, coord.ErrConnectionLoss), errors.Is(err, coord.ErrThrottled):
		s.again(coordRetry, f)
		return true
	}
	return false
}

// makeTree makes the persistent nodes that are not there.
func (s *session) makeTree(paths []string) {
	if len(paths) == 0 {
		s.readClusterID()
		return
	}
	s.client.Create(paths[0], nil, coord.Persistent, func(_ string, _ coord.Stat, err error) {
		switch {
		case err == nil || errors.Is(err, coord.ErrNodeExists):
			s.makeTree(paths[1:])
		case !s.failed(err, func() { s.makeTree(paths) }):
			s.m.started(fmt.Errorf("%s: %w", paths[0], err))
		}
	})
}

// readClusterID reads the cluster's id, or gives it one.
func (s *session) readClusterID() {
	s.client.Get(coord.ClusterIDPath, nil, func(data []byte, _ coord.Stat, err error) {
		switch {
		case errors.Is(err, coord.ErrNoNode):
			id := coord.EncodeClusterID(newUUID(s.m.b.env.Rand()).String())
			s.client.Create(coord.ClusterIDPath, id, coord.Persistent, func(_ string, _ coord.Stat, err error) {
				if err == nil || errors.Is(err, coord.ErrNodeExists) {
					s.readClusterID()
				} else if !s.failed(err, s.readClusterID) {
					s.m.started(err)
				}
			})
		case err != nil:
			if !s.failed(err, s.readClusterID) {
				s.m.started(err)
			}
		default:
			s.enter(data)
		}
	})
}

// enter holds the directories against the cluster's id and goes on.
func (s *session) enter(data []byte) {
	id, err := coord.DecodeClusterID(data)
	if err == nil {
		err = s.m.b.claimDirs(id)
	}
	if err != nil {
		s.m.started(err)
		return
	}
	s.m.b.changes.run(func(release func()) {
		n := s.m.b.meta.Load().edit()
		n.clusterID = id
		s.m.b.meta.Store(n.sort())
		release()
	})
	s.m.election.campaign(s)
	s.awaitVacant()
	s.m.b.watchConfigs(s)
}

// awaitVacant waits until no other session has this broker's id: that of this broker's last process ends by itself.
// A broker that is alive and was given the same id must not be disturbed, as a bump of the epoch would.
func (s *session) awaitVacant() {
	s.client.Get(coord.BrokerIDPath(s.m.b.static.BrokerID), nil, func(data []byte, st coord.Stat, err error) {
		switch {
		case errors.Is(err, coord.ErrNoNode) || err == nil && st.EphemeralOwner == s.client.Session():
			s.bumpEpoch()
		case err == nil:
			s.occupied(data)
			s.again(coordRetry, s.awaitVacant)
		case !s.failed(err, s.awaitVacant):
			s.m.started(err)
		}
	})
}

// occupied gives a start up when somebody else has the id for longer than the session of a dead process lasts.
func (s *session) occupied(data []byte) {
	b := s.m.b
	if b.env.Now()-s.began <= 2*b.static.ZooKeeperSessionTimeout+b.static.ZooKeeperConnectTimeout {
		return
	}
	other := "somebody"
	if r, err := coord.DecodeBrokerRegistration(data); err == nil {
		other = r.Host + ":" + strconv.Itoa(int(r.Port))
	}
	s.m.started(fmt.Errorf("broker.id=%d is in use: %s has registered with it and is alive; give this broker another broker.id", b.static.BrokerID, other))
}

// bumpEpoch takes the next broker epoch for this incarnation: the version of a node.
func (s *session) bumpEpoch() {
	path := coord.BrokerEpochPath(s.m.b.static.BrokerID)
	s.client.Exists(path, nil, func(st coord.Stat, err error) {
		switch {
		case errors.Is(err, coord.ErrNoNode):
			s.client.Create(path, nil, coord.Persistent, func(_ string, _ coord.Stat, err error) {
				if err == nil || errors.Is(err, coord.ErrNodeExists) {
					s.bumpEpoch()
				} else if !s.failed(err, s.bumpEpoch) {
					s.m.started(err)
				}
			})
		case err != nil:
			if !s.failed(err, s.bumpEpoch) {
				s.m.started(err)
			}
		default:
			s.client.Set(path, nil, st.Version, func(st coord.Stat, err error) {
				if err == nil {
					s.awaitFenced(s.m.took(int64(st.Version)))
				} else if errors.Is(err, coord.ErrBadVersion) || !s.failed(err, s.bumpEpoch) {
					s.again(0, s.bumpEpoch) // somebody else, or this call before its answer was lost
				}
			})
		}
	})
}

// incarnation is what a registration says of itself: its broker epoch, and the one before
// it of which the logs hold everything (-1: none is proven). cleanRun says how far back that goes:
// cleanRun epochs before 'clean' lost nothing either.
type incarnation struct{ epoch, clean, cleanRun int64 }

// took notes the broker epoch that this process has just taken. The one before is the
// process's own, which has lost nothing since, or that of a clean shutdown.
func (m *member) took(epoch int64) incarnation {
	before := m.bumped.Swap(epoch)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case before >= 0 && m.b.anyOffline(): // what that directory holds nobody knows
		m.chain = epoch
		return incarnation{epoch, -1, 0}
	case before >= 0:
		m.b.noteRunning(epoch, m.chain)
		return incarnation{epoch, before, before - m.chain}
	}
	var since int64
	m.clean, since = m.b.proven()
	if m.chain = epoch; m.clean >= 0 && m.clean == epoch-1 {
		m.chain = since
	}
	m.b.noteRunning(epoch, m.chain)
	return incarnation{epoch, m.clean, m.clean - since}
}

// proven is the broker epoch of which all directories prove that they hold everything: it was
// shut down cleanly, or its process was killed on a machine that has run on meanwhile; -1: none.
// From since on nothing was lost in any epoch.
func (b *Broker) proven() (epoch, since int64) {
	of := func(d *logDir) (epoch, since int64) {
		survived, since := d.store.SurvivedEpoch(b.env.BootID())
		clean := d.store.CleanEpoch()
		switch {
		case clean >= 0 && clean == survived, clean < 0 && !d.unopened.Load():
			return survived, since
		}
		return clean, clean
	}
	epoch, since = of(b.dirs[0])
	for _, d := range b.dirs[1:] {
		e, s := of(d)
		if e != epoch {
			return -1, -1
		}
		since = max(since, s)
	}
	return epoch, since
}

// noteRunning leaves on each disk what proves, after a kill, that nothing was lost. It comes
// before the registration: a process that dies right after that has its proof.
func (b *Broker) noteRunning(epoch, since int64) {
	for _, d := range b.dirs {
		if err := d.store.NoteRunning(epoch, since, b.env.BootID()); err != nil {
			b.report(env.Warn, "log directory %s: %v: a kill of this process will count as a power cut", d.path, err)
		}
	}
}

// register makes the ephemeral node that says that the broker is there.
func (s *session) register(i incarnation) {
	b := s.m.b
	host, port := b.advertised(b.static.Listeners[0])
	registration := coord.BrokerRegistration{
		Host: host, Port: port, Timestamp: b.env.Wall().UnixMilli(), Rack: b.static.Rack,
		BrokerEpoch: i.epoch, CleanEpoch: i.clean, CleanRun: i.cleanRun,
	}
	path := coord.BrokerIDPath(b.static.BrokerID)
	ops := []coord.Op{
		coord.CheckOp(coord.BrokerEpochPath(b.static.BrokerID), int32(i.epoch)),
		coord.CreateOp(path, registration.Encode(), coord.Ephemeral),
	}
	again := func() { s.register(i) }
	b.serve() // the controller speaks as soon as it sees the node
	s.client.Multi(ops, func(_ []coord.Result, err error) {
		switch {
		case err == nil:
			s.registered(i.epoch)
		case errors.Is(err, coord.ErrBadVersion):
			s.bumpEpoch() // another process of this id began, or the service forgot
		case errors.Is(err, coord.ErrNodeExists):
			s.registeredBefore(path, i.epoch, again)
		case !s.failed(err, again):
			s.m.started(err)
		}
	})
}

// registeredBefore looks whose the registration is that is there: this session's, whose
// answer was lost, that of a process which is dead but whose session is not over, or another
// broker's with the same id.
func (s *session) registeredBefore(path string, epoch int64, again func()) {
	s.client.Get(path, nil, func(data []byte, st coord.Stat, err error) {
		switch {
		case err == nil && st.EphemeralOwner == s.client.Session():
			s.registered(epoch)
		case err == nil:
			s.occupied(data)
			s.again(coordRetry, again)
		case errors.Is(err, coord.ErrNoNode):
			s.again(coordRetry, again)
		default:
			s.failed(err, again)
		}
	})
}

func (s *session) registered(epoch int64) {
	s.m.mu.Lock()
	s.m.epoch = epoch
	s.m.mu.Unlock()
	if s.over.Load() {
		return
	}
	s.m.registered.Store(epoch)
	if s.m.b.anyOffline() && s.m.b.rules.TellLogDirFailure { // since the controller's first command perhaps, which may have come before this
		s.m.b.tellDirFailed(epoch)
	}
	s.m.b.report(env.Info, "broker %d is registered with broker epoch %d", s.m.b.static.BrokerID, epoch)
	s.m.started(nil)
}

// leave ends the session, so that the registration goes at once.
func (m *member) leave(done func(error)) {
	m.mu.Lock()
	m.stopping = true
	s := m.session
	m.mu.Unlock()
	if s == nil {
		done(nil)
		return
	}
	s.end()
	s.client.Close(func(error) { done(nil) }) // its timeout ends it where the service does not hear
}
