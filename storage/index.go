package storage

import (
	"encoding/binary"
	"errors"
	"io"
	iofs "io/fs"
	"sync"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// Kafka's index entries, big endian, back to back, ascending:
//
//	.index      relative offset of a batch's last record int32, position of the batch int32
//	.timeindex  largest timestamp so far int64, relative offset of the last record of its batch int32
const (
	offsetEntrySize = 8
	timeEntrySize   = 12
)

// indexTailMax is how many entries an index gathers before it writes them: an
// append of one batch would otherwise cost three writes. What a kill takes from
// the tail, recovery makes anew; a flush writes it out.
const indexTailMax = 64

// index is one .index or .timeindex file: entries that are appended and searched.
// It is read with pread: a mapping would fault under the partition's lock, and
// make a truncated file a crash.
type index struct {
	name    string
	width   int
	absent  bool     // this log keeps no such file
	file    vfs.File // nil until first used
	loaded  bool     // written says how many entries the file has
	written int
	tail    []byte // the entries behind those
	dirty   bool   // the file changed since it was last made durable
	// last is the file's last entry while lastOf == written: appends ask for it
	// again and again when timestamps stand still, and get it without a read.
	last   [timeEntrySize]byte
	lastOf int
}

// indexBuf is what one search reads into.
type indexBuf [4096]byte

var indexBufs = sync.Pool{New: func() any { return new(indexBuf) }}

// load opens the file if it is there. A partial last entry does not count.
func (x *index) load(fs vfs.FS) error {
	if x.loaded || x.absent {
		x.loaded = true
		return nil
	}
	if x.file == nil {
		f, err := fs.Open(x.name, vfs.ReadWrite)
		switch {
		case errors.Is(err, iofs.ErrNotExist):
			x.loaded = true
			return nil
		case err != nil:
			return err
		}
		x.file = f
	}
	size, err := x.file.Size()
	if err != nil {
		return err
	}
	x.written, x.loaded = int(size)/x.width, true
	return nil
}

func (x *index) close() error {
	x.loaded, x.tail, x.lastOf = false, nil, 0
	if x.file == nil {
		return nil
	}
	err := x.file.Close()
	x.file = nil
	return err
}

// entries is how many there are. The index is loaded.
func (x *index) entries() int { return x.written + len(x.tail)/x.width }

// bytes is the length of the index, in bytes.
func (x *index) bytes() int64 { return int64(x.entries()) * int64(x.width) }

// room makes place for one entry and returns it, for the caller to fill.
func (x *index) room() []byte {
	if x.tail == nil {
		x.tail = make([]byte, 0, indexTailMax*x.width)
	}
	n := len(x.tail)
	x.tail = x.tail[:n+x.width]
	return x.tail[n:]
}

func (x *index) appendOffset(relative int32, pos int64) {
	e := x.room()
	binary.BigEndian.PutUint32(e, uint32(relative))
	binary.BigEndian.PutUint32(e[4:], uint32(pos))
}

func (x *index) appendTime(timestamp int64, relative int32) {
	e := x.room()
	binary.BigEndian.PutUint64(e, uint64(timestamp))
	binary.BigEndian.PutUint32(e[8:], uint32(relative))
}

// full is true when the tail must be written before the next entry.
func (x *index) full() bool { return len(x.tail) >= indexTailMax*x.width }

// writeOut writes the tail, creating the file when there is none yet; created tells. One
// that would be empty is created only on demand.
func (x *index) writeOut(fs vfs.FS, empty bool) (created bool, err error) {
	if x.absent {
		return false, nil
	}
	if err := x.load(fs); err != nil {
		return false, err
	}
	if x.file == nil {
		if len(x.tail) == 0 && !empty {
			return false, nil
		}
		if x.file, err = fs.Open(x.name, vfs.Create); err != nil {
			return false, err
		}
		created, x.dirty = true, true
	}
	if len(x.tail) == 0 {
		return created, nil
	}
	if _, err := x.file.WriteAt(x.tail, int64(x.written*x.width)); err != nil {
		return created, err
	}
	x.written += len(x.tail) / x.width
	x.lastOf = x.written
	copy(x.last[:], x.tail[len(x.tail)-x.width:])
	x.tail = x.tail[:0]
	x.dirty = true
	return created, nil
}

// truncate keeps the first n entries.
func (x *index) truncate(n int) error {
	if n >= x.written {
		x.tail = x.tail[:min(len(x.tail), (n-x.written)*x.width)]
		return nil
	}
	x.tail, x.written, x.dirty, x.lastOf = x.tail[:0], n, true, 0
	return x.file.Truncate(int64(n * x.width))
}

// The fields that entries are ordered and searched by.
func entryOffset(e []byte) int64     { return int64(int32(binary.BigEndian.Uint32(e))) }
func entryPos(e []byte) int64        { return int64(int32(binary.BigEndian.Uint32(e[4:]))) }
func entryTime(e []byte) int64       { return int64(binary.BigEndian.Uint64(e)) }
func entryTimeOffset(e []byte) int64 { return int64(int32(binary.BigEndian.Uint32(e[8:]))) }

// search finds the last entry whose field is <= target and copies it to buf; slot
// is -1 when there is none. It looks first where the entry would be if the fields
// rose evenly, which positions and offsets nearly do, and where that fails halves
// what is left: one read as a rule, O(log entries) at most.
func (x *index) search(buf *indexBuf, field func([]byte) int64, target int64) (slot int, entry []byte, err error) {
	if n := len(x.tail) / x.width; n > 0 && field(x.tail) <= target {
		i := lastAtMost(x.tail, x.width, field, target)
		return x.written + i, x.tail[i*x.width : (i+1)*x.width], nil
	}
	lo, hi := 0, x.written // the answer lies in [lo-1, hi-1)
	block, read := len(buf)/x.width, false
	if hi > block {
		if lo, hi, read, err = x.narrow(buf, field, target); err != nil {
			return 0, nil, err
		}
	}
	for hi-lo > block {
		mid := lo + (hi-lo)/2
		if err := x.read(buf[:x.width], mid); err != nil {
			return 0, nil, err
		}
		if field(buf[:x.width]) <= target {
			lo = mid
		} else {
			hi = mid
		}
	}
	if hi == lo {
		return -1, nil, nil
	}
	if !read {
		if err := x.read(buf[:(hi-lo)*x.width], lo); err != nil {
			return 0, nil, err
		}
	}
	i := lastAtMost(buf[:(hi-lo)*x.width], x.width, field, target)
	if i < 0 {
		return lo - 1, nil, nil // only when lo == 0: below, entry lo was seen to be <= target
	}
	return lo + i, buf[i*x.width : (i+1)*x.width], nil
}

// narrow guesses the block that the last entry <= target is in and gives the
// range [lo, hi) that is left for it; read says that buf holds its entries.
func (x *index) narrow(buf *indexBuf, field func([]byte) int64, target int64) (lo, hi int, read bool, err error) {
	w, n := x.width, x.written
	e, err := x.entry(buf, n-1)
	if err != nil {
		return 0, 0, false, err
	}
	if last := field(e); target >= last {
		return n - 1, n, false, nil
	} else if target <= 0 || last <= 0 {
		return 0, n, false, nil // the fields do not begin near 0: no guess
	} else {
		lo = int(float64(target) / float64(last) * float64(n))
	}
	block := len(buf) / w
	lo = min(max(lo-block/2, 0), n-block)
	hi = lo + block
	if err := x.read(buf[:block*w], lo); err != nil {
		return 0, 0, false, err
	}
	switch {
	case field(buf[:w]) > target:
		return 0, lo, false, nil
	case field(buf[(block-1)*w:]) <= target:
		return hi - 1, n, false, nil
	}
	return lo, hi, true, nil
}

// lastAtMost is the last entry of a run whose field is <= target, or -1.
func lastAtMost(entries []byte, width int, field func([]byte) int64, target int64) int {
	lo, hi := 0, len(entries)/width
	for lo < hi {
		mid := (lo + hi) / 2
		if field(entries[mid*width:]) <= target {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1
}

// entry copies the entry in slot to buf.
func (x *index) entry(buf *indexBuf, slot int) ([]byte, error) {
	if slot >= x.written {
		return x.tail[(slot-x.written)*x.width:][:x.width], nil
	}
	if slot == x.written-1 && x.lastOf == x.written {
		return x.last[:x.width], nil
	}
	if err := x.read(buf[:x.width], slot); err != nil {
		return nil, err
	}
	if slot == x.written-1 {
		x.lastOf = x.written
		copy(x.last[:], buf[:x.width])
	}
	return buf[:x.width], nil
}

// read fills b with entries from slot on, all of which are in the file.
func (x *index) read(b []byte, slot int) error {
	n, err := x.file.ReadAt(b, int64(slot*x.width))
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// leading counts the entries at the front whose field rises strictly and is at
// most bound. Behind the part that was made durable anything may lie, in which a
// search would lose its way.
func (x *index) leading(buf *indexBuf, field func([]byte) int64, bound int64) (int, error) {
	block := len(buf) / x.width
	last := int64(-1 << 63)
	for slot := 0; slot < x.written; slot += block {
		n := min(block, x.written-slot)
		if err := x.read(buf[:n*x.width], slot); err != nil {
			return 0, err
		}
		for i := range n {
			v := field(buf[i*x.width:])
			if v <= last || v > bound {
				return slot + i, nil
			}
			last = v
		}
	}
	return x.written, nil
}
