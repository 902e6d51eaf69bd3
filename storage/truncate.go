package storage

import "slices"

// Truncate removes everything at offset and above, and the batch that spans
// offset as a whole: the log ends at a batch, so that what follows can be
// fetched again from there.
//
// It is durable when it returns, in this order. First the recovery point goes
// down, so that what is appended after the cut is not taken for flushed (H3).
// Then the file is cut and synced: otherwise a power cut could bring an old
// batch back right behind a new one that ends where it begins.
func (l *segmentLog) Truncate(offset int64) error {
	if err := l.writable(); err != nil {
		return err
	}
	if end := l.end.Load(); offset >= end {
		l.epochs.truncateEnd(end)
		return nil
	}
	if err := l.settle(); err != nil {
		return err
	}
	offset = max(offset, 0)
	start := l.logStart.Load()
	if err := l.truncateBelowEnd(offset); err != nil {
		return err
	}
	if l.logStart.Load() < start {
		// One that came back after a restart would hide what is appended below it.
		if err := l.dir.saveLogStarts(); err != nil {
			return l.fail("checkpoint", logStartFile, 0, err)
		}
	}
	return nil
}

func (l *segmentLog) truncateBelowEnd(offset int64) error {
	if offset < l.segments[0].base {
		return l.restartAt(offset)
	}
	i := l.segmentAt(offset)
	pos, err := l.cutPosition(i, offset)
	if err != nil {
		return err
	}
	end := offset
	if pos < l.segments[i].size {
		h, err := l.headerAt(l.segments[i], pos)
		if err != nil {
			return err
		}
		end = min(end, h.BaseOffset)
	}
	if err := l.lowerEnd(end, end); err != nil {
		return err
	}
	if err := l.cutSegment(i, pos, end); err != nil {
		return err
	}
	return l.afterCut(end)
}

// cutPosition is where the batch that reaches offset or past it begins.
func (l *segmentLog) cutPosition(i int, offset int64) (int64, error) {
	l.found.clear()
	return l.limitPosition(i, offset)
}

// lowerEnd makes end the log end offset, and makes sure that no recovery point lies
// above durable: nothing from there on may be there after a crash.
func (l *segmentLog) lowerEnd(end, durable int64) error {
	l.cuts++
	l.found.clear()
	// Gone before the directory's sync below: one that came back would be taken
	// for the state of the batches that will stand there.
	if err := l.dropSnapshots(l.checkpointed.Load(), end); err != nil {
		return err
	}
	l.end.Store(end)
	if l.logStart.Load() > end {
		l.logStart.Store(end)
	}
	if l.flushed.Load() > durable {
		l.flushed.Store(durable)
	}
	if err := l.dir.lowerRecoveryPointOf(l, durable); err != nil {
		return l.fail("checkpoint", recoveryPointFile, 0, err)
	}
	if err := l.dir.lowerWatermark(l.path, end); err != nil {
		return l.fail("checkpoint", highWatermarkFile, 0, err)
	}
	return nil
}

// cutSegment removes what lies at pos and after in segment i, and all later
// segments. Bytes that a live region covers stay: the segment then ends at pos
// though its file goes on, and a new segment, which says so after a restart, takes the appends.
func (l *segmentLog) cutSegment(i int, pos, end int64) error {
	for len(l.segments) > i+1 {
		if err := l.dropLast(); err != nil {
			return err
		}
	}
	s := l.active()
	pinned := s.pinned() && s.pinnedEnd > pos
	if pinned && pos == 0 {
		if err := l.dropLast(); err != nil {
			return err
		}
		if err := l.create(end, s.created); err != nil {
			return err
		}
		return l.syncNames()
	}
	if err := l.cutIndexes(s, pos); err != nil {
		return err
	}
	s.size, s.durable = pos, min(s.durable, pos)
	// It may have been sealed. What its indexes say last is of batches that are gone: until it is sealed anew it is
	// the active segment, whose batches are walked for the largest timestamp.
	s.sealed, s.closing = false, false
	if pinned {
		// What stays behind the cut has to be whole: torn by a power cut it would look
		// like the end of the log, and recovery would drop the segments that follow.
		if err := l.syncLog(s); err != nil {
			return err
		}
		if err := l.sealIndexes(s); err != nil {
			return err
		}
		s.cutAt, s.closing = pos, true
		if err := l.create(end, s.created); err != nil {
			return err
		}
		return l.syncNames()
	}
	return l.cutFile(s, pos)
}

// dropLast deletes the active segment. The directory is synced each time: were an
// earlier segment's name lost before a later one's, a log with a hole would be left.
func (l *segmentLog) dropLast() error {
	s := l.active()
	l.segments = l.segments[:len(l.segments)-1]
	if err := l.deleteSegment(s, -1); err != nil {
		return err
	}
	return l.syncNames()
}

func (l *segmentLog) cutFile(s *segment, pos int64) error {
	if err := l.open(s); err != nil {
		return l.fail("truncate", s.path(), pos, err)
	}
	s.left.cut(pos)
	if err := s.log.Truncate(pos); err != nil {
		return l.fail("truncate", s.path(), pos, err)
	}
	if err := s.log.Sync(); err != nil {
		return l.fail("fsync", s.path(), pos, err)
	}
	// The indexes too: an old entry that came back would lead to a batch that is no more.
	if err := l.syncIndexes(s); err != nil {
		return err
	}
	s.cutAt = -1
	return l.syncNames()
}

func (l *segmentLog) syncLog(s *segment) error {
	if err := l.open(s); err != nil {
		return l.fail("fsync", s.path(), s.size, err)
	}
	if err := l.syncer(s).Sync(); err != nil {
		return l.fail("fsync", s.path(), s.size, err)
	}
	return nil
}

func (l *segmentLog) syncNames() error {
	if err := l.fs.SyncDir(l.path); err != nil {
		return l.fail("fsync", l.path, 0, err)
	}
	l.namesDurable = l.names
	return nil
}

// applyCuts cuts files that regions held up and no longer do.
func (l *segmentLog) applyCuts() error {
	for _, s := range l.segments {
		if s.cutAt < 0 || s.pinned() {
			continue
		}
		if err := l.cutFile(s, s.cutAt); err != nil {
			return err
		}
	}
	return nil
}

// cutIndexes removes the entries for batches at pos and after. Which of the
// rest was last is then known from the batches.
func (l *segmentLog) cutIndexes(s *segment, pos int64) error {
	if err := l.openIndexes(s); err != nil {
		return l.fail("truncate", s.offsets.name, 0, err)
	}
	if err := l.keepIndexesBelow(s, pos); err != nil {
		return l.fail("truncate", s.offsets.name, 0, err)
	}
	return nil
}

// afterCut brings what is derived from the batches back to the new end.
func (l *segmentLog) afterCut(end int64) error {
	l.epochs.truncateEnd(end)
	if err := l.loadProducers(end, l.active().created); err != nil {
		return l.fail("truncate", l.path, end, err) // the batches are gone, their producers not known
	}
	if end > 0 && end == l.active().base {
		// As when rolling: what the earlier segments say of the producers may go with them.
		return l.saveSnapshot()
	}
	return nil
}

// restartAt empties the log and begins it anew at offset, below its end.
func (l *segmentLog) restartAt(offset int64) error {
	if err := l.lowerEnd(offset, min(offset, l.segments[0].base)); err != nil {
		return err
	}
	created := l.active().created
	for len(l.segments) > 0 {
		if err := l.dropLast(); err != nil {
			return err
		}
	}
	if err := l.create(offset, created); err != nil {
		return err
	}
	if err := l.syncNames(); err != nil {
		return err
	}
	return l.afterCut(offset)
}

// TruncateFullyAndStartAt empties the log and begins it anew at offset. What it
// knew of leader epochs and producers goes with the batches.
func (l *segmentLog) TruncateFullyAndStartAt(offset int64) error {
	if err := l.writable(); err != nil {
		return err
	}
	if err := checkStart(l.path, offset); err != nil {
		return err
	}
	if err := l.settle(); err != nil {
		return err
	}
	if offset < l.end.Load() {
		if err := l.restartAt(offset); err != nil {
			return err
		}
	}
	if err := l.restartAbove(offset); err != nil {
		return err
	}
	for _, o := range slices.Clone(l.snapshots.offsets) {
		if err := l.removeSnapshot(o); err != nil {
			return err
		}
	}
	l.producers.clear()
	l.epochs.clear()
	return l.writeEpochs()
}

// restartAbove empties the log and begins it anew at offset, which is not below its
// end. A power cut leaves the one log or the other, by the order of things: the new
// segment's name is durable before the log start is, and what lies below the log
// start is a leftover when the log opens. Without the log start the new segment
// follows nothing, and goes.
func (l *segmentLog) restartAbove(offset int64) error {
	l.cuts++
	l.found.clear()
	if s := l.active(); s.size > 0 || s.base != offset {
		if err := l.create(offset, s.created); err != nil {
			return err
		}
		if err := l.syncNames(); err != nil {
			return err
		}
	}
	l.end.Store(offset)
	l.logStart.Store(offset)
	if err := l.dir.saveLogStarts(); err != nil {
		return l.fail("checkpoint", logStartFile, 0, err)
	}
	// Only now: a checkpoint that came before the log start's would call durable what is not there.
	l.flushed.Store(offset)
	for len(l.segments) > 1 {
		s := l.segments[0]
		l.segments = l.segments[1:]
		if err := l.deleteSegment(s, -1); err != nil {
			return err
		}
	}
	l.segments = append([]*segment(nil), l.segments...)
	return l.syncNames()
}

// writeEpochs makes the leader epochs durable at once.
func (l *segmentLog) writeEpochs() error {
	if l.epochs.version <= l.epochs.durable {
		return nil
	}
	w := epochWrite{file: &l.epochs.file, version: l.epochs.version, content: l.epochs.encode()}
	if err := w.Sync(); err != nil {
		return l.fail("checkpoint", l.epochs.file.path, 0, err)
	}
	l.epochs.durable = l.epochs.version
	return nil
}
