package storage

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/tidemark-log/tidemark/internal/crc32c"
	"github.com/tidemark-log/tidemark/storage/record"
)

// foundPlacesMax is how many places the last reads ended at are remembered, so
// that as many consumers and followers go on without a search.
const foundPlacesMax = 8

// foundPlaces remembers where offsets lie. It is emptied when the log is cut.
type foundPlaces struct {
	at   [foundPlacesMax]foundPlace
	next int
}

type foundPlace struct {
	offset int64 // a batch with this base offset, or the log end at that time, …
	pos    int64 // … lies here
	s      *segment
	read   bool // the batch's header was read there, and nobody has made use of that yet
}

// get is the place of an offset in segment s; nil when it is not remembered.
func (f *foundPlaces) get(s *segment, offset int64) *foundPlace {
	for i := range f.at {
		if f.at[i].s == s && f.at[i].offset == offset {
			return &f.at[i]
		}
	}
	return nil
}

func (f *foundPlaces) put(p foundPlace) {
	for i := range f.at {
		if f.at[i].s != nil && f.at[i].offset == p.offset {
			f.at[i] = p
			return
		}
	}
	f.at[f.next] = p
	f.next = (f.next + 1) % foundPlacesMax
}

func (f *foundPlaces) clear() { *f = foundPlaces{} }

// Read gives whole batches from the one that holds offset. What it costs does not
// grow with the log: the place is remembered or found through the index, and the
// end is the segment's end, the limit's place, or found like the beginning.
func (l *segmentLog) Read(offset, limit int64, maxBytes int) (Region, error) {
	end := l.end.Load()
	if offset < l.logStart.Load() || offset > end {
		return Region{}, ErrOffsetOutOfRange
	}
	if l.closed {
		return Region{}, &WriteError{Op: "read", File: l.path, Err: errClosed}
	}
	limit = min(limit, end)
	for {
		if offset >= limit {
			return Region{}, nil
		}
		i := l.segmentAt(offset)
		s := l.segments[i]
		pos, next, known, err := l.locate(i, offset)
		if err != nil {
			return Region{}, err
		}
		if pos < 0 { // nothing from offset on in this segment
			offset = next
			continue
		}
		if !known {
			if err := l.checkFirst(s, pos, offset); err != nil {
				return Region{}, err
			}
		}
		to, err := l.regionEnd(i, pos, limit, max(maxBytes, 1))
		if err != nil || to.pos == pos {
			return Region{}, err
		}
		l.remember(to)
		return l.region(s, pos, int(to.pos-pos))
	}
}

// checkFirst reads the header of the first batch of an answer. Without it a
// consumer that is sent what is no batch would ask for it again, for ever. Where the
// read before this one has seen the header already, the second to ask is told.
func (l *segmentLog) checkFirst(s *segment, pos, offset int64) error {
	w := l.walk(s, s.size)
	defer w.done()
	w.big = true
	h, err := w.header(pos)
	if damaged, ok := errors.AsType[*CorruptionError](err); ok {
		damaged.Offset = offset
		return damaged
	}
	if err == nil && h.LastOffset() < offset {
		return s.corrupt(pos, offset, fmt.Sprintf("the batch here ends at offset %d", h.LastOffset()))
	}
	return err
}

// region pins and describes [pos, pos+n) of a segment.
func (l *segmentLog) region(s *segment, pos int64, n int) (Region, error) {
	if err := l.open(s); err != nil {
		return Region{}, err
	}
	if c, ok := s.log.(*cachedFile); ok {
		b, p, err := c.view(pos, n)
		return Region{Len: n, Bytes: b, pin: p}, err
	}
	s.pin(pos + int64(n))
	return Region{File: s.log, Pos: pos, Len: n, pin: s}, nil
}

// locate finds the batch of segment i that answers a fetch at offset, and says whether its header is known
// to be one from the read that remembered the place. pos is -1
// when the segment has none: the fetch goes on at offset next, the segment's end.
func (l *segmentLog) locate(i int, offset int64) (pos, next int64, known bool, err error) {
	s := l.segments[i]
	if p := l.found.get(s, offset); p != nil && p.pos < s.size {
		known, p.read = p.read, false
		return p.pos, 0, known, nil
	}
	pos, err = l.position(i, max(offset, s.base))
	if err != nil {
		return 0, 0, false, err
	}
	if pos < s.size {
		return pos, 0, false, nil
	}
	next = l.segmentEnd(i)
	if offset < next && (l.cfg.Offsets == OffsetsLogical || offset >= s.base+s.size) {
		// A segment begins where the one before ended: to go on there would skip in
		// silence. (Under byte offsets one behind the last batch's records belongs to the next segment.)
		return 0, 0, false, s.corrupt(s.size, offset, fmt.Sprintf("batches up to offset %d are missing", next))
	}
	return -1, next, false, nil
}

// position finds where the first batch begins whose last offset is >= offset (under
// byte offsets: the batch that answers a fetch at offset); the segment's size when there is none.
func (l *segmentLog) position(i int, offset int64) (int64, error) {
	s := l.segments[i]
	if offset >= l.segmentEnd(i) {
		return s.size, nil
	}
	if s.base == offset {
		return 0, nil
	}
	if err := l.open(s); err != nil {
		return 0, err
	}
	if l.cfg.Offsets == OffsetsByte {
		if offset-s.base >= s.size {
			return s.size, nil // the segment ends before the next one begins: damage
		}
		return l.bytePosition(s, offset)
	}
	w := l.walk(s, s.size)
	defer w.done()
	from, err := l.indexed(&w, entryOffset, offset-s.base)
	if err != nil {
		return 0, err
	}
	pos, _, err := l.scanTo(&w, from, offset, l.segmentEnd(i))
	return pos, err
}

// indexed gives a position at which a batch begins and from which a scan forward
// finds the target: the place of the last index entry whose field is <= target.
// An entry that does not lead to its batch shows an index that was never made
// durable, or is damaged: it is made anew (H6), and counts for nothing until then.
// The walk has the header of the batch there, and goes on without reading it again.
func (l *segmentLog) indexed(w *walk, field func([]byte) int64, target int64) (int64, error) {
	s := w.s
	if err := l.openIndexes(s); err != nil {
		return 0, err
	}
	buf := indexBufs.Get().(*indexBuf)
	defer indexBufs.Put(buf)
	for attempt := 0; ; attempt++ {
		slot, e, err := s.offsets.search(buf, field, target)
		if err != nil || slot < 0 {
			return 0, err
		}
		pos, last := entryPos(e), s.base+entryOffset(e)
		if ok, err := w.leadsTo(pos, last); ok || err != nil {
			return pos, err
		}
		if attempt > 0 {
			return 0, s.corrupt(pos, last, "index made anew does not lead to its batch")
		}
		if err := l.rebuildIndexes(s); err != nil {
			return 0, err
		}
	}
}

// leadsTo is true when a batch with that last offset lies at pos.
func (w *walk) leadsTo(pos, last int64) (bool, error) {
	if pos < 0 || pos >= w.end {
		return false, nil
	}
	w.big = true // one header is all that is wanted
	h, ok, err := w.peek(pos)
	return ok && h.LastOffset() == last, err
}

// scanTo goes on with a walk, from pos to the first batch whose last offset is >= offset. It
// steps over damage, but not where the offset may lie in it: that is an error. end is where the segment ends, or MaxInt64.
func (l *segmentLog) scanTo(w *walk, pos, offset, end int64) (int64, record.Header, error) {
	s := w.s
	before := pos // the last batch that was walked over
	for pos < s.size {
		h, err := w.header(pos)
		if isDamage(err) {
			t, lookErr := l.lookBehind(s, pos, s.size, s.base)
			if lookErr == nil && !t.found && before < pos {
				// Recovery may have taken that one for damaged by what its header does not show, and cut the log within it.
				t, lookErr = l.lookBehind(s, before+1, s.size, s.base)
			}
			for lookErr == nil && t.found && t.header.NextOffset() > end {
				t, lookErr = l.lookBehind(s, t.pos, s.size, s.base) // its CRC does not cover its base offset, which is damaged
			}
			if lookErr != nil || !t.found || t.header.BaseOffset > offset {
				return pos, h, errors.Join(err, lookErr)
			}
			before, pos = t.pos, t.pos
			continue
		}
		if err != nil || h.LastOffset() >= offset {
			return pos, h, err
		}
		before = pos
		pos += int64(h.Size())
	}
	return s.size, record.Header{}, nil
}

// regionEnd finds where a region from pos on ends: at most maxBytes on, but after
// one batch at least, and before any batch that reaches past limit. It gives the
// position and the offset that follows; -1 where that is not known.
func (l *segmentLog) regionEnd(i int, pos, limit int64, maxBytes int) (to foundPlace, err error) {
	s := l.segments[i]
	stop, stopOffset := s.size, l.segmentEnd(i)
	if limit < stopOffset {
		if stop, err = l.limitPosition(i, limit); err != nil {
			return foundPlace{}, err
		}
		stopOffset = limit
	}
	if stop-pos <= int64(maxBytes) {
		return foundPlace{offset: stopOffset, pos: max(stop, pos), s: s}, nil
	}
	w := l.walk(s, s.size)
	defer w.done()
	if l.cfg.Offsets == OffsetsByte {
		return l.byteRegionEnd(&w, pos, stop, maxBytes)
	}
	if err := l.open(s); err != nil {
		return foundPlace{}, err
	}
	from, err := l.indexed(&w, entryPos, pos+int64(maxBytes))
	if err != nil {
		return foundPlace{}, err
	}
	return w.regionEnd(pos, max(from, pos), stop, maxBytes)
}

// regionEnd goes on with a walk, from a batch at or after pos to the last one that still fits.
func (w *walk) regionEnd(pos, from, stop int64, maxBytes int) (foundPlace, error) {
	w.end = stop
	for at := from; ; {
		h, err := w.header(at)
		if isDamage(err) && at > pos {
			return foundPlace{offset: -1, pos: at}, nil // what is good before the damage
		}
		if err != nil {
			return foundPlace{}, err
		}
		next := at + int64(h.Size())
		if next-pos > int64(maxBytes) && at > pos {
			return foundPlace{offset: h.BaseOffset, pos: at, s: w.s, read: true}, nil
		}
		if next-pos >= int64(maxBytes) || next >= stop {
			return foundPlace{offset: h.NextOffset(), pos: next, s: w.s}, nil
		}
		at = next
	}
}

// limitPosition is where the first batch begins that reaches past limit.
func (l *segmentLog) limitPosition(i int, limit int64) (pos int64, err error) {
	s := l.segments[i]
	if p := l.found.get(s, limit); p != nil {
		return p.pos, nil
	}
	if l.cfg.Offsets == OffsetsByte {
		if err := l.open(s); err != nil {
			return 0, err
		}
		// Whatever a fetch at the limit would get: a limit inside a batch excludes the batch.
		if pos = limit - s.base; pos < s.size {
			pos, _, err = l.byteBatch(s, pos)
		}
		pos = min(pos, s.size)
	} else {
		pos, err = l.position(i, limit)
	}
	if err == nil {
		l.remember(foundPlace{offset: limit, pos: pos, s: s})
	}
	return pos, err
}

// remember keeps a place for the reads to come, if its offset is known and a fetch there would be
// answered from it. Under byte offsets a limit inside a batch has that batch's place, and a fetch there may get the next one.
func (l *segmentLog) remember(p foundPlace) {
	if p.offset < 0 || l.cfg.Offsets == OffsetsByte && p.offset != p.s.base+p.pos {
		return
	}
	l.found.put(p)
}

// bytePosition answers a fetch under byte offsets. One at which a batch begins gets
// that batch, and so does one inside it that counts one of its records; past those it
// is what a client asks for that steps by records, and the next batch answers.
func (l *segmentLog) bytePosition(s *segment, offset int64) (int64, error) {
	pos := offset - s.base
	at, h, err := l.byteBatch(s, pos)
	if err != nil || pos-at < max(int64(h.RecordCount), 1) {
		return at, err
	}
	return at + int64(h.Size()), nil
}

// byteBatch finds the batch that begins at pos or spans it.
func (l *segmentLog) byteBatch(s *segment, pos int64) (int64, record.Header, error) {
	w := l.walk(s, s.size)
	w.big = true
	h, ok, err := w.peek(pos)
	w.done()
	if err != nil || (ok && h.BaseOffset == s.base+pos && l.holds(s, pos, h)) {
		return pos, h, err
	}
	return l.batchAround(s, pos)
}

// batchAround finds the batch that spans pos.
func (l *segmentLog) batchAround(s *segment, pos int64) (int64, record.Header, error) {
	at, h, err := l.lookBack(s, pos, true)
	if isDamage(err) {
		// A batch larger than any that this process has seen or allows: step through the segment.
		w := l.walk(s, s.size)
		defer w.done()
		return l.scanTo(&w, 0, s.base+pos, math.MaxInt64)
	}
	return at, h, err
}

// lookBack looks back from pos, at most the largest batch, for a header whose base
// offset is its own position and whose CRC, if asked for, holds.
func (l *segmentLog) lookBack(s *segment, pos int64, sum bool) (int64, record.Header, error) {
	buf := walkBufs.Get().(*walkBuf)
	defer walkBufs.Put(buf)
	lowest := max(0, pos-int64(l.batchMax))
	for top := pos; top >= lowest; {
		// Candidates begin in [bottom, top]; the last one's header reaches past top.
		bottom := max(lowest, top-(walkChunk-record.HeaderSize))
		n := int(min(top+record.HeaderSize, s.size) - bottom)
		if err := readFull(s.log, buf[:n], bottom); err != nil {
			return 0, record.Header{}, err
		}
		for at := top; at >= bottom; at-- {
			b := buf[at-bottom : n]
			if len(b) < record.HeaderSize || b[16] != 2 {
				continue
			}
			h := record.ReadHeader(b)
			if h.BaseOffset == s.base+at && h.BatchLength >= record.HeaderSize-record.LengthPrefix &&
				at+int64(h.Size()) > pos && at+int64(h.Size()) <= s.size && (!sum || l.holds(s, at, h)) {
				return at, h, nil
			}
		}
		top = bottom - 1
	}
	return 0, record.Header{}, s.corrupt(pos, s.base+pos, "no batch spans this byte")
}

// holds is true when the CRC of the batch at pos holds.
func (l *segmentLog) holds(s *segment, pos int64, h record.Header) bool {
	sum, err := batchCRC(s.log, pos, h.Size())
	return err == nil && sum == h.CRC
}

// batchCRCFrom is where in a batch the bytes begin that its CRC covers.
const batchCRCFrom = 21

// batchCRC sums the bytes that a batch's CRC covers, a chunk at a time.
func batchCRC(r io.ReaderAt, pos int64, size int) (uint32, error) {
	buf := walkBufs.Get().(*walkBuf)
	defer walkBufs.Put(buf)
	sum := uint32(0)
	for at := batchCRCFrom; at < size; {
		n := min(walkChunk, size-at)
		if err := readFull(r, buf[:n], pos+int64(at)); err != nil {
			return 0, err
		}
		sum = crc32c.Update(sum, buf[:n])
		at += n
	}
	return sum, nil
}

// byteRegionEnd is regionEnd's search without an index: over large batches it
// steps from one to the next, over small ones it looks back from the end.
func (l *segmentLog) byteRegionEnd(w *walk, pos, stop int64, maxBytes int) (foundPlace, error) {
	if err := l.open(w.s); err != nil {
		return foundPlace{}, err
	}
	w.end = stop
	h, err := w.header(pos)
	if err != nil {
		return foundPlace{}, err
	}
	from := pos
	if h.Size() <= walkChunk && maxBytes > 2*walkChunk {
		at, _, err := l.batchAround(w.s, pos+int64(maxBytes))
		if err != nil {
			return foundPlace{}, err
		}
		from = max(at, pos)
	}
	return w.regionEnd(pos, from, stop, maxBytes)
}
