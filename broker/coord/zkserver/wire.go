package zkserver

import (
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// Operation codes of ZooKeeper 3.8 (ZooDefs.OpCode). What is not listed is answered UNIMPLEMENTED.
const (
	opCreate       = 1
	opDelete       = 2
	opExists       = 3
	opGetData      = 4
	opSetData      = 5
	opGetACL       = 6
	opSetACL       = 7
	opGetChildren  = 8
	opSync         = 9
	opPing         = 11
	opGetChildren2 = 12
	opCheck        = 13
	opMulti        = 14
	opCreate2      = 15
	opMultiRead    = 22
	opAuth         = 100
	opSetWatches   = 101
	opCloseSession = -11
	opError        = -1 // in the results of a multi
)

// Transaction numbers with a meaning of their own.
const (
	xidEvent = -1
	xidPing  = -2
)

// Error codes that the tree does not know.
const (
	codeOK            = 0
	codeMarshalling   = -5
	codeUnimplemented = -6
	codeBadArguments  = -8
	codeInvalidACL    = -114
)

// Limits of what a peer may send or cause.
const (
	// frameBytesMax is ZooKeeper's default for jute.maxbuffer: a longer frame ends the connection.
	frameBytesMax = 0xfffff
	// connectBytesMax bounds the first frame, before a peer is anybody.
	connectBytesMax = 1024
	passwordBytes   = 16
)

// connectRequest opens a session or, with its id and password, comes back to it.
type connectRequest struct {
	lastZxidSeen int64
	timeoutMs    int32
	session      coord.SessionID
	password     []byte
	hasReadOnly  bool // clients since 3.4 send, and want, a last boolean
}

func decodeConnect(frame []byte) (connectRequest, error) {
	r := juteReader{b: frame}
	r.int32() // protocol version: always 0
	c := connectRequest{lastZxidSeen: r.int64(), timeoutMs: r.int32(), session: coord.SessionID(r.int64())}
	c.password = append([]byte(nil), r.bytes()...)
	if r.err == nil && len(r.b) > 0 {
		r.bool()
		c.hasReadOnly = true
	}
	if r.err == nil && len(r.b) > 0 {
		r.err = errMalformed
	}
	return c, r.err
}

// appendConnectReply answers a connectRequest. Session 0 says that the session asked for has expired.
func appendConnectReply(b []byte, session coord.SessionID, timeoutMs int64, password []byte, readOnly bool) []byte {
	at := len(b)
	b = beginFrame(b)
	b = appendInt32(b, 0)
	b = appendInt32(b, int32(timeoutMs))
	b = appendInt64(b, int64(session))
	b = appendString(b, password)
	if readOnly {
		b = appendBool(b, false)
	}
	return endFrame(b, at)
}

// request is one decoded request. Which fields it has depends on op.
type request struct {
	xid   int32
	op    int32
	path  string
	watch bool
	ops   []coord.Op // of create, create2, setData, delete, check, multi
	kinds []int32    // of multi and multiRead: each operation's code
	paths []string   // of multiRead

	zxid                            int64 // of setWatches
	dataWatches, exists, childWatch []string

	code int32         // not 0: the request is refused with it
	size int           // bytes of its frame
	at   time.Duration // when it arrived, in the server's time
}

// decodeRequest reads a frame. Its data is copied out where it is kept (the tree
// does that), so the frame must stay as it is until the request was answered. An error means
// that not even the header could be read.
func decodeRequest(frame []byte) (request, error) {
	r := juteReader{b: frame}
	q := request{xid: r.int32(), op: r.int32(), size: len(frame)}
	if r.err != nil {
		return q, r.err
	}
	q.decodeBody(&r)
	if q.code == codeOK && r.err != nil {
		q.code = codeMarshalling
	}
	return q, nil
}

func (q *request) decodeBody(r *juteReader) {
	switch q.op {
	case opPing, opCloseSession:
	case opAuth: // anybody may do anything, so whoever it is
	case opCreate, opCreate2, opDelete, opSetData, opCheck:
		op, code := decodeOp(q.op, r)
		q.ops, q.code = []coord.Op{op}, code
	case opExists, opGetData, opGetChildren, opGetChildren2:
		q.path, q.watch = r.string(), r.bool()
	case opGetACL, opSync:
		q.path = r.string()
	case opSetACL:
		q.path = r.string()
		if r.acls() == 0 {
			q.code = codeInvalidACL
		}
		r.int32() // version of the list
	case opMulti:
		q.decodeMulti(r)
	case opMultiRead:
		q.decodeMultiRead(r)
	case opSetWatches:
		q.zxid, q.dataWatches, q.exists, q.childWatch = r.int64(), r.strings(), r.strings(), r.strings()
	default:
		q.code = codeUnimplemented
	}
}

// decodeOp reads one change. code is not 0 when it is refused before the tree is asked.
func decodeOp(op int32, r *juteReader) (_ coord.Op, code int32) {
	path := r.string()
	switch op {
	case opCreate, opCreate2:
		data := r.bytes()
		acls, flags := r.acls(), r.int32()
		switch {
		case r.err != nil:
			return coord.Op{}, codeMarshalling
		case flags < 0 || flags > 3: // containers and nodes that live for a time are not served
			return coord.Op{}, codeUnimplemented
		case acls == 0:
			return coord.Op{}, codeInvalidACL
		}
		return coord.CreateOp(path, data, coord.CreateMode(flags)), codeOK
	case opSetData:
		data := r.bytes()
		return coord.SetOp(path, data, r.int32()), codeOK
	case opDelete:
		return coord.DeleteOp(path, r.int32()), codeOK
	case opCheck:
		return coord.CheckOp(path, r.int32()), codeOK
	}
	return coord.Op{}, codeUnimplemented
}

// multiHeader goes before each operation of a multi, and after the last with done set.
func readMultiHeader(r *juteReader) (op int32, done bool) {
	op, done = r.int32(), r.bool()
	r.int32() // error: in results alone
	return op, done || r.err != nil
}

func appendMultiHeader(b []byte, op int32, done bool, code int32) []byte {
	return appendInt32(appendBool(appendInt32(b, op), done), code)
}

// An operation takes at least its header, so the frame's limit bounds their number.
func (q *request) decodeMulti(r *juteReader) {
	for {
		kind, done := readMultiHeader(r)
		if done {
			return
		}
		op, code := decodeOp(kind, r)
		if code != codeOK { // ZooKeeper cannot decode what it does not know, and refuses the whole
			q.code = code
			return
		}
		q.ops, q.kinds = append(q.ops, op), append(q.kinds, kind)
	}
}

func (q *request) decodeMultiRead(r *juteReader) {
	for {
		kind, done := readMultiHeader(r)
		if done {
			return
		}
		if kind != opGetData && kind != opGetChildren {
			q.code = codeUnimplemented
			return
		}
		q.paths, q.kinds = append(q.paths, r.string()), append(q.kinds, kind)
		r.bool() // a watch: multiRead sets none
	}
}
