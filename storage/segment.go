package storage

import (
	"fmt"
	"hash/fnv"
	"math"
	"path"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// Suffixes of a partition directory's files, Kafka's.
const (
	logSuffix       = ".log"
	indexSuffix     = ".index"
	timeIndexSuffix = ".timeindex"
	snapshotSuffix  = ".snapshot"
	deletedSuffix   = ".deleted"
	tmpSuffix       = ".tmp"
)

// segment is a run of batches in one .log file, with its indexes. It is used
// under the partition's lock but for refs.
//
// Invariant: batches lie back to back in [0, size), ascending by offset, from
// base up to the next segment's base.
type segment struct {
	base int64 // base offset: the name of its files
	size int64 // bytes of whole batches

	dir, name string // name of the .log file, so that errors can tell it
	log       vfs.File
	offsets   index // not used under byte offsets
	times     index

	// What is known of the batches' timestamps, in ms; -1: none. Loaded from the
	// files at first need when summed is false.
	summed             bool
	firstTimestamp     int64 // of the first batch (its max): roll by age counts from it
	maxTimestamp       int64
	maxTimestampOffset int64 // last offset of the batch that has it, as Kafka's time index says

	seed       uint64 // of jitter
	sinceIndex int64  // bytes appended since the last index entry
	created    int64  // wall time in ms when this process made or opened it

	durable int64 // log bytes that a flush has made durable
	// left is the part that the process before left and that is yet to be written again; nil: none.
	left    *leftover
	sealed  bool // a later segment exists, and this one's indexes are durable too
	closing bool // a later segment exists
	// indexDue: a producer snapshot was written inside the segment, so the next flush syncs the indexes.
	indexDue bool
	whole    bool // the last time index entry has the largest timestamp
	// indexesHalfMade: making the indexes anew has begun, and did not come to its end.
	indexesHalfMade bool

	refs      atomic.Int32 // one of the log, and one for each live region and pending flush
	pinnedEnd int64        // no live region reaches past it
	cutAt     int64        // when >= 0: the file is to be cut here once no region is live
}

func newSegment(dir string, base int64, offsets OffsetScheme) *segment {
	s := &segment{base: base, dir: dir, name: offsetName(base, logSuffix), firstTimestamp: -1, maxTimestamp: -1, maxTimestampOffset: -1, cutAt: -1}
	s.offsets = index{name: path.Join(dir, offsetName(base, indexSuffix)), width: offsetEntrySize, absent: offsets == OffsetsByte}
	s.times = index{name: path.Join(dir, offsetName(base, timeIndexSuffix)), width: timeEntrySize}
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(s.path()))
	s.seed = seed.Sum64()
	s.refs.Store(1)
	return s
}

// offsetName is Kafka's file name for an offset: 20 digits and a suffix.
func offsetName(offset int64, suffix string) string { return fmt.Sprintf("%020d%s", offset, suffix) }

// parseOffsetName gives the offset in a file name with that suffix.
func parseOffsetName(name, suffix string) (int64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil && n >= 0 && n <= math.MaxInt64-1<<40 // far enough from the end that offsets do not overflow
}

func (s *segment) path() string { return path.Join(s.dir, s.name) }

// pin keeps the segment's bytes below end until unpin.
func (s *segment) pin(end int64) {
	if s.refs.Add(1) == 2 {
		s.pinnedEnd = 0
	}
	s.pinnedEnd = max(s.pinnedEnd, end)
}

// unpin gives up one reference. The last one closes the files: the log has let
// go of the segment by then, and nobody is left to hear of an error.
func (s *segment) unpin() {
	switch n := s.refs.Add(-1); {
	case n < 0:
		panic("BUG: storage: segment " + s.name + " released more often than pinned")
	case n == 0:
		_ = s.closeFiles()
	}
}

// pinned is true while a region or flush holds the segment. It can only turn
// from true to false without the partition's lock.
func (s *segment) pinned() bool { return s.refs.Load() > 1 }

func (s *segment) closeFiles() error {
	var err error
	if s.log != nil {
		err = s.log.Close()
		s.log = nil
	}
	for _, x := range []*index{&s.offsets, &s.times} {
		if e := x.close(); err == nil {
			err = e
		}
	}
	return err
}

// corrupt reports a batch of this segment that is not what was written.
func (s *segment) corrupt(pos, offset int64, reason string) *CorruptionError {
	return &CorruptionError{File: s.path(), Pos: pos, Offset: offset, Reason: reason}
}

// jitter spreads the rolls of partitions that were made together, up to max ms, and to age,
// at which they roll: a larger one would roll at every append. It is a function of the segment alone, so that a run can be repeated.
func (s *segment) jitter(max, age int64) int64 {
	if max = min(max, age); max <= 0 {
		return 0
	}
	return int64(s.seed>>1) % max
}

// relative gives an offset's distance from the base, as the indexes keep it.
func (s *segment) relative(offset int64) int32 { return int32(offset - s.base) }
