package zkserver

import (
	"errors"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// What one connection may watch, and the bytes of the paths.
const (
	watchesMax    = 1 << 17
	watchBytesMax = 32 << 20
)

// answer carries out one request of a connection and queues the reply.
func (c *core) answer(conn *conn, q *request) {
	body, code := c.scratch[:0], q.code
	if code == codeOK {
		body, code = c.carryOut(body, conn, q)
	}
	c.scratch = body[:0]
	conn.answered(q)
	c.latency.add(c.now() - q.at)
	if code == coord.ErrTooLarge.Code { // ZooKeeper's answer to what is too large
		c.log.Warn("connection dropped: data over the limit", "peer", conn.peer)
		c.finish(conn)
		return
	}
	if code != codeOK {
		body = nil
	}
	c.output(conn, q.xid, c.tree.Zxid(), code, body)
	if q.op == opCloseSession {
		c.endSession(conn.session)
		return
	}
	if watches, bytes := c.tree.WatchesOf(conn.session); watches > watchesMax || bytes > watchBytesMax {
		c.log.Warn("connection dropped: it watches too much", "peer", conn.peer, "watches", watches, "bytes of paths", bytes)
		c.finish(conn)
	}
}

// carryOut appends the reply's body, or gives an error's code.
func (c *core) carryOut(b []byte, conn *conn, q *request) ([]byte, int32) {
	switch q.op {
	case opPing, opAuth, opCloseSession:
		return b, codeOK
	case opSetWatches:
		c.setWatches(conn, q)
		return b, codeOK
	case opCreate, opCreate2, opDelete, opSetData, opCheck:
		results, err := c.apply(coord.Txn{Kind: coord.TxnOps, Session: conn.session, Ops: q.ops})
		if err != nil {
			return b, codeOf(err)
		}
		return c.appendResult(b, q.op, results[0]), codeOK
	case opMulti:
		results, err := c.apply(coord.Txn{Kind: coord.TxnOps, Session: conn.session, Ops: q.ops})
		if err == coord.ErrTooLarge {
			return b, codeOf(err)
		}
		return c.appendMulti(b, q.kinds, results, err), codeOK
	case opMultiRead:
		return c.multiRead(b, q), codeOK
	case opSync:
		return appendString(b, q.path), codeOK // every answer here shows the newest state
	}
	return c.read(b, conn, q)
}

// appendResult encodes what became of a change. A check has no result of its own; alone it gets the node's metadata.
func (c *core) appendResult(b []byte, op int32, r coord.Result) []byte {
	switch op {
	case opCreate:
		return appendString(b, r.Path)
	case opCreate2:
		return appendStat(appendString(b, r.Path), r.Stat)
	case opSetData:
		return appendStat(b, r.Stat)
	case opCheck:
		s, _ := c.tree.Exists(r.Path)
		return appendStat(b, s)
	}
	return b
}

// appendMulti encodes the results of a multi. When it failed every operation gets an
// error: none before the one that failed, its own, and "not done" after it.
func (c *core) appendMulti(b []byte, kinds []int32, results []coord.Result, failed error) []byte {
	for i, r := range results {
		if failed != nil {
			code := codeOf(r.Err)
			b = appendInt32(appendMultiHeader(b, opError, false, code), code)
			continue
		}
		b = appendMultiHeader(b, kinds[i], false, codeOK)
		if kinds[i] != opCheck {
			b = c.appendResult(b, kinds[i], r)
		}
	}
	return appendMultiHeader(b, opError, true, -1)
}

// replyBytesMax bounds a multiRead's reply: each of its few bytes may ask for a node of 1 MiB.
const replyBytesMax = 4 << 20

// multiRead answers several reads; one that fails does not disturb the others.
func (c *core) multiRead(b []byte, q *request) []byte {
	at := len(b)
	for i, kind := range q.kinds {
		if len(b)-at > replyBytesMax {
			b = appendInt32(appendMultiHeader(b, opError, false, codeMarshalling), codeMarshalling)
			continue
		}
		if kind == opGetData {
			if data, s, err := c.tree.Get(q.paths[i]); err == nil {
				b = appendStat(appendString(appendMultiHeader(b, kind, false, codeOK), data), s)
				continue
			}
		} else if names, _, err := c.tree.Children(q.paths[i]); err == nil {
			b = appendStrings(appendMultiHeader(b, kind, false, codeOK), names)
			continue
		}
		_, err := c.tree.Exists(q.paths[i])
		b = appendInt32(appendMultiHeader(b, opError, false, codeOf(err)), codeOf(err))
	}
	return appendMultiHeader(b, opError, true, -1)
}

func (c *core) read(b []byte, conn *conn, q *request) ([]byte, int32) {
	switch q.op {
	case opExists:
		s, err := c.tree.Exists(q.path)
		if err == nil || err == coord.ErrNoNode {
			c.watch(coord.WatchData, conn, q)
		}
		return appendStat(b, s), codeOf(err)
	case opGetData:
		data, s, err := c.tree.Get(q.path)
		if err != nil {
			return b, codeOf(err)
		}
		c.watch(coord.WatchData, conn, q)
		return appendStat(appendString(b, data), s), codeOK
	case opGetChildren, opGetChildren2:
		names, s, err := c.tree.Children(q.path)
		if err != nil {
			return b, codeOf(err)
		}
		c.watch(coord.WatchChildren, conn, q)
		b = appendStrings(b, names)
		if q.op == opGetChildren2 {
			b = appendStat(b, s)
		}
		return b, codeOK
	case opGetACL, opSetACL:
		s, err := c.tree.Exists(q.path)
		if err == nil && q.op == opGetACL {
			b = appendWorldACL(b)
		}
		return appendStat(b, s), codeOf(err)
	}
	return b, codeUnimplemented
}

func (c *core) watch(kind coord.WatchKind, conn *conn, q *request) {
	if q.watch {
		c.tree.Watch(kind, q.path, conn.session)
	}
}

// setWatches sets a peer's watches again after a reconnection. What it missed goes out before the answer.
func (c *core) setWatches(conn *conn, q *request) {
	for _, e := range c.tree.SetWatches(conn.session, q.zxid, q.dataWatches, q.exists, q.childWatch) {
		c.event(conn, e)
	}
}

// codeOf is the number of an error.
func codeOf(err error) int32 {
	if err == nil {
		return codeOK
	}
	var e *coord.Error
	if errors.As(err, &e) {
		return e.Code
	}
	panic("BUG: zkserver: the tree gave an error without a code: " + err.Error())
}

// latency of the requests, from arrival to the moment they were carried out. The core alone writes it.
type latency struct {
	count, sum, min, max int64 // microseconds, but count
}

func (l *latency) add(d time.Duration) {
	us := d.Microseconds()
	if l.count == 0 || us < l.min {
		l.min = us
	}
	l.count, l.sum, l.max = l.count+1, l.sum+us, max(l.max, us)
}
