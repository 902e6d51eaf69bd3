package storage

import (
	"errors"
	"fmt"
	"math"
	"path"
	"sort"
	"sync/atomic"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// segmentLog is the Log of EngineLog: segments that are only appended to, in
// Kafka's files. Its methods run under the partition's lock, but for those
// numbers that a checkpoint reads (atomic below) and for unpinning.
//
// Invariant: logStart <= end, flushed <= end, and segments is never empty; its
// last segment is the active one.
type segmentLog struct {
	dir  *Dir
	fs   vfs.FS
	path string // the partition's directory
	cfg  LogConfig

	segments []*segment // ascending by base
	deleted  []deletedFiles

	logStart atomic.Int64
	flushed  atomic.Int64 // everything below is durable
	end      atomic.Int64 // next offset to write
	// checkpointed is the recovery point that is durable in the directory's checkpoint: recovery begins there.
	checkpointed atomic.Int64

	epochs    epochCache
	producers producerStates
	snapshots snapshotFiles

	found       foundPlaces
	failed      error // the write or sync error after which nothing is appended
	closed      bool
	cutsPending bool // at Close a region still held up a cut, so this was no clean shutdown

	names        int64 // changes of the directory's names
	namesDurable int64 // … of which a directory sync has covered so many
	foreignNames int64 // … and so many are of the process before, which was killed
	foreignID    bool  // partition.metadata may be of that process too, and not durable
	unsettled    bool  // opening lowered what the checkpoints say of this log: see Dir.fit
	cuts         int64 // truncations: a flush begun before one says nothing about what was appended after
	batchMax     int   // largest batch that can be here, bytes: how far an offset inside one is looked for
}

var _ Log = (*segmentLog)(nil)

// segmentBytesMax: positions in an index are int32.
const segmentBytesMax = math.MaxInt32

func (l *segmentLog) LogStartOffset() int64 { return l.logStart.Load() }
func (l *segmentLog) LogEndOffset() int64   { return l.end.Load() }
func (l *segmentLog) FlushedOffset() int64  { return l.flushed.Load() }

// Size is the bytes of all segments' batches.
func (l *segmentLog) Size() int64 {
	var n int64
	for _, s := range l.segments {
		n += s.size
	}
	return n
}

// AssignEpoch notes an epoch that this replica leads.
func (l *segmentLog) AssignEpoch(epoch int32, start int64) error {
	return assignEpoch(l.path, &l.epochs, epoch, start, l.end.Load())
}

// LatestEpoch is the newest leader epoch.
func (l *segmentLog) LatestEpoch() int32 { return l.epochs.newest() }

// EpochAt answers from the leader epoch cache.
func (l *segmentLog) EpochAt(offset int64) int32 { return l.epochs.at(offset) }

// EndOffsetByNextEpoch answers by the rule before KIP-279.
func (l *segmentLog) EndOffsetByNextEpoch(epoch int32) int64 {
	return l.epochs.endByNext(epoch, l.end.Load())
}

// EndOffsetForEpoch answers from the leader epoch cache.
func (l *segmentLog) EndOffsetForEpoch(epoch int32) (found int32, end int64) {
	return l.epochs.endOffset(epoch, l.end.Load())
}

// SetConfig applies cfg from the next append on. Engine, cache and offset scheme of a log never change.
func (l *segmentLog) SetConfig(cfg LogConfig) {
	cfg.Engine, cfg.Cache, cfg.Offsets = l.cfg.Engine, l.cfg.Cache, l.cfg.Offsets
	cfg.SegmentBytes = min(max(cfg.SegmentBytes, 1), segmentBytesMax)
	l.cfg = cfg
	l.batchMax = max(l.batchMax, cfg.MaxMessageBytes)
	l.producers.max = cfg.ProducerIDsMax
}

func (l *segmentLog) active() *segment { return l.segments[len(l.segments)-1] }

// segmentAt is the place in segments of the last one whose base is <= offset; 0 when none is.
func (l *segmentLog) segmentAt(offset int64) int {
	i := sort.Search(len(l.segments), func(i int) bool { return l.segments[i].base > offset })
	return max(0, i-1)
}

// segmentEnd is the offset at which segment i ends: the next one's base.
func (l *segmentLog) segmentEnd(i int) int64 {
	if i+1 < len(l.segments) {
		return l.segments[i+1].base
	}
	return l.end.Load()
}

// open opens the segment's .log file, through the block cache where the
// configuration says so. Files are opened at first need, so that opening a
// directory of many partitions is cheap.
func (l *segmentLog) open(s *segment) error {
	if s.log != nil {
		return nil
	}
	f, err := l.openLogFile(s.path(), vfs.ReadWrite)
	if err != nil {
		return fmt.Errorf("opening segment: %w", err)
	}
	s.log = f
	return nil
}

func (l *segmentLog) openLogFile(name string, mode vfs.Mode) (vfs.File, error) {
	if l.cfg.Cache == CacheProcess || l.cfg.Cache == CacheDirect {
		return l.dir.blockCache(l.cfg.CacheBytes).open(l.fs, name, mode, l.cfg.Cache == CacheDirect)
	}
	return l.fs.Open(name, mode)
}

// openIndexes opens the segment's indexes, or makes them anew when they cannot be right.
func (l *segmentLog) openIndexes(s *segment) error {
	if s.offsets.loaded && s.times.loaded && !s.indexesHalfMade {
		return nil
	}
	for _, x := range []*index{&s.offsets, &s.times} {
		if err := x.load(l.fs); err != nil {
			return fmt.Errorf("opening index: %w", err)
		}
	}
	missing := (!s.offsets.absent && s.offsets.file == nil) || s.times.file == nil
	if missing && s.size > l.cfg.IndexIntervalBytes || s.indexesHalfMade {
		return l.rebuildIndexes(s)
	}
	return nil
}

// create makes the files of a new active segment that begins at base.
func (l *segmentLog) create(base, now int64) error {
	s := newSegment(l.path, base, l.cfg.Offsets)
	s.created, s.summed = now, true
	f, err := l.openLogFile(s.path(), vfs.Create|vfs.Truncate)
	if err != nil {
		return l.fail("create", s.path(), 0, err)
	}
	s.log = f
	l.names++
	if l.cfg.Preallocate {
		// The extents are reserved beyond the file's size: a reader never sees zeros.
		if err := f.Preallocate(0, l.cfg.SegmentBytes); err != nil && !errors.Is(err, vfs.ErrUnsupported) {
			return l.fail("preallocate", s.path(), 0, err)
		}
	}
	for _, x := range []*index{&s.offsets, &s.times} {
		// What an earlier segment of this name left would be taken for this one's.
		if err := removeIfThere(l.fs, x.name); err != nil {
			return l.fail("create", x.name, 0, err)
		}
		x.loaded = true
	}
	l.segments = append(l.segments, s)
	return nil
}

// fail puts the log, and its directory, out of use: what the files hold is unknown.
func (l *segmentLog) fail(op, file string, pos int64, err error) error {
	e := &WriteError{Op: op, File: file, Pos: pos, Err: err}
	if l.failed == nil {
		l.failed = e
	}
	l.dir.Fail(e)
	return e
}

// writable says why the log takes no change, or nil.
func (l *segmentLog) writable() error {
	switch {
	case l.failed != nil:
		return l.failed
	case l.closed:
		return &WriteError{Op: "append", File: l.path, Err: errClosed}
	}
	if err := l.dir.Offline(); err != nil {
		return &WriteError{Op: "append", File: l.path, Err: err}
	}
	return nil
}

// settle makes durable, before the first change builds on it, what opening found and
// left: the topic id that a killed process wrote and did not come to sync, names that it made or changed, of which an old one that came back
// would stand beside what takes its place, and what Dir.fit lowered. Not when the log
// opens, which most partitions of a broker do only to wait.
func (l *segmentLog) settle() error {
	for _, step := range l.foreign() {
		switch err := step.Sync(); {
		case errors.Is(err, vfs.ErrTooManyOpen):
			return err // nothing was done: the next attempt will
		case err != nil:
			return l.fail("fsync", l.path, 0, err)
		}
	}
	l.foreignID = false
	if l.foreignNames > l.namesDurable {
		l.namesDurable = l.names
	}
	if l.unsettled {
		if err := l.dir.settle(); err != nil {
			return err
		}
		l.unsettled = false
	}
	return nil
}

// BeginSettling is the sync of settle. What Dir.fit lowered one write settles for all partitions.
func (l *segmentLog) BeginSettling() *Flush {
	steps := l.foreign()
	if len(steps) == 0 || l.writable() != nil {
		return nil
	}
	f := &Flush{UpTo: l.flushed.Load(), Steps: steps, parts: flushedParts{id: true, cuts: l.cuts}}
	if l.foreignNames > l.namesDurable {
		f.parts.names = l.names
	}
	return f
}

// foreign are the syncs that a killed process may not have come to, in the order of keepCreated.
func (l *segmentLog) foreign() (steps []vfs.Syncer) {
	if l.foreignID {
		steps = append(steps, l.idSyncer())
	}
	if l.foreignNames > l.namesDurable {
		steps = append(steps, vfs.DirSyncer(l.fs, l.path))
	}
	return steps
}

// idSyncer writes partition.metadata again: see leftover.
func (l *segmentLog) idSyncer() vfs.Syncer {
	return pathRewriter{l.fs, path.Join(l.path, partitionFile), checkpointBytesMax}
}

var errClosed = errors.New("log is closed")

// Close writes what a clean shutdown leaves: whole indexes, the last time index
// entry, producer state at the log end (these where opening would walk far without, see
// walkedBytesMax), no preallocated tail. It makes durable what it wrote. The batches themselves the caller has flushed.
func (l *segmentLog) Close() error {
	if l.closed {
		return nil
	}
	err := l.closeCleanly()
	l.closed = true
	for _, s := range l.segments {
		s.unpin()
	}
	for _, d := range l.deleted {
		d.segment.unpin()
	}
	l.segments, l.deleted = l.segments[:0], nil
	return err
}

func (l *segmentLog) closeCleanly() error {
	if err := l.writable(); err != nil {
		return nil // nothing more is written to a failed directory; recovery will see to it
	}
	if l.flushed.Load() != l.end.Load() {
		return nil // not flushed: the next opening recovers, as after a kill
	}
	if err := l.applyCuts(); err != nil {
		return err
	}
	for _, s := range l.segments {
		l.cutsPending = l.cutsPending || s.cutAt >= 0
	}
	small, err := l.walkedAtOpening()
	if err != nil {
		return err
	}
	switch s := l.active(); {
	case small && s.log != nil:
		err = l.cutTail(s)
	case !small && (s.log != nil || s.size > walkedBytesMax && !s.whole): // recovered, and not used since
		err = l.seal(s)
	}
	if err != nil {
		return err
	}
	for _, s := range l.segments {
		if err := l.syncIndexes(s); err != nil {
			return err
		}
	}
	if !small {
		if err := l.saveSnapshot(); err != nil {
			return err
		}
	}
	for _, name := range l.snapshots.unsynced {
		if err := syncPath(l.fs, path.Join(l.path, name)); err != nil {
			return l.fail("fsync", name, 0, err)
		}
	}
	if l.foreignID { // the next opening trusts the mark of a clean shutdown, and settles nothing
		if err := l.idSyncer().Sync(); err != nil {
			return l.fail("fsync", partitionFile, 0, err)
		}
	}
	if l.names > l.namesDurable {
		if err := l.fs.SyncDir(l.path); err != nil {
			return l.fail("fsync", l.path, 0, err)
		}
	}
	return nil
}

// walkedBytesMax is the size up to which an active segment without index entries is left as it
// is at a clean shutdown: opening it walks its batches, which is one read. Index and producer snapshot would be
// three more files to make durable for each log, of which there may be thousands that hardly have a batch.
const walkedBytesMax = 4096

// walkedAtOpening is true where opening the log needs neither an index of the active segment nor
// a producer snapshot at the log's end: a walk from the segment's base finds all that they would tell.
func (l *segmentLog) walkedAtOpening() (bool, error) {
	s := l.active()
	if s.size > walkedBytesMax {
		return false, nil
	}
	if n := len(l.snapshots.offsets); n > 0 && l.snapshots.offsets[n-1] < s.base || n == 0 && len(l.segments) > 1 {
		return false, nil // the walk would begin in another segment, or the state of producers without a batch in this one be lost
	}
	if err := l.openIndexes(s); err != nil {
		return false, l.fail("open", s.offsets.name, 0, err)
	}
	return s.offsets.entries()+s.times.entries() == 0, nil
}

// syncIndexes makes durable what a flush has not, since it was no matter for recovery.
func (l *segmentLog) syncIndexes(s *segment) error {
	for _, x := range []*index{&s.offsets, &s.times} {
		if s.sealed || x.file == nil || !x.dirty {
			continue
		}
		if err := x.file.Sync(); err != nil {
			return l.fail("fsync", x.name, 0, err)
		}
		x.dirty = false
	}
	return nil
}
