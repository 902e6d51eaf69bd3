package coord

import (
	"slices"
	"time"
)

// Block keeps a peer from the service until Unblock: its connections are lost, and none come about.
func (m *Model) Block(peer string) {
	m.blocked[peer] = true
	m.Drop(peer)
}

// Unblock lets a peer connect again.
func (m *Model) Unblock(peer string) {
	delete(m.blocked, peer)
	m.wake()
}

// Drop loses the connections that a peer has; its clients connect again.
func (m *Model) Drop(peer string) {
	for _, c := range slices.Clone(m.clients) {
		if c.peer == peer {
			m.lose(c.conn)
		}
	}
}

// Down makes the service unavailable to all until Up. No session expires meanwhile.
func (m *Model) Down() {
	m.down = true
	for _, c := range slices.Clone(m.clients) {
		m.lose(c.conn)
	}
}

// Up ends Down: every session has its whole timeout again, as after the election of a leader.
func (m *Model) Up() {
	if !m.down {
		return
	}
	m.down = false
	for _, id := range m.servers[0].tree.Sessions() {
		_ = m.touch(id) // it is there
	}
	m.wake()
}

// IsDown says whether the service is unavailable.
func (m *Model) IsDown() bool { return m.down }

// ExpireSession ends a session on the next tick boundary, however alive its client is.
func (m *Model) ExpireSession(id SessionID) {
	if _, ok := m.servers[0].tree.sessions[id]; ok {
		m.doomed[id] = true
	}
}

// wake lets the clients connect that could not.
func (m *Model) wake() {
	for _, c := range slices.Clone(m.clients) {
		if c.stranded && m.reachable(c) {
			c.stranded = false
			c.connect()
		}
	}
}

func (m *Model) reachable(c *ModelClient) bool { return !m.down && !m.blocked[c.peer] }

// ModelFault is a breach of the contract, planted to see it caught.
type ModelFault string

const (
	FaultNone             ModelFault = ""
	FaultWatchLost        ModelFault = "watch-lost-on-reconnect"         // watches are not set again
	FaultMissedChange     ModelFault = "missed-change-lost"              // set again, but what was missed does not fire
	FaultEphemeralStays   ModelFault = "ephemeral-survives-expiry"       //
	FaultMultiInPart      ModelFault = "multi-applied-in-part"           // up to the operation that fails
	FaultVersionIgnored   ModelFault = "version-ignored"                 // of set, delete and check
	FaultSequenceReused   ModelFault = "sequence-reused"                 // a deletion gives the number back
	FaultExpiryOffTick    ModelFault = "expiry-off-tick"                 //
	FaultAppliedLate      ModelFault = "applied-after-later-write"       // a request of a lost connection
	FaultGoesBack         ModelFault = "goes-back-on-reconnect"          // to a server that is behind
	FaultQueuedCalls      ModelFault = "calls-wait-for-reconnection"     // instead of ending
	FaultWatchTwice       ModelFault = "watch-fires-twice"               //
	FaultWatchBeforeCall  ModelFault = "watch-before-its-call"           //
	FaultWriteUnseen      ModelFault = "write-answered-before-visible"   // to the writer's own reads
	FaultZombieWrites     ModelFault = "expired-session-writes"          // its writes are still applied
	FaultExpiredTwice     ModelFault = "expired-told-twice"              //
	FaultInsideCall       ModelFault = "answer-inside-call"              // of a call while disconnected
	FaultTimeoutAsAsked   ModelFault = "timeout-not-negotiated"          // as long as the client likes
	FaultLossUnreported   ModelFault = "calls-in-flight-left-unanswered" //
	FaultWatchAfterExpiry ModelFault = "watch-fires-after-expiry"        //
)

// ModelFaults are all of them.
var ModelFaults = []ModelFault{
	FaultWatchLost, FaultMissedChange, FaultEphemeralStays, FaultMultiInPart, FaultVersionIgnored, FaultSequenceReused,
	FaultExpiryOffTick, FaultAppliedLate, FaultGoesBack, FaultQueuedCalls, FaultWatchTwice, FaultWatchBeforeCall,
	FaultWriteUnseen, FaultZombieWrites, FaultExpiredTwice, FaultInsideCall, FaultTimeoutAsAsked, FaultLossUnreported, FaultWatchAfterExpiry,
}

func (m *Model) planted(f ModelFault) bool { return m.cfg.Fault == f }

// decide is apply at the leader, with the faults of deciding.
func (m *Model) decide(txn *Txn) ([]Result, error) {
	if m.planted(FaultVersionIgnored) {
		txn.Ops = slices.Clone(txn.Ops)
		for i := range txn.Ops {
			txn.Ops[i].Version = AnyVersion
		}
	}
	results, err := m.apply(m.servers[0], *txn)
	if err != nil && m.planted(FaultMultiInPart) {
		failed := slices.IndexFunc(results, func(r Result) bool { return r.Err != nil })
		if failed > 0 {
			part := *txn
			part.Ops = txn.Ops[:failed]
			_, _ = m.apply(m.servers[0], part)
		}
	}
	return results, err
}

func (m *Model) plantBefore(t *Tree, txn Txn) {
	if s := t.sessions[txn.Session]; s != nil && txn.Kind == TxnCloseSession && m.planted(FaultEphemeralStays) {
		clear(s.ephemerals)
	}
}

func (m *Model) plantAfter(t *Tree, txn Txn) {
	if s := t.sessions[txn.Session]; s != nil && txn.Kind == TxnOpenSession && m.planted(FaultTimeoutAsAsked) {
		s.timeout = txn.Timeout
	}
	if !m.planted(FaultSequenceReused) {
		return
	}
	for _, op := range txn.Ops {
		if parent, _ := Split(op.Path); op.Kind == OpDelete && t.nodes[parent] != nil {
			t.nodes[parent].creates--
		}
	}
}

func (m *Model) plantedDelay() time.Duration {
	if m.planted(FaultExpiryOffTick) {
		return 700 * time.Millisecond
	}
	return 0
}

// plantedLastWords fires every watch of a session that has expired, as some client libraries do.
func (c *ModelClient) plantedLastWords() {
	if !c.m.planted(FaultWatchAfterExpiry) {
		return
	}
	for table := range c.watches {
		for _, path := range sortedKeys(c.watches[table]) {
			for _, w := range c.watches[table][path] {
				w.f(Event{NodeDeleted, path})
			}
		}
	}
}

// delayed holds a write of a lost connection back until its client has long written again.
func (m *Model) delayed(conn *modelConn, k *modelCall) bool {
	if k.late {
		return false
	}
	k.late = true
	m.sched.After(30*time.Second, func() { m.write(conn, k) })
	return true
}
