package storage

import (
	"github.com/tidemark-log/tidemark/storage/record"
)

// What every engine does with batches before it keeps them.

// checkAppend walks batches that nobody has touched yet, against the producers'
// state and the limits. dup is what a resend was first written as. The framing is the
// caller's promise, and checked all the same: a wrong length here would be a wrong log for ever.
func checkAppend(batches []byte, cfg *LogConfig, producers *producerStates) (dup *sequenceRange, err error) {
	var ahead tentative
	if len(batches) == 0 {
		return nil, ErrInvalidRecord
	}
	for rest := batches; len(rest) > 0; {
		h, err := record.Frame(rest)
		if err != nil {
			return nil, err
		}
		if int64(h.Size()) > cfg.SegmentBytes {
			return nil, ErrRecordListTooLarge
		}
		rest = rest[h.Size():]
		if h.Size() > cfg.MaxMessageBytes {
			return nil, ErrMessageTooLarge
		}
		if h.ProducerID >= 0 && !h.Control() {
			dup, err := producers.check(h, &ahead)
			if dup != nil || err != nil {
				return dup, err
			}
		}
	}
	return nil, nil
}

// appended is the answer to a resend of what r remembers.
func (r *sequenceRange) appended(logStart int64, logAppendTime bool) Appended {
	at := int64(-1)
	if logAppendTime {
		at = r.timestamp
	}
	return Appended{BaseOffset: r.firstOffset(), LastOffset: r.lastOffset, AppendTime: at, LogStartOffset: logStart, Duplicate: true}
}

// stampAppend sets offsets from end on, leader epoch and append time in place, and gives the first offset.
func stampAppend(batches []byte, a AppendArgs, end int64, cfg *LogConfig) (first int64, err error) {
	if a.Replica {
		return record.ReadHeader(batches).BaseOffset, nil
	}
	next := end
	for rest := batches; len(rest) > 0; {
		h := record.ReadHeader(rest)
		record.SetLeaderEpoch(rest, a.LeaderEpoch)
		if cfg.LogAppendTime {
			record.SetAppendTime(rest, a.Now)
		}
		switch {
		case cfg.Offsets == OffsetsByte:
			record.SetByteOffsets(rest, next)
			next += int64(h.Size())
		default:
			record.SetBaseOffset(rest, next)
			next += int64(h.LastOffsetDelta) + 1
		}
		rest = rest[h.Size():]
	}
	if next < end {
		return 0, ErrOffsetOutOfRange // the offsets are used up
	}
	return end, nil
}
