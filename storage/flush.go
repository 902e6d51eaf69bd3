package storage

import (
	"path"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// flushedParts is what one Flush makes durable of this log, for EndFlush to note.
type flushedParts struct {
	segments []flushedSegment
	names    int64
	epochs   int64
	cuts     int64
	id       bool // partition.metadata
}

type flushedSegment struct {
	s    *segment
	size int64
	left *leftover // it is written again
	// Whether its indexes are synced too, and whether it was complete then.
	indexes, sealed bool
}

// BeginFlush captures what is not durable: the batches of every segment that
// has such, and of segments that are complete the indexes too, because recovery
// begins behind them and believes them. Of the active segment's indexes only the
// part below the newest producer snapshot need be durable: from there on recovery
// makes them anew.
// Then the producer snapshots, the leader epochs, and last the directory: a
// file whose name is lost is lost (H5).
func (l *segmentLog) BeginFlush() *Flush {
	if err := l.writable(); err != nil {
		if l.flushed.Load() == l.end.Load() {
			return nil
		}
		return failedFlush(l.end.Load(), err)
	}
	f := &Flush{UpTo: l.end.Load(), parts: flushedParts{names: l.names, epochs: l.epochs.version, cuts: l.cuts}}
	for _, s := range l.segments {
		if err := l.captureSegment(f, s); err != nil {
			l.releaseFlush(f)
			return failedFlush(f.UpTo, err)
		}
	}
	for _, name := range l.snapshots.unsynced {
		f.Steps = append(f.Steps, pathSyncer{l.fs, path.Join(l.path, name)})
	}
	l.snapshots.unsynced = nil
	if l.foreignID { // records that nobody can tell the topic of may be taken for another's
		f.Steps, f.parts.id = append(f.Steps, l.idSyncer()), true
	}
	names := l.names > l.namesDurable
	switch {
	case l.epochs.version > l.epochs.durable: // it syncs the directory, too
		f.Steps = append(f.Steps, &epochWrite{file: &l.epochs.file, version: l.epochs.version, content: l.epochs.encode(), names: names})
	case names:
		f.Steps = append(f.Steps, vfs.DirSyncer(l.fs, l.path))
	}
	if len(f.Steps) == 0 && f.UpTo == l.flushed.Load() {
		l.releaseFlush(f)
		return nil
	}
	return f
}

// failedFlush is the flush of what cannot be flushed: no flush at all would read as success.
func failedFlush(upTo int64, err error) *Flush {
	return &Flush{UpTo: upTo, Steps: []vfs.Syncer{failedStep{err}}}
}

type failedStep struct{ err error }

func (s failedStep) Sync() error { return s.err }

// captureSegment adds what segment s has to make durable.
func (l *segmentLog) captureSegment(f *Flush, s *segment) error {
	if s.durable >= s.size && (s.sealed || !s.closing) && !s.indexDue {
		return nil
	}
	if err := l.open(s); err != nil {
		return err
	}
	part := flushedSegment{s: s, size: s.size, sealed: s.closing}
	if s.durable < s.size {
		f.Steps, part.left = append(f.Steps, l.syncer(s)), s.left
	}
	// Written now, though not made durable, so that below the recovery point no
	// entry is missing after a kill.
	if err := l.openIndexes(s); err != nil {
		return err
	}
	if err := l.writeIndexes(s, s.closing); err != nil {
		return err
	}
	if s.closing || s.indexDue {
		part.indexes = true
		for _, x := range []*index{&s.offsets, &s.times} {
			if x.dirty && x.file != nil {
				f.Steps = append(f.Steps, x.file)
			}
		}
	}
	s.pin(0)
	f.parts.segments = append(f.parts.segments, part)
	f.parts.names = l.names
	return nil
}

func (l *segmentLog) releaseFlush(f *Flush) {
	for _, p := range f.parts.segments {
		p.s.unpin()
	}
	f.parts.segments = nil
}

// EndFlush notes the outcome. After a failed sync the kernel may have dropped
// what it could not write, and say so only once: nothing is appended any more.
func (l *segmentLog) EndFlush(f *Flush, err error) {
	if f == nil {
		return
	}
	defer l.releaseFlush(f)
	if err != nil {
		if l.failed == nil && !l.closed {
			_ = l.fail("fsync", l.path, f.UpTo, err)
		}
		return
	}
	l.foreignID = l.foreignID && !f.parts.id
	if f.parts.cuts != l.cuts {
		return // the log was cut meanwhile: the next flush takes everything again
	}
	for _, p := range f.parts.segments {
		p.s.durable = max(p.s.durable, p.size)
		if p.s.left == p.left {
			p.s.left = nil
		}
		p.s.sealed = p.s.sealed || p.sealed
		p.s.indexDue = p.s.indexDue && !p.indexes
	}
	l.namesDurable = max(l.namesDurable, f.parts.names)
	l.epochs.durable = max(l.epochs.durable, f.parts.epochs)
	if f.UpTo > l.flushed.Load() {
		l.flushed.Store(f.UpTo)
	}
}
