package zkserver

import (
	"encoding/binary"
	"errors"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// Jute is ZooKeeper's encoding: big-endian integers, booleans of one byte,
// strings and byte arrays behind an int32 length (-1: null), vectors behind an int32 count.

var errMalformed = errors.New("malformed record")

// juteReader reads records; the first error stays, and what follows it reads as zero.
type juteReader struct {
	b   []byte
	err error
}

func (r *juteReader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.b, r.err = nil, errMalformed
		return nil
	}
	field := r.b[:n]
	r.b = r.b[n:]
	return field
}

func (r *juteReader) int32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *juteReader) int64() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *juteReader) bool() bool {
	b := r.take(1)
	return b != nil && b[0] != 0
}

// bytes aliases the frame. Null and empty are one.
func (r *juteReader) bytes() []byte {
	n := r.int32()
	if n == -1 || r.err != nil {
		return nil
	}
	return r.take(int(n))
}

func (r *juteReader) string() string { return string(r.bytes()) }

// count reads the number of elements of at least size bytes that follow, so that a
// lying count cannot ask for memory.
func (r *juteReader) count(size int) int {
	n := r.int32()
	if n == -1 || r.err != nil {
		return 0
	}
	if n < 0 || int(n) > len(r.b)/size {
		r.b, r.err = nil, errMalformed
		return 0
	}
	return int(n)
}

func (r *juteReader) strings() []string {
	n := r.count(4)
	out := make([]string, 0, n)
	for ; n > 0 && r.err == nil; n-- {
		out = append(out, r.string())
	}
	return out
}

// acls reads access control lists and gives how many entries they have: they are not kept.
func (r *juteReader) acls() int {
	n := r.count(12)
	for i := 0; i < n && r.err == nil; i++ {
		r.int32() // permissions
		r.bytes() // scheme
		r.bytes() // id
	}
	return n
}

func appendInt32(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }
func appendInt64(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendString[T string | []byte](b []byte, s T) []byte {
	return append(appendInt32(b, int32(len(s))), s...)
}

func appendStrings(b []byte, s []string) []byte {
	b = appendInt32(b, int32(len(s)))
	for _, v := range s {
		b = appendString(b, v)
	}
	return b
}

// appendStat encodes a node's metadata. Access control lists never change here: their version stays 0.
func appendStat(b []byte, s coord.Stat) []byte {
	b = appendInt64(b, s.Czxid)
	b = appendInt64(b, s.Mzxid)
	b = appendInt64(b, s.Ctime)
	b = appendInt64(b, s.Mtime)
	b = appendInt32(b, s.Version)
	b = appendInt32(b, s.Cversion)
	b = appendInt32(b, 0)
	b = appendInt64(b, int64(s.EphemeralOwner))
	b = appendInt32(b, s.DataLength)
	b = appendInt32(b, s.NumChildren)
	return appendInt64(b, s.Pzxid)
}

// appendWorldACL is the list that every node is said to have: anyone may do anything.
func appendWorldACL(b []byte) []byte {
	b = appendInt32(b, 1)
	b = appendInt32(b, 31)
	b = appendString(b, "world")
	return appendString(b, "anyone")
}

// beginFrame reserves room for a frame's length; endFrame fills it in.
func beginFrame(b []byte) []byte { return append(b, 0, 0, 0, 0) }

func endFrame(b []byte, at int) []byte {
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}
