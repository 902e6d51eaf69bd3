package storage

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/tidemark-log/tidemark/storage/record"
)

// RecoveryReport says what opening a log found and did.
type RecoveryReport struct {
	Clean          bool  // opened after a clean shutdown: no batch was read again
	BytesScanned   int64 // batches whose CRC was computed: the tail above the recovery point
	TruncatedBytes int64 // removed from the end, unwritten zeros not counted
	// Damage is data that is not what was written and has valid batches behind it,
	// so that it is no torn tail. Above the recovery point the log now ends before
	// it; below, it is as it was found.
	Damage []CorruptionError
}

// savedState is what the log directory knows of a partition.
type savedState struct {
	created       bool  // just now: its names are made durable when it is open
	clean         bool  // the directory was closed cleanly
	recoveryPoint int64 // everything below was made durable
	logStart      int64
}

// openSegmentLog opens or creates the log in dir.
func openSegmentLog(d *Dir, dir string, cfg LogConfig, saved savedState, now int64) (Log, RecoveryReport, error) {
	l := &segmentLog{dir: d, fs: d.fs, path: dir}
	l.cfg.Engine, l.cfg.Cache, l.cfg.Offsets = cfg.Engine, cfg.Cache, cfg.Offsets
	l.SetConfig(cfg)
	l.epochs.file = epochFile{fs: d.fs, path: path.Join(dir, epochFileName)}
	var rep RecoveryReport
	err := l.load(saved, now, &rep)
	if err != nil {
		for _, s := range l.segments {
			s.unpin()
		}
		return nil, rep, fmt.Errorf("opening log %s: %w", dir, err)
	}
	return l, rep, nil
}

func (l *segmentLog) load(saved savedState, now int64, rep *RecoveryReport) error {
	if err := l.list(now); err != nil {
		return err
	}
	if err := l.dropLeftovers(saved.logStart); err != nil {
		return err
	}
	fresh := len(l.segments) == 0
	if fresh {
		if err := l.create(saved.logStart, now); err != nil {
			return err
		}
		// Were its name lost and a later segment's not, the log would begin with a hole.
		if !saved.created {
			if err := l.syncNames(); err != nil {
				return err
			}
		}
	}
	l.logStart.Store(max(saved.logStart, l.segments[0].base))
	l.checkpointed.Store(saved.recoveryPoint)
	epochsKnown, err := l.loadEpochs(fresh)
	if err != nil {
		return err
	}
	last, hasLast := l.epochs.spanning(l.logStart.Load())
	clean := saved.clean && l.openCleanly() == nil
	if !clean {
		if err := l.recover(saved.recoveryPoint, epochsKnown, rep); err != nil {
			return err
		}
	} else if !epochsKnown {
		if err := l.walkEpochs(len(l.segments), math.MaxInt64); err != nil {
			return err
		}
	}
	rep.Clean = clean
	end := l.end.Load()
	if l.logStart.Load() > end {
		l.logStart.Store(end)
	}
	l.epochs.truncateEnd(end)
	l.epochs.truncateStart(l.logStart.Load()) // recovery may have found epochs that ended below it
	if hasLast && l.logStart.Load() == end {
		l.epochs.keepLast(last, end)
	}
	if err := l.dropSnapshots(0, end); err != nil {
		return err
	}
	if l.names > l.namesDurable && !fresh {
		// What was removed must not come back when something else stands in its place.
		if err := l.syncNames(); err != nil {
			return err
		}
	}
	if err := l.loadProducers(end, now); err != nil {
		return err
	}
	l.foreignID = !clean && !saved.created
	if !clean && !fresh && l.namesDurable == 0 {
		l.names++
		l.foreignNames = l.names
	}
	if !epochsKnown && end == l.segments[0].base || fresh {
		l.epochs.durable = l.epochs.version // no file and no batch: nothing to write
	}
	return l.closeIdleFiles()
}

// closeIdleFiles gives back the descriptors that opening took, where nothing is
// gathered in memory: most partitions of a broker are idle.
func (l *segmentLog) closeIdleFiles() error {
	for _, s := range l.segments {
		if len(s.offsets.tail) > 0 || len(s.times.tail) > 0 || s.offsets.dirty || s.times.dirty {
			continue
		}
		if err := s.closeFiles(); err != nil {
			return err
		}
	}
	return nil
}

// list reads the directory: segments, snapshots, and what was deleted or half made before.
func (l *segmentLog) list(now int64) error {
	names, err := l.fs.List(l.path)
	if err != nil {
		return err
	}
	for _, name := range names {
		full := path.Join(l.path, name)
		if strings.HasSuffix(name, deletedSuffix) || strings.HasSuffix(name, tmpSuffix) {
			if err := removeIfThere(l.fs, full); err != nil {
				return err
			}
			continue
		}
		if base, ok := parseOffsetName(name, logSuffix); ok {
			info, err := l.fs.Stat(full)
			if err != nil {
				return err
			}
			s := newSegment(l.path, base, l.cfg.Offsets)
			s.size, s.created = min(info.Size, segmentBytesMax), now
			l.segments = append(l.segments, s)
		}
		if offset, ok := parseOffsetName(name, snapshotSuffix); ok {
			l.snapshots.offsets = append(l.snapshots.offsets, offset)
		}
	}
	for _, s := range l.segments[:max(len(l.segments)-1, 0)] {
		s.closing = true
	}
	return nil
}

// dropLeftovers removes segments wholly below the log start: a deletion whose
// renames a power cut took back.
func (l *segmentLog) dropLeftovers(logStart int64) error {
	for len(l.segments) > 1 && l.segments[1].base <= logStart {
		s := l.segments[0]
		l.segments = l.segments[1:]
		if err := l.removeSegment(s); err != nil {
			return err
		}
	}
	return nil
}

// removeSegment removes a segment's files at once: nothing reads while a log opens.
func (l *segmentLog) removeSegment(s *segment) error {
	s.unpin()
	for _, suffix := range []string{logSuffix, indexSuffix, timeIndexSuffix} {
		if err := removeIfThere(l.fs, path.Join(l.path, offsetName(s.base, suffix))); err != nil {
			return err
		}
	}
	l.names++
	return nil
}

// loadEpochs reads leader-epoch-checkpoint; known is false when it must be made anew from the batches.
func (l *segmentLog) loadEpochs(fresh bool) (known bool, err error) {
	l.epochs.version = 1
	b, err := readFile(l.fs, l.epochs.file.path, checkpointBytesMax)
	if errors.Is(err, iofs.ErrNotExist) {
		return fresh, nil
	}
	if err == nil {
		err = l.epochs.decode(b)
		if err != nil {
			return false, nil
		}
	}
	l.epochs.durable = 1
	return true, err
}

// walkEpochs makes the leader epochs anew from the headers below offset, in the first n segments.
func (l *segmentLog) walkEpochs(n int, below int64) error {
	for _, s := range l.segments[:n] {
		if err := l.open(s); err != nil {
			return err
		}
		w := l.walk(s, s.size)
		for pos := int64(0); pos < s.size; {
			h, err := w.header(pos)
			if err != nil || h.BaseOffset >= below {
				break // recovery itself will say what is wrong here
			}
			l.epochs.assign(h.PartitionLeaderEpoch, h.BaseOffset)
			pos += int64(h.Size())
		}
		w.done()
	}
	return nil
}

// openCleanly finds the log end offset from the last batches. An error says that
// the directory is not what a clean shutdown leaves: then it is recovered.
func (l *segmentLog) openCleanly() error {
	s := l.active()
	end := s.base
	if s.size > 0 {
		if err := l.open(s); err != nil {
			return err
		}
		switch {
		case l.cfg.Offsets == OffsetsByte:
			// A batch that ends with the file will do, its CRC unseen: this is a clean opening.
			at, h, err := l.lookBack(s, s.size-1, false)
			if err != nil || at+int64(h.Size()) != s.size || h.NextOffset() != s.base+s.size {
				return s.corrupt(at, s.base+at, "the file does not end with a batch")
			}
			end = s.base + s.size
		default:
			last, err := l.lastBatch(s)
			if err != nil {
				return err
			}
			end = last.NextOffset()
		}
	}
	l.end.Store(end)
	l.flushed.Store(end)
	for _, s := range l.segments {
		s.durable, s.sealed, s.whole = s.size, s.closing, s.closing || s.size > walkedBytesMax
	}
	return nil
}

// lastBatch walks from the last index entry to the batch at the segment's end.
func (l *segmentLog) lastBatch(s *segment) (record.Header, error) {
	w := l.walk(s, s.size)
	defer w.done()
	pos, err := l.indexed(&w, entryPos, math.MaxInt32)
	if err != nil {
		return record.Header{}, err
	}
	for {
		h, err := w.header(pos)
		if err != nil {
			return h, err
		}
		if pos += int64(h.Size()); pos == s.size {
			return h, nil
		}
	}
}

// recover makes the log the longest valid run of batches. Segments that end below
// the recovery point are durable with their indexes and only looked at where they
// end; from the recovery point on every batch's CRC is computed and the indexes'
// tails are made anew. A segment that ends at the recovery point may have been
// rolled after the flush: its indexes are not to be believed as a whole.
func (l *segmentLog) recover(recoveryPoint int64, epochsKnown bool, rep *RecoveryReport) error {
	first := l.segmentAt(max(recoveryPoint-1, 0))
	// The scan adds those from here on; the file may have more, of batches that were cut off.
	l.epochs.truncateEnd(recoveryPoint)
	if !epochsKnown {
		if err := l.walkEpochs(first+1, recoveryPoint); err != nil {
			return err
		}
	}
	for i := range first {
		if err := l.checkSealed(i, rep); err != nil {
			return err
		}
	}
	expected := l.segments[first].base
	for i := first; i < len(l.segments); i++ {
		s := l.segments[i]
		if s.base != expected {
			// A segment between is missing, or the one before ended early.
			return l.dropFrom(i, expected, recoveryPoint, rep)
		}
		from := int64(0)
		var err error
		if i == first {
			from, expected, err = l.recoveryStart(i, recoveryPoint)
			l.epochs.truncateEnd(expected) // where no index led to the recovery point the scan begins below it
		} else {
			err = l.startIndexes(s, 0, s.base)
		}
		if err != nil {
			return err
		}
		s.closing = i+1 < len(l.segments)
		next, whole, err := l.recoverSegment(i, from, expected, recoveryPoint, rep)
		if err != nil {
			return err
		}
		expected = next
		if !whole {
			return l.dropFrom(i+1, expected, recoveryPoint, rep)
		}
	}
	return l.dropFrom(len(l.segments), expected, recoveryPoint, rep)
}

// dropFrom ends recovery: the log ends at offset end, and segments from i on cannot follow it.
func (l *segmentLog) dropFrom(i int, end, recoveryPoint int64, rep *RecoveryReport) error {
	gone := l.segments[i:]
	l.segments = slices.Clip(l.segments[:i])
	for k, s := range gone {
		if s.size > 0 {
			rep.TruncatedBytes += s.size
			rep.Damage = append(rep.Damage, *s.corrupt(0, end, fmt.Sprintf("segment does not follow the batches before it, which end at offset %d: removed", end)))
		}
		if err := l.removeSegment(s); err != nil {
			for _, rest := range gone[k+1:] {
				rest.unpin()
			}
			return err
		}
	}
	s := l.active()
	s.closing, s.sealed = false, false
	l.indexesRemade(s)
	l.end.Store(end)
	l.flushed.Store(min(recoveryPoint, end))
	if recoveryPoint > end {
		rep.Damage = append(rep.Damage, *s.corrupt(s.size, end, fmt.Sprintf("the log ends here, though everything below offset %d was flushed", recoveryPoint)))
		// The checkpoint would call durable what is yet to be written there.
		l.checkpointed.Store(end)
		if err := l.dir.lowerRecoveryPoint(l.path, end); err != nil {
			return err
		}
	}
	return nil
}

// recoveryStart finds where in segment i the scan begins: at the recovery point,
// if the batches lead there, and otherwise at the segment's first batch.
//
// Indexes are durable up to the newest producer snapshot below the recovery
// point: the flush that took the recovery point past the snapshot synced them. One
// at the recovery point may be younger than that flush. From there on they are made anew.
func (l *segmentLog) recoveryStart(i int, recoveryPoint int64) (pos, expected int64, err error) {
	s := l.segments[i]
	if s.size == 0 || recoveryPoint <= s.base {
		return 0, s.base, l.startIndexes(s, 0, s.base)
	}
	known := s.base
	for _, o := range l.snapshots.offsets {
		if o < recoveryPoint {
			known = max(known, o)
		}
	}
	pos, ok, err := l.trustedPosition(s, known)
	if err != nil {
		return 0, 0, err
	}
	if ok {
		if err := l.startIndexes(s, pos, known); err != nil {
			return 0, 0, err
		}
		if pos, ok, err = l.indexUpTo(s, pos, known, recoveryPoint); err != nil {
			return 0, 0, err
		}
	}
	if !ok {
		return 0, s.base, l.startIndexes(s, 0, s.base)
	}
	s.durable = pos
	return pos, recoveryPoint, nil
}

// indexUpTo takes the batches from pos, which has offset known, up to offset end
// into the indexes; ok is false when they do not lead there.
func (l *segmentLog) indexUpTo(s *segment, pos, known, end int64) (at int64, ok bool, err error) {
	w := l.walk(s, s.size)
	defer w.done()
	for known < end {
		h, err := w.header(pos)
		if isDamage(err) || (err == nil && h.BaseOffset < known) {
			return 0, false, nil
		}
		if err != nil {
			return 0, false, err
		}
		if err := l.noteIndexes(s, h, pos); err != nil {
			return 0, false, err
		}
		pos += int64(h.Size())
		known = h.NextOffset()
	}
	return pos, known == end, nil
}

// trustedPosition finds where the batch with offset known begins. ok is false
// when index and batches do not lead there.
func (l *segmentLog) trustedPosition(s *segment, known int64) (pos int64, ok bool, err error) {
	if known == s.base {
		return 0, true, nil
	}
	if err := l.open(s); err != nil {
		return 0, false, err
	}
	if l.cfg.Offsets == OffsetsByte {
		pos := known - s.base
		return pos, pos <= s.size, nil
	}
	if err := s.offsets.load(l.fs); err != nil {
		return 0, false, err
	}
	buf := indexBufs.Get().(*indexBuf)
	defer indexBufs.Put(buf)
	n, err := s.offsets.leading(buf, entryOffset, known-1-s.base)
	if err != nil {
		return 0, false, err
	}
	w := l.walk(s, s.size)
	defer w.done()
	if n > 0 {
		e, err := s.offsets.entry(buf, n-1)
		if err != nil {
			return 0, false, err
		}
		pos = entryPos(e)
		if ok, err := w.leadsTo(pos, s.base+entryOffset(e)); !ok || err != nil {
			return 0, false, err
		}
	}
	for pos < s.size {
		h, err := w.header(pos)
		switch {
		case isDamage(err):
			return 0, false, nil
		case err != nil:
			return 0, false, err
		case h.BaseOffset >= known:
			return pos, h.BaseOffset == known, nil
		}
		pos += int64(h.Size())
		if h.NextOffset() == known {
			return pos, true, nil
		}
	}
	return 0, false, nil
}

// startIndexes keeps the index entries for batches below pos, where offset known
// begins, and loads what appending to them needs.
func (l *segmentLog) startIndexes(s *segment, pos, known int64) error {
	for _, x := range []*index{&s.offsets, &s.times} {
		if err := x.load(l.fs); err != nil {
			return err
		}
	}
	buf := indexBufs.Get().(*indexBuf)
	defer indexBufs.Put(buf)
	for _, x := range []struct {
		*index
		field func([]byte) int64
		bound int64
	}{{&s.offsets, entryPos, pos - 1}, {&s.times, entryTimeOffset, known - 1 - s.base}} {
		n, err := x.leading(buf, x.field, x.bound)
		if err != nil {
			return err
		}
		if err := x.truncate(n); err != nil {
			return err
		}
	}
	// Not as complete, which what is left of the indexes is not, even where a later segment follows: the
	// batches behind the last entry may have the largest timestamp.
	size, closing := s.size, s.closing
	s.size, s.summed, s.closing = pos, false, false
	err := l.summarize(s)
	s.size, s.closing = size, closing
	return err
}
