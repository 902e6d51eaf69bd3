package storage

import (
	"errors"
	"math"

	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// Append writes batches with one write call for each segment that they go to. It
// walks them three times: to check them against producer state and limits, to
// stamp them in place, and, once they are written, to note them. Nothing is
// noted before the write has succeeded: a resend of what a failed write left
// must not be answered as a duplicate (E6).
func (l *segmentLog) Append(batches []byte, a AppendArgs) (Appended, error) {
	if err := l.writable(); err != nil {
		return Appended{}, err
	}
	if err := l.settle(); err != nil {
		return Appended{}, err
	}
	if a.Replica {
		return l.appendReplica(batches, a)
	}
	dup, err := checkAppend(batches, &l.cfg, &l.producers)
	if err != nil {
		return Appended{}, err
	}
	if dup != nil {
		return dup.appended(l.logStart.Load(), l.cfg.LogAppendTime), nil
	}
	return l.appendChecked(batches, a)
}

// appendChecked is Append once nothing speaks against the batches.
func (l *segmentLog) appendChecked(batches []byte, a AppendArgs) (Appended, error) {
	first, err := stampAppend(batches, a, l.end.Load(), &l.cfg)
	if err != nil {
		return Appended{}, err
	}
	done := Appended{BaseOffset: first, AppendTime: -1, Bytes: len(batches)}
	if l.cfg.LogAppendTime && !a.Replica {
		done.AppendTime = a.Now
	}
	// Before anything is noted: this may make the indexes anew from what is there.
	if err := l.openIndexes(l.active()); err != nil {
		return Appended{}, err
	}
	if err := l.summarize(l.active()); err != nil {
		return Appended{}, err
	}
	for rest := batches; len(rest) > 0; {
		n := l.fitting(rest, a.Now)
		if n == 0 {
			if err := l.roll(a.Now); err != nil {
				return Appended{}, err
			}
			done.Rolled = true
			continue
		}
		if err := l.write(rest[:n], a); err != nil {
			return Appended{}, err
		}
		rest = rest[n:]
	}
	done.LastOffset = l.end.Load() - 1
	done.LogStartOffset = l.logStart.Load()
	return done, nil
}

// fitting gives the bytes of the leading batches that go to the active segment;
// 0 says that it must be rolled first.
func (l *segmentLog) fitting(batches []byte, now int64) (n int) {
	s := l.active()
	size, entries := s.size, 0
	for n < len(batches) {
		h := record.ReadHeader(batches[n:])
		if l.mustRoll(s, h, size, entries, now) {
			break
		}
		n += h.Size()
		size += int64(h.Size())
		entries++
	}
	return n
}

// mustRoll is Kafka's LogSegment.shouldRoll: by size, age, full index, or an
// offset that the index cannot express. size and entries are what the segment
// will have once the batches before h are in it.
func (l *segmentLog) mustRoll(s *segment, h record.Header, size int64, entries int, now int64) bool {
	if size == 0 {
		return false // check saw to it that any batch fits into an empty segment
	}
	waited := now - s.created
	if s.firstTimestamp >= 0 {
		waited = h.MaxTimestamp - s.firstTimestamp
	}
	return size+int64(h.Size()) > l.cfg.SegmentBytes ||
		h.LastOffset()-s.base > math.MaxInt32 ||
		waited > l.cfg.SegmentMs-s.jitter(l.cfg.SegmentJitterMs, l.cfg.SegmentMs) ||
		s.offsets.bytes()+int64(entries+1)*offsetEntrySize > l.cfg.SegmentIndexBytes ||
		s.times.bytes()+int64(entries+2)*timeEntrySize > l.cfg.SegmentIndexBytes
}

// write writes stamped batches, which fit, to the active segment and notes them.
func (l *segmentLog) write(batches []byte, a AppendArgs) error {
	s := l.active()
	if err := l.open(s); err != nil {
		return err // nothing was written: too many open files, say, is no reason to go offline
	}
	if _, err := s.log.WriteAt(batches, s.size); errors.Is(err, vfs.ErrTooManyOpen) {
		return err // the same, of a descriptor that the cache had closed
	} else if err != nil {
		return l.fail("append", s.path(), s.size, err)
	}
	for rest := batches; len(rest) > 0; {
		h := record.ReadHeader(rest)
		if err := l.note(s, h); err != nil {
			return err
		}
		l.producers.update(h, a.Now)
		rest = rest[h.Size():]
	}
	return l.maybeSnapshot(int64(len(batches)))
}

// note takes the batch that stands at the segment's size into its indexes and
// into the leader epochs, and moves the ends past it.
func (l *segmentLog) note(s *segment, h record.Header) error {
	l.epochs.assign(h.PartitionLeaderEpoch, h.BaseOffset)
	if err := l.noteIndexes(s, h, s.size); err != nil {
		return err
	}
	s.size += int64(h.Size())
	l.batchMax = max(l.batchMax, h.Size())
	l.end.Store(h.NextOffset())
	return nil
}

// noteIndexes adds index entries for the batch at pos when the last ones lie an
// interval back, as Kafka does: the bytes before the batch count.
func (l *segmentLog) noteIndexes(s *segment, h record.Header, pos int64) error {
	if s.firstTimestamp < 0 {
		s.firstTimestamp = h.MaxTimestamp
	}
	if h.MaxTimestamp > s.maxTimestamp {
		s.maxTimestamp, s.maxTimestampOffset = h.MaxTimestamp, h.LastOffset()
	}
	if s.sinceIndex > l.cfg.IndexIntervalBytes {
		if err := l.roomInIndexes(s); err != nil {
			return err
		}
		if !s.offsets.absent {
			s.offsets.appendOffset(s.relative(h.LastOffset()), pos)
		}
		if err := l.noteTime(s); err != nil {
			return err
		}
		s.sinceIndex = 0
	}
	s.sinceIndex += int64(h.Size())
	return nil
}

// noteTime adds a time index entry when the largest timestamp has grown since the last.
func (l *segmentLog) noteTime(s *segment) error {
	last := int64(-1)
	if n := s.times.entries(); n > 0 {
		buf := indexBufs.Get().(*indexBuf)
		defer indexBufs.Put(buf)
		e, err := s.times.entry(buf, n-1)
		if err != nil {
			return l.fail("append", s.times.name, 0, err)
		}
		last = entryTime(e)
	}
	if s.maxTimestamp > last {
		s.times.appendTime(s.maxTimestamp, s.relative(s.maxTimestampOffset))
	}
	return nil
}

// roomInIndexes writes the gathered entries when there are many.
func (l *segmentLog) roomInIndexes(s *segment) error {
	if err := l.openIndexes(s); err != nil {
		return l.fail("append", s.offsets.name, 0, err)
	}
	if s.offsets.full() || s.times.full() {
		return l.writeIndexes(s, true)
	}
	return nil
}

// writeIndexes writes the gathered entries. Unless whole, a small segment that has none is spared two
// empty files: openIndexes does without them while there is no more to walk than between two entries.
func (l *segmentLog) writeIndexes(s *segment, whole bool) error {
	for _, x := range []*index{&s.offsets, &s.times} {
		created, err := x.writeOut(l.fs, whole || s.size > l.cfg.IndexIntervalBytes)
		if err != nil {
			return l.fail("append", x.name, int64(x.written*x.width), err)
		}
		if created {
			l.names++
		}
	}
	return nil
}

// roll seals the active segment and begins a new one at the log end offset.
func (l *segmentLog) roll(now int64) error {
	s := l.active()
	if err := l.seal(s); err != nil {
		return err
	}
	s.closing = true
	// Producer state at the boundary: recovery begins from it.
	if err := l.saveSnapshot(); err != nil {
		return err
	}
	return l.create(l.end.Load(), now)
}

// sealIndexes writes what a segment's indexes get when nothing more is appended:
// the last time index entry, so that the largest timestamp is known without a
// scan, and the gathered entries.
func (l *segmentLog) sealIndexes(s *segment) error {
	if err := l.openIndexes(s); err != nil {
		return l.fail("roll", s.offsets.name, 0, err)
	}
	if err := l.summarize(s); err != nil {
		return l.fail("roll", s.path(), 0, err)
	}
	if s.times.full() {
		if err := l.writeIndexes(s, true); err != nil {
			return err
		}
	}
	if err := l.noteTime(s); err != nil {
		return err
	}
	return l.writeIndexes(s, true)
}

// seal seals the indexes and cuts the file: behind its length lie zeros, preallocated or
// written by direct I/O.
func (l *segmentLog) seal(s *segment) error {
	if err := l.sealIndexes(s); err != nil {
		return err
	}
	return l.cutTail(s)
}

// cutTail cuts the file to its exact length.
func (l *segmentLog) cutTail(s *segment) error {
	if l.cfg.Preallocate || l.cfg.Cache == CacheDirect {
		if err := l.open(s); err != nil {
			return l.fail("roll", s.path(), 0, err)
		}
		if err := s.log.Truncate(s.size); err != nil {
			return l.fail("roll", s.path(), s.size, err)
		}
	}
	return nil
}
