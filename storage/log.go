// Package storage keeps the logs of partitions: segments, indexes, recovery,
// retention, caches, engines.
//
// It decides by its inputs alone: time comes as an argument, files through
// storage/vfs. It never waits for durability by itself on the append path: what
// must reach the disk is handed out as a Flush, and counts only once the caller
// says that it succeeded.
//
// What a failed sync leaves. Linux reports that a write did not reach the disk once, and
// then keeps the pages, readable and counted as written: a later sync succeeds and
// writes nothing. So after a failed write or sync the log directory is offline until another process
// opens it, and that process takes no sync for proof of what it has not written
// itself. Of each file that a process leaves in an unclean stop:
//
//   - The batches above the recovery point are written again by the first flush (see leftover);
//     those below it a sync has covered that succeeded.
//   - The indexes are believed up to the newest producer snapshot below the recovery point, and
//     made anew from there.
//   - A producer snapshot above it may be lost in a later power cut, which its CRC tells and a longer
//     walk makes up for; the one that retention relies on is written again before the batches go.
//   - partition.metadata is written again before anything is appended.
//   - Checkpoints, the leader epochs and the mark of a clean shutdown are new files, renamed
//     only after their sync succeeded; one whose sync failed never gets its name.
//   - Names are the file system's journal's, which tries again, or fails for good and with it all that follows.
//
// lab.storage.engine=btree does not keep this promise: see btreeLog.
package storage

import (
	"fmt"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// Log is one partition's log under one storage engine.
//
// Append, Truncate and the other changes run under the partition's lock, one at
// a time; so does Read. A Region that Read gave may be used and released
// without it.
type Log interface {
	// Append writes one or more validated record batches that stand back to back,
	// setting base offset and leader epoch in place. The batches belong to the
	// caller again when it returns. A *WriteError means the log directory must go offline.
	//
	// Under AppendArgs.Replica the batches are what a leader answered: they are
	// checked here, CRC included, and kept as they are. They must begin at the log
	// end. A last batch that the answer cuts off is left out: Appended.Bytes says how
	// much was taken. What does not fit is a *ReplicaError, and nothing is written.
	Append(batches []byte, a AppendArgs) (Appended, error)

	// Read finds the batch that holds offset and gives whole batches from there,
	// up to maxBytes but at least one batch, none that reaches past limit
	// (exclusive; the high watermark, say). It never crosses a segment. An empty
	// Region: offset == limit. ErrOffsetOutOfRange: below LogStartOffset or above LogEndOffset.
	Read(offset, limit int64, maxBytes int) (Region, error)

	// OffsetForTimestamp gives the first offset whose timestamp is >= ts (ms); ok is false when there is none.
	OffsetForTimestamp(ts int64) (offset, timestamp int64, epoch int32, ok bool, err error)

	// AssignEpoch notes that this replica leads from start on, which is the log end, in
	// that epoch: called before anything is appended or answered in it (KAFKA-7415).
	AssignEpoch(epoch int32, start int64) error
	// LatestEpoch is the newest leader epoch here, also one that has no batch yet; -1 when there is none.
	LatestEpoch() int32
	// EpochAt is the leader epoch that offset lies in, or would be appended in; -1 when it is not known.
	EpochAt(offset int64) int32
	// EndOffsetForEpoch gives the largest leader epoch <= asked and the end offset
	// of that epoch here (KIP-279); the epoch asked and where the oldest one that is
	// known starts, when that is newer; epoch -1 and offset -1 when none is known.
	EndOffsetForEpoch(epoch int32) (found int32, end int64)
	// EndOffsetByNextEpoch is the answer before KIP-279, which lets logs diverge
	// (B3): where the first epoch larger than asked starts; -1 when there is none.
	EndOffsetByNextEpoch(epoch int32) (end int64)

	LogStartOffset() int64
	LogEndOffset() int64  // the next offset to write
	FlushedOffset() int64 // everything below is durable
	Size() int64          // bytes on disk

	// BeginFlush says what must be synced so that everything appended until now is
	// durable; nil when nothing is. EndFlush is called with the outcome, in the
	// order of the BeginFlush calls; after an error the log accepts no append.
	BeginFlush() *Flush
	EndFlush(f *Flush, err error)
	// BeginSettling gives the sync that the first change of a log which a killed process left
	// would do, as a Flush that makes nothing else durable; nil when there is none to do. Who
	// opens many logs has it done before the changes come, which then do not wait for it one by one.
	BeginSettling() *Flush

	// Truncate removes everything at offset and above, and the batch that spans it.
	// Live regions keep their bytes. Leader epochs that have no batch below offset go,
	// also when the log ends there already.
	Truncate(offset int64) error
	// TruncateFullyAndStartAt empties the log, which then begins and ends at offset,
	// also above its old end: for a follower whose leader has nothing as old as it needs next.
	TruncateFullyAndStartAt(offset int64) error
	// AdvanceLogStart makes offset the log start offset (DeleteRecords; the leader's, on
	// a follower) and drops whole segments below it. ErrOffsetOutOfRange above limit, the high watermark (H16).
	AdvanceLogStart(offset, limit int64) error
	// Retain deletes whole old segments by age and size, none that reaches limit
	// (the high watermark). now is wall time in ms. It returns what it deleted.
	Retain(now, limit int64) ([]DeletedSegment, error)
	// RemoveExpired removes the files of segments deleted at least file.delete.delay.ms ago and pinned by no region.
	RemoveExpired(now int64) error

	// SetConfig applies a changed topic configuration from the next append on.
	SetConfig(LogConfig)
	// Close writes what a clean shutdown leaves and closes the files. The caller flushes first.
	Close() error
}

// AppendArgs says how to append.
type AppendArgs struct {
	LeaderEpoch int32 // the one to stamp; under Replica the one that was fetched in: no batch may be of a later
	Now         int64 // wall time, ms: LogAppendTime, roll by age
	// Replica is true for batches fetched from a leader: offsets and epochs are
	// already set and are kept, and sequence numbers are taken on trust.
	Replica bool
}

// Appended says where batches went.
type Appended struct {
	BaseOffset     int64
	LastOffset     int64
	AppendTime     int64 // ms; -1 under CreateTime
	LogStartOffset int64
	Bytes          int  // taken, of what was given
	Duplicate      bool // an idempotent producer's resend: BaseOffset is the first send's, nothing was written
	Rolled         bool // a new segment was begun: the old one wants a flush
}

// A Region is a run of whole batches that Read found: a part of a file, or bytes
// where the engine or cache keeps them in memory. It pins its segment: until
// Release no deletion or truncation changes or removes its bytes.
type Region struct {
	File  vfs.File // nil when Bytes holds the data, or when Len is 0
	Pos   int64
	Len   int
	Bytes []byte

	pin pin
}

type pin interface{ unpin() }

// Release gives up the pin. It is safe to call on a zero Region, from any goroutine, once.
func (r *Region) Release() {
	if r.pin != nil {
		r.pin.unpin()
		r.pin = nil
	}
}

// Flush is what must be synced, in order, for everything below UpTo to be durable.
type Flush struct {
	UpTo  int64
	Steps []vfs.Syncer // files first, then the directory that names them

	parts flushedParts
}

// Sync runs the steps. The live Env calls it in its pool; the simulated one walks Steps itself.
func (f *Flush) Sync() error {
	for _, s := range f.Steps {
		if err := s.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// DeletedSegment tells what retention removed and why.
type DeletedSegment struct {
	BaseOffset int64
	Bytes      int64
	Why        string // "retention.ms", "retention.bytes", "log start offset"
}

// ProtocolError is an answer that Kafka defines, sent to the client, compared by identity.
type ProtocolError struct {
	Code int16
	Name string
}

func (e *ProtocolError) Error() string { return fmt.Sprintf("%s (error code %d)", e.Name, e.Code) }

// The answers that a log can give.
var (
	ErrOffsetOutOfRange     = &ProtocolError{1, "OFFSET_OUT_OF_RANGE"}
	ErrOutOfOrderSequence   = &ProtocolError{45, "OUT_OF_ORDER_SEQUENCE_NUMBER"}
	ErrDuplicateSequence    = &ProtocolError{46, "DUPLICATE_SEQUENCE_NUMBER"}
	ErrInvalidProducerEpoch = &ProtocolError{47, "INVALID_PRODUCER_EPOCH"}
	ErrUnknownProducerID    = &ProtocolError{59, "UNKNOWN_PRODUCER_ID"}
	ErrStorage              = &ProtocolError{56, "KAFKA_STORAGE_ERROR"}
	ErrMessageTooLarge      = &ProtocolError{10, "MESSAGE_TOO_LARGE"}
	ErrRecordListTooLarge   = &ProtocolError{18, "RECORD_LIST_TOO_LARGE"}
	ErrInvalidRecord        = &ProtocolError{87, "INVALID_RECORD"}
	ErrPolicyViolation      = &ProtocolError{44, "POLICY_VIOLATION"}
)

// WriteError is a failed write or sync. What the file holds is unknown, so its
// log directory goes offline and nothing is acknowledged after it.
type WriteError struct {
	Op   string // "append", "roll", "fsync", …
	File string
	Pos  int64
	Err  error
}

func (e *WriteError) Error() string {
	return fmt.Sprintf("storage: %s %s at byte %d: %v", e.Op, e.File, e.Pos, e.Err)
}

func (e *WriteError) Unwrap() error { return e.Err }

// CorruptionError is data on disk that is not what was written: reported with
// its place, never skipped in silence.
type CorruptionError struct {
	File   string
	Pos    int64 // byte position of the damaged batch
	Offset int64 // the offset expected there
	Reason string
}

func (e *CorruptionError) Error() string {
	return fmt.Sprintf("storage: corrupt batch in %s at byte %d (offset %d): %s", e.File, e.Pos, e.Offset, e.Reason)
}
