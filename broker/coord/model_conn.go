package coord

import (
	"slices"
	"time"
)

// modelConn is one connection of a client to a server.
type modelConn struct {
	m       *Model
	client  *ModelClient
	server  *modelServer
	session SessionID
	lost    bool          // by the service or on the way; the client may not know yet
	wrote   bool          // a write of it was applied, so that none of an earlier connection may be
	frames  []func()      // on their way to the client, in order
	heard   time.Duration // when the service last heard from it
}

// send puts a frame on the way to the client.
func (c *modelConn) send(frame func()) {
	if c.lost {
		return
	}
	c.frames = append(c.frames, frame)
	c.client.sched.After(c.m.draw(c.m.cfg.Latency), func() {
		if len(c.frames) == 0 || c.client.conn != c {
			return
		}
		next := c.frames[0]
		c.frames = c.frames[1:]
		next()
	})
}

func (c *modelConn) sendEvent(e Event, zxid int64) {
	c.send(func() { c.client.event(e, zxid) })
}

// lose breaks a connection; nil is none. Some of what is on the way to the client may still
// come through, in order, before the client notices.
func (m *Model) lose(c *modelConn) {
	if c == nil || c.lost {
		return
	}
	c.lost = true
	m.counts.Lost++
	m.detach(c)
	c.frames = c.frames[:m.rng.Int64N(int64(len(c.frames))+1)]
	// A reset is noticed soon; silence when two thirds of the timeout have gone without an answer.
	notice := m.draw(m.cfg.Latency)
	if silence := c.client.timeout*2/3 - (m.sched.Now() - c.heard); silence > 0 && m.coin() {
		notice = time.Duration(m.rng.Int64N(int64(silence)))
	}
	c.client.sched.After(notice, func() { c.client.noticeLoss(c) })
}

// detach ends a connection at its server.
func (m *Model) detach(c *modelConn) {
	if c.server.conns[c.session] == c {
		delete(c.server.conns, c.session)
		c.server.tree.watches.forget(c.session)
	}
}

// accept attaches a client to a server: a new session, the old one again, or word that it has expired.
func (m *Model) accept(c *ModelClient, zxid int64) {
	if c.ended || c.conn != nil {
		return
	}
	if !m.reachable(c) {
		c.stranded = true
		return
	}
	conn := &modelConn{m: m, client: c, server: m.pickServer(zxid), session: c.session}
	c.conn = conn
	if c.session == 0 {
		m.openSession(conn)
		return
	}
	if m.touch(c.session) != nil {
		conn.send(c.expire)
		return
	}
	m.counts.Reattached++
	if old := m.owner[c.session]; old != nil {
		old.lost = true
		m.detach(old)
	}
	m.attach(conn)
	conn.send(func() { c.connected(conn.session) })
	m.setWatches(conn, zxid)
}

func (m *Model) attach(conn *modelConn) {
	conn.heard = m.sched.Now()
	m.owner[conn.session] = conn
	conn.server.conns[conn.session] = conn
}

func (m *Model) openSession(conn *modelConn) {
	m.counts.Opened++
	m.nextSession++
	conn.session = m.nextSession<<8 | 0x10 // not to be taken for a broker's id
	_, reached, err := m.commit(Txn{Kind: TxnOpenSession, Session: conn.session, Timeout: conn.client.timeout.Milliseconds()})
	if err != nil {
		panic("BUG: coord: open a session: " + err.Error())
	}
	_ = m.touch(conn.session)
	m.tickLater()
	m.attach(conn)
	m.whenReached(conn.server, reached, func() {
		conn.send(func() { conn.client.connected(conn.session) })
	})
}

// pickServer draws one that has applied what the client has seen. The leader always has.
func (m *Model) pickServer(zxid int64) *modelServer {
	for {
		s := m.servers[m.rng.Int64N(int64(len(m.servers)))]
		if s.tree.Zxid() >= zxid || m.planted(FaultGoesBack) {
			return s
		}
	}
}

// setWatches sets a client's watches again, or fires those whose node has changed since zxid, as
// ZooKeeper's request of that name.
func (m *Model) setWatches(conn *modelConn, zxid int64) {
	if m.planted(FaultWatchLost) {
		return
	}
	tree := conn.server.tree
	for kind, watches := range conn.client.watches {
		for _, path := range sortedKeys(watches) {
			if e, ok := missedEvent(tree, watchTable(kind), path, zxid); ok {
				m.counts.MissedWatches++
				if !m.planted(FaultMissedChange) {
					conn.sendEvent(e, tree.Zxid())
				}
				continue
			}
			tree.Watch(watchTable(kind).kind(), path, conn.session)
		}
	}
}

// missedEvent is what a watch would have seen after zxid.
func missedEvent(t *Tree, table watchTable, path string, zxid int64) (Event, bool) {
	n := t.nodes[path]
	switch {
	case table == tableExists:
		return Event{NodeCreated, path}, n != nil
	case n == nil:
		return Event{NodeDeleted, path}, true
	case table == tableData:
		return Event{NodeDataChanged, path}, n.stat.Mzxid > zxid
	}
	return Event{NodeChildrenChanged, path}, n.stat.Pzxid > zxid
}

// arrive is a request at the client's server.
func (m *Model) arrive(conn *modelConn, k *modelCall) {
	if m.gone(conn, k) {
		return
	}
	m.hear(conn)
	if k.read != nil {
		m.counts.Reads++
		if conn.server.tree.Zxid() < m.servers[0].tree.Zxid() {
			m.counts.StaleReads++
		}
		zxid := conn.server.tree.Zxid()
		r := k.read(conn.server.tree)
		if table, ok := k.watches(r.err); ok && conn.server.conns[conn.session] == conn {
			conn.server.tree.Watch(table.kind(), k.path, conn.session)
		}
		conn.send(func() { conn.client.reply(k, r, zxid) })
		return
	}
	if conn.server == m.servers[0] {
		m.write(conn, k)
		return
	}
	m.sched.After(m.draw(m.cfg.Latency), func() {
		if !m.gone(conn, k) {
			m.write(conn, k)
		}
	})
}

// hear is any sign of life that comes over a connection.
func (m *Model) hear(conn *modelConn) {
	if conn.lost || m.owner[conn.session] != conn {
		return
	}
	conn.heard = m.sched.Now()
	_ = m.touch(conn.session) // an owner's session is there
}

// gone drops a request of a lost connection, or not: it may have been on the way. Once a later
// write of the client was applied, it is dropped for sure.
func (m *Model) gone(conn *modelConn, k *modelCall) bool {
	if !conn.lost {
		return false
	}
	if m.planted(FaultAppliedLate) && k.read == nil {
		return m.delayed(conn, k)
	}
	owner := m.owner[conn.session]
	superseded := owner != nil && owner != conn && owner.wrote
	if m.down || k.read != nil || superseded || m.coin() {
		if k.read == nil {
			m.counts.DroppedUnanswered++
		}
		return true
	}
	return false
}

// write is a change, or a close, at the leader.
func (m *Model) write(conn *modelConn, k *modelCall) {
	if _, ok := m.servers[0].tree.sessions[conn.session]; !ok && !m.planted(FaultZombieWrites) {
		m.answer(conn, k, modelReply{err: ErrSessionExpired}, m.servers[0].tree.Zxid())
		return
	}
	m.counts.Writes++
	if m.owner[conn.session] == conn {
		conn.wrote = true
	}
	results, reached, err := m.commit(Txn{Kind: k.kind, Session: conn.session, Ops: k.ops})
	if err != nil {
		m.counts.Refused++
	} else if conn.lost {
		m.counts.AppliedUnanswered++
	}
	m.answer(conn, k, modelReply{results: slices.Clone(results), err: err}, reached)
	if k.kind == TxnCloseSession && err == nil {
		delete(m.owner, conn.session)
		delete(m.doomed, conn.session)
		m.detach(conn)
	}
}

func (m *Model) answer(conn *modelConn, k *modelCall, r modelReply, reached int64) {
	if m.planted(FaultWriteUnseen) {
		reached = 0
	}
	m.whenReached(conn.server, reached, func() {
		zxid := conn.server.tree.Zxid()
		conn.send(func() { conn.client.reply(k, r, zxid) })
	})
}
