package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/tidemark-log/tidemark/storage/record"
)

// recoverSegment scans segment i from the batch boundary at pos, which has offset
// expected, and cuts it at the first thing that is not the batch expected next.
// whole says that the next segment may follow.
//
// Below the recovery point nothing is cut: what lies there was durable, so the
// medium has lost it, and a cut would lose what stands behind it, too. The damage is
// reported, a read of it is an error, and the scan goes on at the next valid batch.
func (l *segmentLog) recoverSegment(i int, pos, expected, recoveryPoint int64, rep *RecoveryReport) (next int64, whole bool, err error) {
	s := l.segments[i]
	size, nextBase := s.size, int64(-1)
	if i+1 < len(l.segments) {
		nextBase = l.segments[i+1].base
	}
	if err := l.open(s); err != nil {
		return 0, false, err
	}
	w := l.walk(s, size)
	defer w.done()
	reason := ""
	s.size = pos
	unflushed, first := size, expected // where the part begins that no flush is known to cover
	defer func() { l.leave(s, unflushed, first) }()
	for s.size < size {
		if expected >= recoveryPoint && unflushed == size {
			unflushed, first = s.size, expected
		}
		h, err := w.header(s.size)
		if err == nil {
			if nextBase >= 0 && h.BaseOffset >= nextBase && h.NextOffset() > nextBase {
				// What lies here was cut off while a reader held it: the next segment begins below it. One that begins
				// within a batch is none that this log has made: the batch stays.
				if err := l.sealRecovered(s); err != nil {
					return 0, false, err
				}
				return expected, true, l.cutFile(s, s.size)
			}
			reason, err = l.follows(s, h, expected)
		}
		if damaged, ok := errors.AsType[*CorruptionError](err); ok {
			reason, err = damaged.Reason, nil
		}
		if err != nil {
			return 0, false, err
		}
		if reason != "" && expected < recoveryPoint {
			t, err := l.lookBehind(s, s.size, size, expected)
			if err != nil {
				return 0, false, err
			}
			if t.found && t.header.BaseOffset <= recoveryPoint {
				rep.Damage = append(rep.Damage, *s.corrupt(s.size, expected, t.say(reason)))
				s.size, expected, reason = t.pos, t.header.BaseOffset, ""
				s.sinceIndex = l.cfg.IndexIntervalBytes + 1 // an entry here leads past the damage
				continue
			}
		}
		if reason != "" {
			break
		}
		rep.BytesScanned += int64(h.Size())
		l.epochs.assign(h.PartitionLeaderEpoch, h.BaseOffset)
		if err := l.noteIndexes(s, h, s.size); err != nil {
			return 0, false, err
		}
		s.size += int64(h.Size())
		expected = h.NextOffset()
	}
	if s.size == size {
		return expected, true, l.sealRecovered(s)
	}
	if err := l.judgeTail(s, size, expected, reason, rep); err != nil {
		return 0, false, err
	}
	return expected, false, l.cutFile(s, s.size)
}

// sealRecovered writes the whole index of a segment that is complete.
func (l *segmentLog) sealRecovered(s *segment) error {
	if !s.closing {
		return nil
	}
	return l.seal(s)
}

// follows says why the batch at the segment's size is not the one that belongs there, or "".
func (l *segmentLog) follows(s *segment, h record.Header, expected int64) (reason string, err error) {
	switch {
	case h.BaseOffset < expected:
		return fmt.Sprintf("base offset %d, expected %d", h.BaseOffset, expected), nil
	case l.cfg.Offsets == OffsetsByte && (h.BaseOffset != s.base+s.size || h.NextOffset() != h.BaseOffset+int64(h.Size())):
		return fmt.Sprintf("offsets %d to %d are not its bytes' positions, from %d on", h.BaseOffset, h.LastOffset(), s.base+s.size), nil
	case h.LastOffset()-s.base > segmentBytesMax:
		return fmt.Sprintf("last offset %d is beyond what segment %d can hold", h.LastOffset(), s.base), nil
	case h.PartitionLeaderEpoch >= 0 && h.PartitionLeaderEpoch < l.epochs.latest():
		// An old batch that a cut had removed, come back behind a newer one.
		return fmt.Sprintf("leader epoch %d after epoch %d", h.PartitionLeaderEpoch, l.epochs.latest()), nil
	}
	if l.cfg.TrustTail {
		return "", nil
	}
	sum, err := batchCRC(s.log, s.size, h.Size())
	if err != nil {
		return "", err
	}
	if sum != h.CRC {
		return fmt.Sprintf("CRC is %08x, the header says %08x", sum, h.CRC), nil
	}
	return "", nil
}

// searchBudget bounds what judging a tail may sum, as a multiple of its length: a
// tail made to look full of headers must not make opening take for ever.
const searchBudget = 4

// tail is what lies behind the last valid batch of a segment.
type tail struct {
	written int64 // where the last byte is that is not zero
	found   bool  // a valid batch follows
	pos     int64 // where, and which
	header  record.Header
}

func (t tail) say(reason string) string {
	return fmt.Sprintf("%s; a valid batch with offset %d follows at byte %d", reason, t.header.BaseOffset, t.pos)
}

// judgeTail looks at what lies behind the last valid batch, [s.size, size): zeros
// were never written, and anything else was torn, unless valid batches follow:
// then the middle is damaged, which is reported.
func (l *segmentLog) judgeTail(s *segment, size, expected int64, reason string, rep *RecoveryReport) error {
	t, err := l.lookBehind(s, s.size, size, expected)
	if err != nil {
		return err
	}
	rep.TruncatedBytes += t.written - s.size
	if t.found {
		rep.Damage = append(rep.Damage, *s.corrupt(s.size, expected, t.say(reason)))
	}
	return nil
}

// lookBehind looks for a valid batch in (from, size), and where the zeros begin.
func (l *segmentLog) lookBehind(s *segment, from, size, expected int64) (t tail, err error) {
	buf := walkBufs.Get().(*walkBuf)
	defer walkBufs.Put(buf)
	budget := searchBudget * (size - from)
	t.written = from
	for at := from; at < size; at += walkChunk - record.HeaderSize {
		n := int(min(walkChunk, size-at))
		if err := readFull(s.log, buf[:n], at); err != nil {
			return t, err
		}
		if b := bytes.TrimRight(buf[:n], "\x00"); len(b) > 0 {
			t.written = at + int64(len(b))
		}
		for k := 0; !t.found && k+record.HeaderSize <= n && k < walkChunk-record.HeaderSize && budget > 0; k++ {
			pos := at + int64(k)
			if buf[k+16] != 2 || pos == from {
				continue
			}
			h := record.ReadHeader(buf[k:])
			if h.BatchLength < record.HeaderSize-record.LengthPrefix || int64(h.Size()) > size-pos || !l.mayStand(s, h, pos, expected) {
				continue
			}
			budget -= int64(h.Size())
			if l.holds(s, pos, h) {
				t.found, t.pos, t.header = true, pos, h
			}
		}
	}
	return t, nil
}

// mayStand is true when a batch with these offsets could lie at pos.
func (l *segmentLog) mayStand(s *segment, h record.Header, pos, expected int64) bool {
	if l.cfg.Offsets == OffsetsByte && (h.BaseOffset != s.base+pos || h.NextOffset() != h.BaseOffset+int64(h.Size())) {
		return false
	}
	return h.BaseOffset >= expected && h.LastOffsetDelta >= 0 && h.BaseOffset-s.base <= segmentBytesMax
}

// checkSealed looks at where a segment below the recovery point ends. One that
// ends past the next one's base was cut while a reader held it, and is cut now.
// Anything else that is wrong is reported and left: what follows was made durable, too.
func (l *segmentLog) checkSealed(i int, rep *RecoveryReport) error {
	s, next := l.segments[i], l.segments[i+1].base
	s.durable, s.sealed, s.whole = s.size, true, true
	if s.size == 0 {
		rep.Damage = append(rep.Damage, *s.corrupt(0, s.base, "segment below the recovery point is empty"))
		return nil
	}
	if err := l.open(s); err != nil {
		return err
	}
	end := s.base + s.size
	if l.cfg.Offsets != OffsetsByte {
		last, err := l.lastBatch(s)
		damaged, ok := errors.AsType[*CorruptionError](err)
		switch {
		case ok:
			rep.Damage = append(rep.Damage, *damaged)
			return nil
		case err != nil:
			return err
		}
		end = last.NextOffset()
	}
	switch {
	case end < next:
		rep.Damage = append(rep.Damage, *s.corrupt(s.size, end, fmt.Sprintf("the next segment begins at offset %d: batches between are missing", next)))
	case end > next:
		pos, err := l.overlapPosition(s, next)
		if err != nil {
			return err
		}
		if err := l.keepIndexesBelow(s, pos); err != nil {
			return err
		}
		s.size, s.durable, s.sealed = pos, pos, false
		return l.cutFile(s, pos)
	}
	return s.closeFiles()
}

// overlapPosition is where in segment s the first batch begins that reaches past
// next, the base of the segment after it.
func (l *segmentLog) overlapPosition(s *segment, next int64) (int64, error) {
	if l.cfg.Offsets == OffsetsByte {
		return next - s.base, nil
	}
	w := l.walk(s, s.size)
	defer w.done()
	from, err := l.indexed(&w, entryOffset, next-s.base)
	if err != nil {
		return 0, err
	}
	pos, _, err := l.scanTo(&w, from, next, math.MaxInt64)
	return pos, err
}
