package broker

import (
	"encoding/binary"

	"github.com/tidemark-log/tidemark/storage"
)

// The fetch answer has its own encoder, since its records are regions that the
// shell sends from their files. Layout, with the versions that have a field:
//
//	throttle int32, error int16 (7+), session int32 (7+), topics[]
//	  topic:     name string (-12) or id uuid (13+), partitions[], tags (12+)
//	  partition: index int32, error int16, high watermark int64, last stable
//	             offset int64, log start offset int64 (5+), aborted transactions[]
//	             (null), preferred read replica int32 (11+), records, tags (12+)
//	tags (12+)
//
// From version 12 on it is "flexible": lengths are unsigned varints of n+1.

const (
	fetchFlexibleFrom = 12
	fetchTopicIDFrom  = 13
)

// fetchEncoder writes into one buffer of the exact size, so that the heads cut
// from it stay where they are.
type fetchEncoder struct {
	version int16
	buf     []byte
	cut     int // where the current head begins
}

// encode gives the answer; its regions belong to it from now on.
func (op *fetchOp) encode(code int16) *FetchAnswer {
	e := fetchEncoder{version: op.version}
	e.buf = make([]byte, 0, op.encodedSize())
	a := &FetchAnswer{Version: op.version, Parts: make([]FetchPart, 0, op.partitions())}
	e.int32(0) // throttle
	if e.version >= 7 {
		e.int16(code)
		e.int32(0) // session
	}
	e.arrayLen(len(op.topics))
	for i := range op.topics {
		t := &op.topics[i]
		if e.version >= fetchTopicIDFrom {
			e.buf = append(e.buf, t.id[:]...)
		} else {
			e.string(t.name)
		}
		e.arrayLen(len(t.parts))
		for j := range t.parts {
			f := &t.parts[j]
			if op.b.static.Faults.UnpinRegions {
				f.region.Release()
			}
			e.partition(f)
			a.Parts = append(a.Parts, FetchPart{Head: e.head(), Region: f.region})
			f.region = storage.Region{}
			e.partitionTags(f)
		}
		e.tags()
	}
	e.tags()
	a.Tail = e.head()
	return a
}

func (e *fetchEncoder) partition(f *fetchPart) {
	e.int32(f.index)
	e.int16(f.code)
	e.int64(f.hw)
	e.int64(f.hw) // last stable offset: there are no transactions
	if e.version >= 5 {
		e.int64(f.start)
	}
	e.nullArray()
	if e.version >= 11 {
		e.int32(f.preferred)
	}
	if e.version >= fetchFlexibleFrom {
		e.buf = binary.AppendUvarint(e.buf, uint64(f.region.Len)+1)
	} else {
		e.int32(int32(f.region.Len))
	}
}

// partitionTags are a partition's tagged fields: to a follower, where its log parts
// from this one (KIP-595).
func (e *fetchEncoder) partitionTags(f *fetchPart) {
	if f.diverging.End < 0 {
		e.tags()
		return
	}
	const tagDiverging, size = 0, 4 + 8 + 1
	e.buf = append(e.buf, 1, tagDiverging, size)
	e.int32(f.diverging.Epoch)
	e.int64(f.diverging.End)
	e.tags()
}

// encodedSize is the length of all heads and the tail, or a little more.
func (op *fetchOp) encodedSize() int {
	const fixed = 4 + 2 + 4 + 5 + 1
	const perTopic = 16 + 5 + 1
	const perPartition = 4 + 2 + 8 + 8 + 8 + 4 + 4 + 5 + 1 + 2 + 13
	n := fixed
	for i := range op.topics {
		n += perTopic + len(op.topics[i].name) + len(op.topics[i].parts)*perPartition
	}
	return n
}

// head cuts what was written since the last cut.
func (e *fetchEncoder) head() []byte {
	h := e.buf[e.cut:len(e.buf):len(e.buf)]
	e.cut = len(e.buf)
	return h
}

func (e *fetchEncoder) int16(v int16) { e.buf = binary.BigEndian.AppendUint16(e.buf, uint16(v)) }
func (e *fetchEncoder) int32(v int32) { e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(v)) }
func (e *fetchEncoder) int64(v int64) { e.buf = binary.BigEndian.AppendUint64(e.buf, uint64(v)) }

func (e *fetchEncoder) arrayLen(n int) {
	if e.version >= fetchFlexibleFrom {
		e.buf = binary.AppendUvarint(e.buf, uint64(n)+1)
	} else {
		e.int32(int32(n))
	}
}

func (e *fetchEncoder) nullArray() {
	if e.version >= fetchFlexibleFrom {
		e.buf = append(e.buf, 0)
	} else {
		e.int32(-1)
	}
}

func (e *fetchEncoder) string(s string) {
	if e.version >= fetchFlexibleFrom {
		e.buf = binary.AppendUvarint(e.buf, uint64(len(s))+1)
	} else {
		e.int16(int16(len(s)))
	}
	e.buf = append(e.buf, s...)
}

// tags is an empty set of tagged fields.
func (e *fetchEncoder) tags() {
	if e.version >= fetchFlexibleFrom {
		e.buf = append(e.buf, 0)
	}
}
