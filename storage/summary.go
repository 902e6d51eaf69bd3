package storage

import (
	"math"

	"github.com/tidemark-log/tidemark/storage/record"
)

// headerAt reads one batch header.
func (l *segmentLog) headerAt(s *segment, pos int64) (record.Header, error) {
	if err := l.open(s); err != nil {
		return record.Header{}, err
	}
	w := l.walk(s, s.size)
	defer w.done()
	w.big = true
	return w.header(pos)
}

// summarize loads what is known of a segment's timestamps: the first batch's, and
// the largest, which the time index's last entry tells when the segment was
// sealed. Otherwise the batches after the last index entry are walked.
func (l *segmentLog) summarize(s *segment) error {
	if s.summed {
		return nil
	}
	if err := l.openIndexes(s); err != nil || s.summed {
		return err
	}
	s.firstTimestamp, s.maxTimestamp, s.maxTimestampOffset, s.sinceIndex = -1, -1, -1, 0
	if s.size == 0 {
		s.summed = true
		return nil
	}
	// Damage is for recovery to report and for reads to meet; it does not keep the
	// log from taking appends.
	h, err := l.headerAt(s, 0)
	switch {
	case err == nil:
		s.firstTimestamp = h.MaxTimestamp
	case !isDamage(err):
		return err
	}
	buf := indexBufs.Get().(*indexBuf)
	defer indexBufs.Put(buf)
	from := int64(0)
	if n := s.times.entries(); n > 0 {
		e, err := s.times.entry(buf, n-1)
		if err != nil {
			return err
		}
		s.maxTimestamp, s.maxTimestampOffset = entryTime(e), s.base+entryTimeOffset(e)
		// A power cut may have left anything in an index that was not durable.
		if ok, err := l.timeEntryHolds(s, s.maxTimestamp, s.maxTimestampOffset); err != nil || s.summed {
			return err
		} else if !ok {
			return l.rebuildIndexes(s)
		}
		from = min(s.maxTimestampOffset+1-s.base, s.size) // under byte offsets: an offset is a position
	} else if (s.whole || s.closing) && s.firstTimestamp >= 0 {
		return l.rebuildIndexes(s) // a complete index would have one
	}
	w := l.walk(s, s.size)
	defer w.done()
	if !s.offsets.absent {
		if from, err = l.indexed(&w, entryPos, math.MaxInt32); err != nil {
			return err
		}
		if s.summed { // the index was made anew, and the summary with it
			return nil
		}
	}
	s.sinceIndex = s.size - from
	s.summed = true
	if s.whole || s.closing {
		return nil
	}
	for pos := from; pos < s.size; {
		h, err := w.header(pos)
		if isDamage(err) {
			break
		}
		if err != nil {
			s.summed = false
			return err
		}
		if h.MaxTimestamp > s.maxTimestamp {
			s.maxTimestamp, s.maxTimestampOffset = h.MaxTimestamp, h.LastOffset()
		}
		pos += int64(h.Size())
	}
	return nil
}

// timeEntryHolds is true when the batch that ends at offset last has that largest timestamp, as an entry
// of the time index says. Where damage in the batches keeps it from being seen, the entry is believed. The search for
// the batch may find the index of offsets wrong, and then makes the time index anew as well.
func (l *segmentLog) timeEntryHolds(s *segment, timestamp, last int64) (bool, error) {
	if last < s.base {
		return false, nil
	}
	if s.offsets.absent {
		pos := min(last-s.base, s.size-1)
		at, h, err := l.byteBatch(s, pos)
		if isDamage(err) {
			return false, nil
		}
		return at+int64(h.Size()) == last+1-s.base && h.MaxTimestamp == timestamp, err
	}
	w := l.walk(s, s.size)
	defer w.done()
	pos, err := l.indexed(&w, entryOffset, last-s.base)
	if err != nil {
		return false, err
	}
	for pos < s.size {
		h, err := w.header(pos)
		if err != nil {
			return isDamage(err), ignoreDamage(err)
		}
		if h.LastOffset() >= last {
			return h.LastOffset() == last && h.MaxTimestamp == timestamp, nil
		}
		pos += int64(h.Size())
	}
	return false, nil
}

func ignoreDamage(err error) error {
	if isDamage(err) {
		return nil
	}
	return err
}

// rebuildIndexes makes a segment's indexes anew from its batches, up to the first that is no batch. One that
// could not be finished is begun again at the next use.
func (l *segmentLog) rebuildIndexes(s *segment) error {
	s.indexesHalfMade = false // as what appending the entries opens is to see it
	err := l.remakeIndexes(s)
	s.indexesHalfMade, s.summed = err != nil, err == nil
	return err
}

func (l *segmentLog) remakeIndexes(s *segment) error {
	if err := l.open(s); err != nil {
		return err
	}
	for _, x := range []*index{&s.offsets, &s.times} {
		if err := x.truncate(0); err != nil {
			return l.fail("truncate", x.name, 0, err)
		}
	}
	s.firstTimestamp, s.maxTimestamp, s.maxTimestampOffset, s.sinceIndex = -1, -1, -1, 0
	w := l.walk(s, s.size)
	defer w.done()
	for pos := int64(0); pos < s.size; {
		h, err := w.header(pos)
		if isDamage(err) {
			break
		}
		if err != nil {
			return err
		}
		if err := l.noteIndexes(s, h, pos); err != nil {
			return err
		}
		pos += int64(h.Size())
	}
	if !s.closing {
		l.indexesRemade(s)
		return nil
	}
	s.sealed = false // the next flush makes the indexes durable
	if err := l.noteTime(s); err != nil {
		return err
	}
	return l.writeIndexes(s, true)
}

// indexesRemade has the next flush sync the active segment's indexes where a producer snapshot lies in it:
// once the recovery point has passed that, recovery believes them up to there.
func (l *segmentLog) indexesRemade(s *segment) {
	if n := len(l.snapshots.offsets); n > 0 && l.snapshots.offsets[n-1] > s.base {
		s.indexDue = true
	}
}

// keepIndexesBelow removes the entries for batches at pos and after. The files are loaded.
func (l *segmentLog) keepIndexesBelow(s *segment, pos int64) error {
	buf := indexBufs.Get().(*indexBuf)
	defer indexBufs.Put(buf)
	s.summed, s.whole = false, false
	keepTimes := 0
	if pos > 0 {
		// The time index names offsets: that of the last batch that stays decides.
		last, err := l.lastOffsetBelow(s, pos, buf)
		if err != nil {
			return err
		}
		slot, _, err := s.times.search(buf, entryTimeOffset, last-s.base)
		if err != nil {
			return err
		}
		keepTimes = slot + 1
	}
	if err := s.times.truncate(keepTimes); err != nil {
		return err
	}
	if s.offsets.absent {
		return nil
	}
	slot, _, err := s.offsets.search(buf, entryPos, pos-1)
	if err != nil {
		return err
	}
	return s.offsets.truncate(slot + 1)
}

// lastOffsetBelow is the last offset of the batch that ends at pos.
func (l *segmentLog) lastOffsetBelow(s *segment, pos int64, buf *indexBuf) (int64, error) {
	if s.offsets.absent {
		return s.base + pos - 1, nil
	}
	slot, e, err := s.offsets.search(buf, entryPos, pos-1)
	if err != nil {
		return 0, err
	}
	at := int64(0)
	if slot >= 0 {
		at = entryPos(e)
	}
	if err := l.open(s); err != nil {
		return 0, err
	}
	w := l.walk(s, pos)
	defer w.done()
	for {
		h, err := w.header(at)
		if err != nil {
			return 0, err
		}
		if at += int64(h.Size()); at >= pos {
			return h.LastOffset(), nil
		}
	}
}
