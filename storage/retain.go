package storage

import (
	"fmt"
	"path"
)

// deletedFiles is a segment that the log has let go of, and its renamed files,
// which stay until their delay has passed and no region is live.
type deletedFiles struct {
	segment *segment
	names   []string // in the partition's directory
	at      int64    // wall ms; -1: the next RemoveExpired says
}

// Retain applies retention.ms, retention.bytes and the log start offset, in
// Kafka's order. Nothing at or above limit goes: a log start above the high
// watermark would make a follower's data vanish (H16).
func (l *segmentLog) Retain(now, limit int64) ([]DeletedSegment, error) {
	if err := l.writable(); err != nil {
		return nil, err
	}
	l.producers.expire(now, l.cfg.ProducerIDExpirationMs)
	why, err := l.expired(now, limit)
	if err != nil || len(why) == 0 {
		return nil, err
	}
	if len(why) == len(l.segments) {
		if err := l.roll(now); err != nil { // there is always an active segment
			return nil, err
		}
	}
	gone := make([]DeletedSegment, len(why))
	for i, w := range why {
		gone[i] = DeletedSegment{BaseOffset: l.segments[i].base, Bytes: l.segments[i].size, Why: w}
	}
	start := max(l.logStart.Load(), l.segments[len(why)].base)
	return gone, l.dropFirst(len(why), start, now)
}

// expired says for the oldest segments why each is to go.
func (l *segmentLog) expired(now, limit int64) (why []string, err error) {
	over := l.Size() - l.cfg.RetentionBytes
	for i, s := range l.segments {
		if s.size == 0 || l.segmentEnd(i) > limit {
			break
		}
		reason := ""
		if l.cfg.RetentionMs >= 0 {
			if err := l.summarize(s); err != nil {
				return nil, err
			}
			if age := now - l.lastWritten(s); age > l.cfg.RetentionMs {
				reason = "retention.ms"
			}
		}
		if reason == "" && l.cfg.RetentionBytes >= 0 && over-s.size >= 0 {
			reason = "retention.bytes"
		}
		if reason == "" && i+1 < len(l.segments) && l.segmentEnd(i) <= l.logStart.Load() {
			reason = "log start offset"
		}
		if reason == "" {
			break
		}
		over -= s.size
		why = append(why, reason)
	}
	return why, nil
}

// lastWritten is the age of a segment for retention: its largest timestamp, or
// where its batches have none the time at which this process first saw it.
func (l *segmentLog) lastWritten(s *segment) int64 {
	if s.maxTimestamp >= 0 {
		return s.maxTimestamp
	}
	return s.created
}

// AdvanceLogStart moves the log start offset and drops whole segments below it.
// The checkpoint that survives a restart is the directory's: written here when
// segments go, and otherwise with the next Dir.Checkpoint.
func (l *segmentLog) AdvanceLogStart(offset, limit int64) error {
	if err := l.writable(); err != nil {
		return err
	}
	if offset > min(limit, l.end.Load()) {
		return ErrOffsetOutOfRange
	}
	if offset <= l.logStart.Load() {
		return nil
	}
	n := 0
	for n+1 < len(l.segments) && l.segments[n+1].base <= offset {
		n++
	}
	return l.dropFirst(n, offset, -1)
}

// dropFirst moves the log start and deletes the first n segments. The new log
// start is durable before any file goes: the names may come back one by one
// after a power cut, and what is below the log start is then known to be a leftover.
func (l *segmentLog) dropFirst(n int, logStart, now int64) error {
	if n > 0 {
		// With the batches goes what recovery would find their epochs in. As they are: that the log starts above is durable later.
		if err := l.writeEpochs(); err != nil {
			return err
		}
	}
	l.logStart.Store(logStart)
	l.epochs.truncateStart(logStart)
	if n == 0 {
		return nil
	}
	// The first of the segments that stay may be new: were its name lost and theirs
	// not, the log would end where it has been before.
	if err := l.keepProducers(l.segments[n].base); err != nil {
		return err
	}
	if err := l.syncNames(); err != nil {
		return err
	}
	if err := l.dir.saveLogStarts(); err != nil {
		return l.fail("checkpoint", logStartFile, 0, err)
	}
	l.found.clear()
	for range n {
		s := l.segments[0]
		l.segments = l.segments[1:]
		if err := l.deleteSegment(s, now); err != nil {
			return err
		}
	}
	l.segments = append([]*segment(nil), l.segments...)
	return l.dropSnapshots(max(l.checkpointed.Load(), l.segments[0].base), l.end.Load())
}

// deleteSegment renames the files of a segment that is no longer in the list.
func (l *segmentLog) deleteSegment(s *segment, now int64) error {
	d := deletedFiles{segment: s, at: now}
	for _, suffix := range []string{logSuffix, indexSuffix, timeIndexSuffix} {
		from := offsetName(s.base, suffix)
		to := from + deletedSuffix
		for i := 2; l.isDeletedName(to); i++ { // a segment of this base was deleted before, and still waits
			to = fmt.Sprintf("%s.%d%s", from, i, deletedSuffix)
		}
		switch err := l.fs.Rename(path.Join(l.path, from), path.Join(l.path, to)); {
		case err == nil:
			d.names = append(d.names, to)
			l.names++
		case ignoreNotExist(err) != nil:
			return l.fail("rename", path.Join(l.path, from), 0, err)
		}
	}
	l.deleted = append(l.deleted, d)
	return nil
}

func (l *segmentLog) isDeletedName(name string) bool {
	for _, d := range l.deleted {
		for _, n := range d.names {
			if n == name {
				return true
			}
		}
	}
	return false
}

// RemoveExpired removes deleted files whose delay has passed, cuts the files of
// truncated segments that regions held up, and forgets silent producers.
func (l *segmentLog) RemoveExpired(now int64) error {
	if l.writable() != nil {
		return nil // a failed directory is left as it is
	}
	l.producers.expire(now, l.cfg.ProducerIDExpirationMs)
	if err := l.applyCuts(); err != nil {
		return err
	}
	kept := l.deleted[:0]
	var failed error
	for i := range l.deleted {
		d := &l.deleted[i]
		if d.at < 0 || d.at > now {
			d.at = now
		}
		if failed != nil || d.segment.pinned() || now-d.at < l.cfg.FileDeleteDelayMs {
			kept = append(kept, *d)
			continue
		}
		for _, name := range d.names {
			if err := removeIfThere(l.fs, path.Join(l.path, name)); err != nil && failed == nil {
				failed = l.fail("remove", path.Join(l.path, name), 0, err)
			}
		}
		d.segment.unpin()
	}
	clear(l.deleted[len(kept):])
	l.deleted = kept
	return failed
}
