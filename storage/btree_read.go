package storage

import (
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/tidemark-log/tidemark/storage/record"
)

// Read copies whole batches into a pooled buffer: see btreeLog for why it copies.
func (l *btreeLog) Read(offset, limit int64, maxBytes int) (Region, error) {
	if offset < l.start.Load() || offset > l.end.Load() {
		return Region{}, ErrOffsetOutOfRange
	}
	var region Region
	err := l.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketBatches).Cursor()
		n := 0
		for k, v := c.Seek(offsetKey(offset)); k != nil; k, v = c.Next() {
			if batchKeyOf(k).lastOffset >= limit || n > 0 && n+len(v) > maxBytes {
				break
			}
			n += len(v)
		}
		if n == 0 {
			return nil
		}
		p := newPooledBytes(n)
		at := 0
		for _, v := c.Seek(offsetKey(offset)); at < n; _, v = c.Next() {
			at += copy(p.data[at:], v)
		}
		region = Region{Len: n, Bytes: p.data[:n:n], pin: p}
		return nil
	})
	if err != nil {
		return Region{}, fmt.Errorf("storage: read %s at offset %d: %w", l.name, offset, err)
	}
	return region, nil
}

// btreeTimes is the sparse index of timestamps. An entry says: no batch up to
// and with the one that ends at this offset has a timestamp above this one.
type btreeTimes struct {
	max     int64 // of all batches in the log, ms; -1 without any
	indexed int64 // position of the last batch with an entry
}

// timeKey is a key of the index of timestamps.
type timeKey struct{ timestamp, lastOffset int64 }

func (k timeKey) bytes() []byte { return batchKey{k.timestamp, k.lastOffset}.bytes() }

func timeKeyOf(b []byte) timeKey {
	k := batchKeyOf(b)
	return timeKey{k.lastOffset, k.endPosition}
}

// put adds an entry for a batch that raises the maximum, at most one per interval of bytes.
func (t *btreeTimes) put(times *bbolt.Bucket, h record.Header, position, interval int64) error {
	if h.MaxTimestamp <= t.max {
		return nil
	}
	t.max = h.MaxTimestamp
	if position-t.indexed < interval {
		return nil
	}
	t.indexed = position
	return times.Put(timeKey{t.max, h.LastOffset()}.bytes(), []byte{})
}

// load finds the maximum again: the last entry's, or that of a batch after it.
func (t *btreeTimes) load(tx *bbolt.Tx) {
	*t = btreeTimes{max: -1}
	after := int64(-1)
	if k, _ := tx.Bucket(bucketTimes).Cursor().Last(); k != nil {
		t.max, after = timeKeyOf(k).timestamp, timeKeyOf(k).lastOffset
	}
	c := tx.Bucket(bucketBatches).Cursor()
	for k, v := c.Seek(offsetKey(after + 1)); k != nil; k, v = c.Next() {
		t.max = max(t.max, record.ReadHeader(v).MaxTimestamp)
	}
	if k, _ := c.Last(); k != nil {
		t.indexed = batchKeyOf(k).endPosition
	}
}

// OffsetForTimestamp starts after the last entry below ts and looks at headers
// until a batch reaches ts, then at that batch's records.
func (l *btreeLog) OffsetForTimestamp(ts int64) (offset, timestamp int64, epoch int32, ok bool, err error) {
	offset, timestamp, epoch = -1, -1, -1
	err = l.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketBatches).Cursor()
		for k, v := c.Seek(offsetKey(max(l.start.Load(), firstCandidate(tx, ts)))); k != nil; k, v = c.Next() {
			h := record.ReadHeader(v)
			if h.MaxTimestamp < ts {
				continue
			}
			for r, err := range record.Records(v, 0) {
				if err != nil {
					// lab.validate=batch does not look inside: what cannot be read is answered with its batch.
					offset, timestamp, epoch, ok = max(h.BaseOffset, l.start.Load()), h.MaxTimestamp, h.PartitionLeaderEpoch, true
					return nil
				}
				if r.Timestamp >= ts && r.Offset >= l.start.Load() {
					offset, timestamp, epoch, ok = r.Offset, r.Timestamp, h.PartitionLeaderEpoch, true
					return nil
				}
			}
		}
		return nil
	})
	return offset, timestamp, epoch, ok, err
}

// firstCandidate is the offset after the last entry below ts: nothing before it can have ts.
func firstCandidate(tx *bbolt.Tx, ts int64) int64 {
	c := tx.Bucket(bucketTimes).Cursor()
	k, _ := c.Seek(timeKey{timestamp: max(ts, 0)}.bytes())
	if k == nil {
		k, _ = c.Last()
	} else {
		k, _ = c.Prev()
	}
	if k == nil {
		return 0
	}
	return timeKeyOf(k).lastOffset + 1
}
