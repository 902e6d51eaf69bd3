package zkserver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// password proves that a session is the peer's own. It follows from the session
// and a secret, so that it also holds after a restart.
func (c *core) password(id coord.SessionID) []byte {
	mac := hmac.New(sha256.New, c.secret)
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(id))
	mac.Write(b[:])
	return mac.Sum(nil)[:passwordBytes]
}

// sessionTime is the clock of expiry, in ms. It advances by ticks, and no further than
// one tick past the last: while the server itself stood still it heard nobody,
// so that time does not count against its sessions.
func (c *core) sessionTime() int64 {
	return c.ticks*coord.TickMs + min((c.now()-c.tickedAt).Milliseconds(), coord.TickMs)
}

func (c *core) touch(conn *conn) {
	if err := c.tree.TouchFor(conn.session, c.sessionTime(), conn.timeoutMs); err != nil {
		panic("BUG: zkserver: a connection holds a session that is not open")
	}
}

// tick ends the sessions that were silent too long.
func (c *core) tick() {
	c.ticks++
	c.tickedAt = c.now()
	for _, id := range c.tree.Expired(c.ticks * coord.TickMs) {
		c.log.Info("session expired", "id", hex(id))
		c.stats.expired.Add(1)
		c.endSession(id)
	}
}

// endSession removes a session with its ephemerals, and closes its connection once what is queued there was sent.
func (c *core) endSession(id coord.SessionID) bool {
	if _, err := c.apply(coord.Txn{Kind: coord.TxnCloseSession, Session: id}); err != nil {
		return false // it was not open
	}
	if conn := c.sessions[id]; conn != nil {
		delete(c.sessions, id)
		c.finish(conn)
	}
	return true
}

// finish closes a connection after its output, this batch's included, was written.
func (c *core) finish(conn *conn) {
	conn.finished = true
	c.dirty(conn)
}

// connect gives a connection its session: a new one, or the one it comes back to.
func (c *core) connect(conn *conn, q connectRequest) {
	if q.session == 0 {
		c.open(conn, q)
		return
	}
	// A session that is unknown here has expired, also where the peer has seen a later state: a server that
	// lost its memory is the only one there is, and "try another" would keep the peer waiting for ever.
	if !c.tree.HasSession(q.session) || !hmac.Equal(q.password, c.password(q.session)) {
		c.log.Info("session refused: it has expired, or the password is wrong", "id", hex(q.session), "peer", conn.peer)
		c.raw(conn, appendConnectReply(nil, 0, 0, make([]byte, passwordBytes), q.hasReadOnly))
		c.finish(conn)
		return
	}
	if q.lastZxidSeen > c.tree.Zxid() { // as ZooKeeper does: what the peer has seen must not be taken back
		c.log.Warn("connection refused: the peer has seen a later state than ours", "peer", conn.peer)
		c.finish(conn)
		return
	}
	if old := c.sessions[q.session]; old != nil { // the peer's old connection may still seem alive
		delete(c.sessions, q.session)
		c.finish(old)
	}
	c.tree.ForgetWatches(q.session) // they belonged to the old connection; the peer sets them again
	c.hold(conn, q.session, q)
}

func (c *core) open(conn *conn, q connectRequest) {
	if q.lastZxidSeen > c.tree.Zxid() {
		c.log.Warn("connection refused: the peer has seen a later state than ours", "peer", conn.peer)
		c.finish(conn)
		return
	}
	// From the wall clock, so that a server which lost its memory does not give out an id again.
	id := max(coord.SessionID(c.wall().UnixMilli())<<20, c.lastID+1)
	for c.tree.HasSession(id) {
		id++
	}
	c.lastID = id
	if _, err := c.apply(coord.Txn{Kind: coord.TxnOpenSession, Session: id, Timeout: int64(q.timeoutMs)}); err != nil {
		panic("BUG: zkserver: a fresh session could not be opened: " + err.Error())
	}
	c.hold(conn, id, q)
}

// hold binds a session to a connection and says so. As in ZooKeeper, the timeout is
// negotiated with each connection, also with one that comes back to a session.
func (c *core) hold(conn *conn, id coord.SessionID, q connectRequest) {
	c.sessions[id] = conn
	conn.session, conn.timeoutMs = id, coord.NegotiateTimeout(int64(q.timeoutMs))
	c.touch(conn)
	c.raw(conn, appendConnectReply(nil, id, conn.timeoutMs, c.password(id), q.hasReadOnly))
}

// disconnected forgets a connection. Its session lives on until it is silent too long.
func (c *core) disconnected(conn *conn) {
	if conn.session != 0 && c.sessions[conn.session] == conn {
		delete(c.sessions, conn.session)
		c.tree.ForgetWatches(conn.session)
	}
}
