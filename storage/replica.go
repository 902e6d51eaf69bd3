package storage

import (
	"fmt"
	"math"

	"github.com/tidemark-log/tidemark/storage/record"
)

// ReplicaError refuses what a leader sent. Nothing of it was written.
type ReplicaError struct {
	Log    string // the partition's directory or file
	Pos    int    // byte of the answer at which the refused batch begins
	Offset int64  // the offset that belongs there
	Reason string
}

func (e *ReplicaError) Error() string {
	return fmt.Sprintf("storage: %s refuses the batches of its leader: at byte %d of the answer, where offset %d belongs: %s", e.Log, e.Pos, e.Offset, e.Reason)
}

// offsetMax bounds where a log may be told to begin: far enough from the end that offsets do not overflow.
const offsetMax = math.MaxInt64 - 1<<40

// replicaCheck holds what a leader sent against the log that it is for.
type replicaCheck struct {
	log     string
	end     int64 // the log end offset
	empty   bool  // no batch is there yet
	known   int32 // the newest epoch of a batch here
	current int32 // the leader epoch in which this was fetched
	offsets OffsetScheme
}

// check says how many bytes of b are whole batches that continue the log: all but
// a last batch that the answer cuts off. A leader gives one whole batch at least
// (KIP-74), so an answer without one would be asked for again for ever: it is refused.
//
// Everything is summed before anything is written. A leader's disk, or what lies
// between, may have changed the bytes, and a copy that is taken on trust would be
// acknowledged as a copy (S26).
func (c replicaCheck) check(b []byte) (taken int, err error) {
	for taken < len(b) {
		h, whole, reason := c.next(b[taken:])
		if reason == "" && !whole && taken == 0 {
			reason = fmt.Sprintf("no whole batch in %d bytes", len(b))
		}
		if reason != "" {
			return 0, &ReplicaError{Log: c.log, Pos: taken, Offset: c.end, Reason: reason}
		}
		if !whole {
			break
		}
		taken += h.Size()
		c.end, c.known, c.empty = h.NextOffset(), max(c.known, h.PartitionLeaderEpoch), false
	}
	if taken == 0 {
		return 0, ErrInvalidRecord
	}
	return taken, nil
}

// next looks at the first batch of b: whether it is whole, and why it is refused, or "".
func (c *replicaCheck) next(b []byte) (h record.Header, whole bool, reason string) {
	// Of a batch that is cut off, too, what is there must be one's beginning:
	// garbage is not to be taken for an answer that ends early.
	if len(b) < record.HeaderSize && (len(b) <= 16 || b[16] == 2) {
		return h, false, ""
	}
	if len(b) >= record.HeaderSize {
		h = record.ReadHeader(b)
		if h.Magic == 2 && int64(h.BatchLength)+record.LengthPrefix > int64(len(b)) && int64(h.BatchLength)+record.LengthPrefix <= segmentBytesMax {
			return h, false, c.place(h)
		}
	}
	h, err := record.Check(b)
	if err != nil {
		return h, false, err.Error()
	}
	return h, true, c.place(h)
}

// place says why a batch with this header does not continue the log, or "".
func (c *replicaCheck) place(h record.Header) string {
	// A log start inside a batch (DeleteRecords) is where a follower begins, and
	// the batch is what it gets: an empty log begins below it then.
	spans := c.empty && h.BaseOffset < c.end && h.LastOffset() >= c.end && h.BaseOffset >= 0
	switch {
	case h.BaseOffset != c.end && !spans:
		return fmt.Sprintf("base offset %d, the log ends at %d", h.BaseOffset, c.end)
	case h.LastOffsetDelta < 0 || h.RecordCount < 0 || h.LastOffset() > offsetMax:
		return fmt.Sprintf("base offset %d, last offset delta %d, record count %d", h.BaseOffset, h.LastOffsetDelta, h.RecordCount)
	case h.RecordCount > 0 && h.RecordCount-1 > h.LastOffsetDelta:
		return fmt.Sprintf("%d records in %d offsets", h.RecordCount, h.LastOffsetDelta+1)
	case c.offsets == OffsetsByte && int(h.LastOffsetDelta) != h.Size()-1:
		return fmt.Sprintf("%d offsets for %d bytes: under lab.offsets=byte each byte has one; the leader may not be set so", int64(h.LastOffsetDelta)+1, h.Size())
	case h.PartitionLeaderEpoch < c.known && h.PartitionLeaderEpoch >= 0:
		return fmt.Sprintf("leader epoch %d after epoch %d", h.PartitionLeaderEpoch, c.known)
	case h.PartitionLeaderEpoch > c.current:
		return fmt.Sprintf("leader epoch %d, fetched in epoch %d", h.PartitionLeaderEpoch, c.current)
	}
	return ""
}

// appendReplica is Append of what a leader sent.
func (l *segmentLog) appendReplica(batches []byte, a AppendArgs) (Appended, error) {
	start, end := l.logStart.Load(), l.end.Load()
	c := replicaCheck{
		log: l.path, end: end, known: l.epochs.latest(), current: a.LeaderEpoch, offsets: l.cfg.Offsets,
		empty: start == end && len(l.segments) == 1 && l.segments[0].size == 0,
	}
	taken, err := c.check(batches)
	if err != nil {
		return Appended{}, err
	}
	if base := record.ReadHeader(batches).BaseOffset; base < end {
		if err := l.restartAt(base); err != nil {
			return Appended{}, err
		}
	}
	done, err := l.appendChecked(batches[:taken], a)
	if err == nil && start > l.logStart.Load() {
		l.logStart.Store(start)
		l.epochs.truncateStart(start)
		done.LogStartOffset = start
	}
	return done, err
}

// assignEpoch begins an epoch at the log end.
func assignEpoch(log string, epochs *epochCache, epoch int32, start, end int64) error {
	if start != end {
		panic(fmt.Sprintf("BUG: storage: leader epoch %d of %s begins at offset %d, the log ends at %d", epoch, log, start, end))
	}
	if err := epochs.begin(epoch); err != nil {
		return fmt.Errorf("storage: %s: %w", log, err)
	}
	return nil
}

// checkStart refuses offsets at which no log can begin.
func checkStart(log string, offset int64) error {
	if offset < 0 || offset > offsetMax {
		return fmt.Errorf("storage: %s cannot begin at offset %d", log, offset)
	}
	return nil
}
