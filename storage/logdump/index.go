package logdump

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"path"
	"slices"

	"github.com/tidemark-log/tidemark/storage/record"
)

// IndexFile begins the explanation of a .index or .timeindex file.
type IndexFile struct {
	File    string `json:"file"`
	Entries int    `json:"entries"`
	Zeros   int    `json:"zero_entries,omitempty"` // preallocated, at the end
	Time    bool   `json:"-"`
}

// IndexEntry says: the batch whose last offset is Offset stands at byte Pos of the segment.
type IndexEntry struct {
	Offset int64 `json:"offset"`
	Pos    int64 `json:"pos"`
	Wrong  bool  `json:"wrong,omitempty"`
}

// TimeIndexEntry says: no record up to Offset is later than Timestamp, and the batch of that offset holds one that late.
type TimeIndexEntry struct {
	Timestamp int64 `json:"timestamp_ms"`
	Offset    int64 `json:"offset"`
	Wrong     bool  `json:"wrong,omitempty"`
}

// entry is one entry of either index. For a time index key is the timestamp.
type entry struct {
	n      int   // its place in the file
	key    int64 // timestamp, ms; not used by an offset index
	offset int64
	pos    int64
	seen   bool // its batch came
	wrong  bool
}

// index is an index file while its segment goes by.
type index struct {
	file    string
	kind    fileKind
	width   int
	entries []entry // in file order
	zeros   int
	order   []int // entries in the order in which their batches come
	next    int   // in order
	problem []Problem
}

// loadIndex reads an index; nil when there is none. Both kinds have entries of fixed width, big-endian:
//
//	.index      last offset of a batch, relative to the segment's first, int32; position of the batch int32
//	.timeindex  timestamp int64; relative offset int32
func (d *dumper) loadIndex(name string, kind fileKind) *index {
	b, err := d.read(name)
	if err != nil {
		return nil
	}
	x := &index{file: name, kind: kind, width: 8}
	if kind == kindTimeIndex {
		x.width = 12
	}
	base, _ := baseOffset(path.Base(name))
	if part := len(b) % x.width; part != 0 {
		x.add(int64(len(b)-part), -1, "%d bytes after the last whole entry", part)
		b = b[:len(b)-part]
	}
	zero := make([]byte, x.width)
	for len(b) > 0 && bytes.Equal(b[len(b)-x.width:], zero) {
		b = b[:len(b)-x.width]
		x.zeros++
	}
	for n := 0; len(b) > 0; n++ {
		e := entry{n: n}
		if kind == kindIndex {
			e.offset = base + int64(int32(binary.BigEndian.Uint32(b)))
			e.pos = int64(int32(binary.BigEndian.Uint32(b[4:])))
		} else {
			e.key = int64(binary.BigEndian.Uint64(b))
			e.offset = base + int64(int32(binary.BigEndian.Uint32(b[8:])))
		}
		x.entries = append(x.entries, e)
		b = b[x.width:]
	}
	x.checkOrder()
	return x
}

func (x *index) add(pos, offset int64, format string, args ...any) {
	x.problem = append(x.problem, problemf(x.file, pos, offset, format, args...))
}

// wrong marks an entry and says why.
func (x *index) wrong(i int, format string, args ...any) {
	x.entries[i].wrong = true
	x.add(int64(i*x.width), x.entries[i].offset, format, args...)
}

// checkOrder holds that entries ascend: searching relies on it.
func (x *index) checkOrder() {
	for i := 1; i < len(x.entries); i++ {
		a, b := x.entries[i-1], x.entries[i]
		switch {
		case b.offset <= a.offset:
			x.wrong(i, "entry %d has offset %d after %d", i, b.offset, a.offset)
		case x.kind == kindIndex && b.pos <= a.pos:
			x.wrong(i, "entry %d leads to byte %d after %d", i, b.pos, a.pos)
		case x.kind == kindTimeIndex && b.key <= a.key:
			x.wrong(i, "entry %d has timestamp %d after %d", i, b.key, a.key)
		}
	}
	x.order = make([]int, len(x.entries))
	for i := range x.order {
		x.order[i] = i
	}
	slices.SortStableFunc(x.order, func(i, j int) int {
		if x.kind == kindIndex {
			return cmp.Compare(x.entries[i].pos, x.entries[j].pos)
		}
		return cmp.Compare(x.entries[i].offset, x.entries[j].offset)
	})
}

// batch holds the entries that are about this batch, or about what should have come before it, against it.
// latest is the largest timestamp of the segment until here.
func (x *index) batch(base, pos int64, h record.Header, latest int64) {
	for ; x.next < len(x.order); x.next++ {
		i := x.order[x.next]
		e := &x.entries[i]
		if x.kind == kindIndex {
			if e.pos > pos {
				return
			}
			if e.seen = e.pos == pos; e.seen && e.offset != h.LastOffset() {
				x.wrong(i, "entry %d says offset %d, the batch at byte %d ends with %d", i, e.offset, pos, h.LastOffset())
			}
			continue
		}
		if e.offset > h.LastOffset() {
			return
		}
		if e.seen = e.offset >= h.BaseOffset; !e.seen {
			continue
		}
		switch {
		case e.key != h.MaxTimestamp:
			x.wrong(i, "entry %d says timestamp %d, the batch of offset %d has %d", i, e.key, e.offset, h.MaxTimestamp)
		case latest > e.key:
			x.wrong(i, "entry %d says timestamp %d, but a batch before offset %d is of %d", i, e.key, e.offset, latest)
		}
	}
}

// finish reports the entries that led nowhere.
func (x *index) finish(d *dumper, base int64) {
	for i := range x.entries {
		if e := x.entries[i]; !e.seen && !e.wrong {
			if x.kind == kindIndex {
				x.wrong(i, "entry %d leads to byte %d for offset %d, where no good batch begins", i, e.pos, e.offset)
			} else {
				x.wrong(i, "entry %d leads to offset %d, which no good batch holds", i, e.offset)
			}
		}
	}
	slices.SortStableFunc(x.problem, func(a, b Problem) int { return cmp.Compare(a.Pos, b.Pos) })
	for _, p := range x.problem {
		d.sum.Problems++
		d.out.print(p)
	}
	x.problem = nil
}

// print explains the index.
func (x *index) print(d *dumper) {
	d.out.print(IndexFile{x.file, len(x.entries), x.zeros, x.kind == kindTimeIndex})
	for _, e := range x.entries {
		if x.kind == kindIndex {
			d.out.print(IndexEntry{e.offset, e.pos, e.wrong})
		} else {
			d.out.print(TimeIndexEntry{e.key, e.offset, e.wrong})
		}
	}
}
