package storage

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/tidemark-log/tidemark/storage/record"
)

// walkChunk is how much a walk reads at once where batches are small.
const walkChunk = 16 << 10

type walkBuf [walkChunk]byte

var walkBufs = sync.Pool{New: func() any { return new(walkBuf) }}

// walk reads the headers of a segment's batches, from one to the next. It reads a
// chunk at a time while batches are small and only headers when they are large.
type walk struct {
	l   *segmentLog
	s   *segment
	end int64 // no batch reaches past it
	buf *walkBuf
	at  int64 // file position of buf[0]
	n   int   // valid bytes of buf
	big bool  // the last batch was larger than a chunk is worth
}

// walk begins a walk over the segment's first end bytes.
func (l *segmentLog) walk(s *segment, end int64) walk {
	return walk{l: l, s: s, end: end, buf: walkBufs.Get().(*walkBuf)}
}

func (w *walk) done() { walkBufs.Put(w.buf) }

// header reads the batch header at pos. A *CorruptionError says that there is none.
func (w *walk) header(pos int64) (record.Header, error) {
	h, ok, err := w.peek(pos)
	if err != nil || ok {
		return h, err
	}
	left := w.end - pos
	switch {
	case left < record.HeaderSize:
		return h, w.s.corrupt(pos, -1, fmt.Sprintf("%d bytes cannot hold a batch header", left))
	case h.Magic != 2:
		return h, w.s.corrupt(pos, -1, fmt.Sprintf("magic is %d, not 2", h.Magic))
	case h.BatchLength < record.HeaderSize-record.LengthPrefix, int64(h.Size()) > left:
		return h, w.s.corrupt(pos, -1, fmt.Sprintf("batch length %d, with %d bytes left", h.BatchLength, left))
	}
	return h, w.s.corrupt(pos, -1, fmt.Sprintf("base offset %d, last offset delta %d", h.BaseOffset, h.LastOffsetDelta))
}

// peek is header where it is no surprise that there is none: then ok is false.
func (w *walk) peek(pos int64) (h record.Header, ok bool, err error) {
	if pos+record.HeaderSize > w.end {
		return h, false, nil
	}
	if pos < w.at || pos+record.HeaderSize > w.at+int64(w.n) {
		want := int(min(walkChunk, w.end-pos))
		if w.big {
			want = record.HeaderSize
		}
		if err := w.l.open(w.s); err != nil {
			return h, false, err
		}
		if err := readFull(w.s.log, w.buf[:want], pos); err != nil {
			return h, false, fmt.Errorf("reading %s at byte %d: %w", w.s.path(), pos, err)
		}
		w.at, w.n = pos, want
	}
	h = record.ReadHeader(w.buf[pos-w.at:])
	w.big = h.Size() > walkChunk/4
	return h, h.Magic == 2 &&
		h.BatchLength >= record.HeaderSize-record.LengthPrefix && int64(h.Size()) <= w.end-pos &&
		h.LastOffsetDelta >= 0 && h.BaseOffset >= w.s.base && h.BaseOffset-w.s.base <= math.MaxInt32, nil
}

// isDamage is true for an error that says what stands in a file is no batch, and
// not that the file could not be read.
func isDamage(err error) bool {
	_, ok := errors.AsType[*CorruptionError](err)
	return ok
}

// readFull fills b from pos or says why not.
func readFull(r io.ReaderAt, b []byte, pos int64) error {
	n, err := r.ReadAt(b, pos)
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}
