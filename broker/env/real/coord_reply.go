package real

import (
	"encoding/binary"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// More of ZooKeeper's protocol: what the client asks for, see saneReply.
const (
	opDelete       = 2
	opExists       = 3
	opGetData      = 4
	opSetData      = 5
	opGetChildren2 = 12
	opCheck        = 13
	opMulti        = 14
	opError        = -1
	xidEvent       = -1
)

// saneReply says whether the body of an answer without an error has the shape that
// belongs to its request. The library trusts it: a wrong count or length makes it
// panic, ask for gigabytes, or hand out what an earlier answer left in its buffer.
func saneReply(op int32, b []byte) bool {
	r := replyReader{b: b, ok: true}
	switch op {
	case opCreate2:
		r.string()
		r.skip(statBytes)
	case opExists, opSetData:
		r.skip(statBytes)
	case opGetData:
		r.bytes()
		r.skip(statBytes)
	case opGetChildren2:
		for n := r.int32(); n > 0 && r.ok; n-- {
			r.string()
		}
		r.skip(statBytes)
	case opMulti:
		r.multi()
	default:
		return true // the library reads nothing of it
	}
	return r.ok && len(r.b) == 0
}

// replyReader walks through a body; ok is false from the first thing on that does not fit.
type replyReader struct {
	b  []byte
	ok bool
}

func (r *replyReader) skip(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.b, r.ok = nil, false
		return nil
	}
	field := r.b[:n]
	r.b = r.b[n:]
	return field
}

func (r *replyReader) int32() int32 {
	if b := r.skip(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *replyReader) int64() int64 {
	if b := r.skip(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *replyReader) string() string { return string(r.skip(int(r.int32()))) }

// bytes may be null.
func (r *replyReader) bytes() {
	if n := r.int32(); n != -1 {
		r.skip(int(n))
	}
}

func (r *replyReader) multi() {
	for r.ok {
		kind := r.int32()
		done := r.skip(1)
		r.int32() // error
		if !r.ok || done[0] != 0 {
			return
		}
		switch kind {
		case opError:
			r.int32()
		case opCreate:
			r.string()
		case opSetData:
			r.skip(statBytes)
		case opCheck, opDelete:
		default:
			r.ok = false
		}
	}
}

func (r *replyReader) stat() coord.Stat {
	s := coord.Stat{Czxid: r.int64(), Mzxid: r.int64(), Ctime: r.int64(), Mtime: r.int64(), Version: r.int32(), Cversion: r.int32()}
	r.int32() // version of the access list
	s.EphemeralOwner, s.DataLength, s.NumChildren, s.Pzxid = coord.SessionID(r.int64()), r.int32(), r.int32(), r.int64()
	return s
}

// saneEvent is saneReply for what a watch saw: type, state, path.
func saneEvent(b []byte) bool {
	r := replyReader{b: b, ok: true}
	r.skip(8)
	r.string()
	return r.ok && len(r.b) == 0
}
