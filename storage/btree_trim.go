package storage

import (
	"path"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/tidemark-log/tidemark/storage/record"
)

// btreeTrimBatches is how many batches one transaction removes at most: the
// bound of the pages that it holds in memory.
const btreeTrimBatches = 256

// btreeEnd is an end of the log to remove batches from.
type btreeEnd bool

const (
	oldest btreeEnd = false
	newest btreeEnd = true
)

// remove removes batches from one end while drop says so, in bounded
// transactions, and gives their bytes. A kill between two of them leaves a log
// that is cut less far, and removing again goes on from there.
func (l *btreeLog) remove(from btreeEnd, drop func(k batchKey, h record.Header) bool) (bytes int64, err error) {
	for {
		removed := 0
		err := l.db.Update(func(tx *bbolt.Tx) error {
			keys, headers := collect(tx.Bucket(bucketBatches).Cursor(), from, drop)
			removed = len(keys)
			for i, k := range keys {
				if err := removeBatch(tx, k, headers[i]); err != nil {
					return err
				}
				bytes += int64(headers[i].Size())
			}
			return nil
		})
		if err != nil || removed < btreeTrimBatches {
			return bytes, err
		}
	}
}

// collect gives the keys and headers of the next batches to remove: first all of
// them, then they are removed, since deleting under a cursor makes it skip.
func collect(c *bbolt.Cursor, from btreeEnd, drop func(batchKey, record.Header) bool) (keys [][]byte, headers []record.Header) {
	next := c.Next
	k, v := c.First()
	if from == newest {
		next = c.Prev
		k, v = c.Last()
	}
	for ; k != nil && len(keys) < btreeTrimBatches; k, v = next() {
		h := record.ReadHeader(v)
		if !drop(batchKeyOf(k), h) {
			break
		}
		keys, headers = append(keys, slices.Clone(k)), append(headers, h)
	}
	return keys, headers
}

func removeBatch(tx *bbolt.Tx, key []byte, h record.Header) error {
	if err := tx.Bucket(bucketBatches).Delete(key); err != nil {
		return err
	}
	return deleteMessageIDs(tx.Bucket(bucketIDs), h)
}

// Truncate removes from the end every batch that reaches offset or lies above,
// the one that spans it as a whole.
func (l *btreeLog) Truncate(offset int64) error {
	if err := l.writable(); err != nil {
		return err
	}
	if end := l.end.Load(); offset >= end {
		l.epochs.truncateEnd(end)
		return nil
	}
	end := max(offset, 0)
	err := l.db.View(func(tx *bbolt.Tx) error {
		if k, v := tx.Bucket(bucketBatches).Cursor().Seek(offsetKey(end)); k != nil {
			end = min(end, record.ReadHeader(v).BaseOffset)
		}
		return nil
	})
	if err == nil {
		err = l.dir.lowerWatermark(path.Dir(l.name), end)
	}
	if err == nil {
		err = l.db.Update(func(tx *bbolt.Tx) error { return l.cutTo(tx, end) })
	}
	if err == nil {
		_, err = l.remove(newest, func(k batchKey, _ record.Header) bool { return k.lastOffset >= end })
	}
	if err == nil {
		err = l.db.View(func(tx *bbolt.Tx) error { l.times.load(tx); return nil })
	}
	if err != nil {
		return l.fail("truncate", err)
	}
	l.flushesStale = l.flushesOpen
	l.end.Store(end)
	l.start.Store(min(l.start.Load(), end))
	l.flushed.Store(min(l.flushed.Load(), end))
	return nil
}

// cutTo makes the tree say that the log ends at offset, before the batches above
// go: a kill in between leaves some of them, and all that is known of those that are left.
func (l *btreeLog) cutTo(tx *bbolt.Tx, offset int64) error {
	times := tx.Bucket(bucketTimes)
	for {
		k, _ := times.Cursor().Last()
		if k == nil || timeKeyOf(k).lastOffset < offset {
			break
		}
		if err := times.Delete(k); err != nil {
			return err
		}
	}
	if err := l.loadProducers(tx, offset); err != nil {
		return err
	}
	l.epochs.truncateEnd(offset)
	if err := l.saveEpochs(tx); err != nil {
		return err
	}
	if offset < l.start.Load() {
		if err := putOffset(tx, metaStart, offset); err != nil {
			return err
		}
		if err := tx.Bucket(bucketMeta).Delete(metaBelow); err != nil {
			return err
		}
	}
	return l.saveEnd(tx, offset)
}

// TruncateFullyAndStartAt says in one transaction that nothing below offset counts
// any more; opening finishes the removal that a kill interrupts.
func (l *btreeLog) TruncateFullyAndStartAt(offset int64) error {
	if err := checkStart(l.name, offset); err != nil {
		return err
	}
	if err := l.Truncate(offset); err != nil {
		return err
	}
	l.epochs.clear()
	l.producers.clear()
	err := l.db.Update(func(tx *bbolt.Tx) error {
		if err := tx.DeleteBucket(bucketTimes); err != nil {
			return err
		}
		if _, err := tx.CreateBucket(bucketTimes); err != nil {
			return err
		}
		if err := l.saveEpochs(tx); err != nil {
			return err
		}
		if err := putOffset(tx, metaStart, offset); err != nil {
			return err
		}
		if err := tx.Bucket(bucketMeta).Delete(metaBelow); err != nil {
			return err
		}
		return l.saveEnd(tx, offset)
	})
	if err == nil {
		err = l.removeBelow(offset)
	}
	if err == nil {
		err = l.db.View(func(tx *bbolt.Tx) error { l.times.load(tx); return nil })
	}
	if err != nil {
		return l.fail("truncate", err)
	}
	l.flushesStale = l.flushesOpen
	l.end.Store(offset)
	l.start.Store(offset)
	l.flushed.Store(offset)
	return nil
}

func putOffset(tx *bbolt.Tx, key []byte, offset int64) error {
	return tx.Bucket(bucketMeta).Put(key, offsetKey(offset))
}

// AdvanceLogStart removes every batch that lies wholly below offset: what
// deleting acknowledged messages costs a store of this kind.
func (l *btreeLog) AdvanceLogStart(offset, limit int64) error {
	if err := l.writable(); err != nil {
		return err
	}
	switch {
	case offset > min(limit, l.end.Load()):
		return ErrOffsetOutOfRange
	case offset <= l.start.Load():
		return nil
	}
	// The new start is in the tree before the first batch goes.
	if err := l.db.Update(func(tx *bbolt.Tx) error { return l.saveStart(tx, offset) }); err != nil {
		return l.fail("advance log start", err)
	}
	l.start.Store(offset)
	if err := l.removeBelow(offset); err != nil {
		return l.fail("advance log start", err)
	}
	return nil
}

// saveStart notes the new log start, and what the producers had written by then:
// that outlives the batches.
func (l *btreeLog) saveStart(tx *bbolt.Tx, offset int64) error {
	below := producerStates{max: l.cfg.ProducerIDsMax}
	if err := replayProducers(tx, &below, metaBelow, l.start.Load(), offset, l.lastNow); err != nil {
		return err
	}
	if err := tx.Bucket(bucketMeta).Put(metaBelow, below.encode()); err != nil {
		return err
	}
	l.epochs.truncateStart(offset)
	if err := l.saveEpochs(tx); err != nil {
		return err
	}
	return putOffset(tx, metaStart, offset)
}

// removeBelow removes batches that no reader may see any more.
func (l *btreeLog) removeBelow(offset int64) error {
	_, err := l.remove(oldest, func(k batchKey, _ record.Header) bool { return k.lastOffset < offset })
	return err
}

// Retain deletes batch by batch, where a log deletes whole segments.
func (l *btreeLog) Retain(now, limit int64) ([]DeletedSegment, error) {
	if err := l.writable(); err != nil {
		return nil, err
	}
	l.lastNow = now
	l.producers.expire(now, l.cfg.ProducerIDExpirationMs)
	var deleted []DeletedSegment
	start := l.start.Load()
	err := l.db.View(func(tx *bbolt.Tx) error {
		deleted, start = l.expired(tx.Bucket(bucketBatches).Cursor(), now, limit)
		return nil
	})
	if err != nil {
		return nil, l.fail("retain", err)
	}
	return deleted, l.AdvanceLogStart(start, limit)
}

// expired finds what retention deletes, oldest first, one entry for each reason,
// and the log start offset that is left.
func (l *btreeLog) expired(c *bbolt.Cursor, now, limit int64) (deleted []DeletedSegment, start int64) {
	start = l.start.Load()
	excess := int64(-1) // bytes over retention.bytes
	if l.cfg.RetentionBytes >= 0 {
		excess = batchBytes(c) - l.cfg.RetentionBytes
	}
	for k, v := c.First(); k != nil && batchKeyOf(k).lastOffset < limit; k, v = c.Next() {
		h := record.ReadHeader(v)
		excess -= int64(len(v))
		why := ""
		switch {
		case l.cfg.RetentionMs >= 0 && now-h.MaxTimestamp > l.cfg.RetentionMs:
			why = "retention.ms"
		case excess >= 0:
			why = "retention.bytes"
		default:
			return deleted, start
		}
		n := len(deleted)
		if n == 0 || deleted[n-1].Why != why {
			deleted = append(deleted, DeletedSegment{BaseOffset: h.BaseOffset, Why: why})
			n++
		}
		deleted[n-1].Bytes += int64(len(v))
		start = h.NextOffset()
	}
	return deleted, start
}

// batchBytes is the bytes of all batches: the distance between the first's begin and the last's end.
func batchBytes(c *bbolt.Cursor) int64 {
	first, v := c.First()
	if first == nil {
		return 0
	}
	begin := batchKeyOf(first).endPosition - int64(len(v))
	last, _ := c.Last()
	return batchKeyOf(last).endPosition - begin
}

// RemoveExpired has nothing to do: what is deleted leaves no file behind.
func (l *btreeLog) RemoveExpired(int64) error { return nil }
