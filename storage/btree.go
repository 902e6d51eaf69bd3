package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// btreeLog keeps a partition's batches in a B+tree, as a database or a JMS store
// would (lab.storage.engine=btree, claim C2). It is go.etcd.io/bbolt: one file,
// copy-on-write pages of 4 KiB, read through its own mapping. It needs a real
// file system, so it runs live only.
//
// The buckets of btree.db, all integers big-endian so that they sort:
//
//	batches    last offset, end position  ->  the batch, as on the wire
//	times      running maximum of the timestamps, last offset  ->  nothing
//	ids        hash of a record's message id  ->  the record's offset     (lab.btree.key=message-id only)
//	meta       "log start offset" and "producers below", their state as of that offset;
//	           "log end offset" and "producers", as of that one; "leader epochs"
//
// A batch's end position counts the bytes of all batches up to its own end, so
// the bytes between two batches are known without a running total, which would
// cost every append another page.
//
// What lab.btree.key=message-id models: a JMS store finds a message by the id
// that its producer gave it, to acknowledge and delete it and to refuse it
// twice. Such ids arrive in no order, so each record costs one insert at a
// random place of the index, and one delete there when it is acknowledged. The
// id modelled is a hash of the offset: as random as a real one, and it can be
// computed again. Messages themselves lie in order of arrival in both key kinds,
// as they do in the journal or table of such stores. Deleting on acknowledgement
// is AdvanceLogStart, by one subscriber in order: it removes, record by record,
// what the acknowledged messages put into the tree.
//
// The choices that make the comparison with a log fair:
//
//   - One transaction per Append, however many batches it carries, and no fsync
//     in it: the log does not wait for the disk either until BeginFlush.
//   - The list of free pages is not written with every transaction. Opening
//     scans the tree for them instead.
//   - Keys that only grow fill their pages; bbolt would leave half empty for
//     inserts that never come.
//   - Read copies: a transaction kept open until a slow socket is done would
//     keep pages from reuse, and the next append that must grow the mapping
//     would wait for it.
//
// Durability differs from the log's in one way that no setting hides. A kill
// loses nothing. After a power cut, what was flushed is whole only if nothing
// was appended since: a later transaction that was not flushed may have reached
// the disk in part, and bbolt has no journal to undo it. Nor is what a failed sync left
// written again after a restart on the same boot: bbolt does not know which pages those were,
// and writing all would cost what the tree holds. A power cut after that may lose or
// damage the tree, though opening it has synced it.
type btreeLog struct {
	dir   *Dir
	db    *bbolt.DB
	name  string // of the file, for errors
	cfg   LogConfig
	names vfs.Syncer // of the file's directory; nil once the file's name is durable

	// Read by a checkpoint and the metrics without the partition's lock.
	start, end, flushed, fileBytes atomic.Int64

	unsaved int64 // bytes appended since the producers' state was last put into the tree
	lastNow int64 // the latest wall time seen, ms

	flushesOpen, flushesStale int // begun and not ended; of those, begun before a truncation

	times     btreeTimes
	epochs    epochCache
	producers producerStates
	failed    error // the log takes no change after it
	closed    bool
}

var (
	bucketBatches = []byte("batches")
	bucketTimes   = []byte("times")
	bucketIDs     = []byte("ids")
	bucketMeta    = []byte("meta")

	metaStart     = []byte("log start offset")
	metaEnd       = []byte("log end offset")
	metaBelow     = []byte("producers below")
	metaProducers = []byte("producers")
	metaEpochs    = []byte("leader epochs")
)

const btreeFileName = "btree.db"

// btreeLockTimeout is how long opening waits for another process that has the file.
const btreeLockTimeout = time.Second

// appendFill is how full bbolt leaves the pages of buckets whose keys only grow.
const appendFill = 1.0

// openBTree opens or makes the tree in a partition's directory. Recovery is
// bbolt's own: it takes the newer of two meta pages whose checksum holds.
func openBTree(d *Dir, dir string, cfg LogConfig, now int64) (Log, RecoveryReport, error) {
	name := path.Join(dir, btreeFileName)
	file, ok := vfs.RealPath(d.fs, name)
	if !ok {
		return nil, RecoveryReport{}, fmt.Errorf("storage: lab.storage.engine=btree in %s: %w", dir, vfs.ErrUnsupported)
	}
	db, err := bbolt.Open(file, 0o644, &bbolt.Options{
		Timeout: btreeLockTimeout, NoSync: true, NoGrowSync: true, NoFreelistSync: true,
		FreelistType: bbolt.FreelistMapType, NoStatistics: true,
	})
	if err != nil {
		return nil, RecoveryReport{}, btreeOpenError(name, err)
	}
	l := &btreeLog{dir: d, db: db, name: name, cfg: cfg, lastNow: now, names: vfs.DirSyncer(d.fs, dir), producers: producerStates{max: cfg.ProducerIDsMax}}
	if err := l.load(); err != nil {
		return nil, RecoveryReport{}, errors.Join(btreeOpenError(name, err), db.Close())
	}
	return l, RecoveryReport{Clean: d.Clean()}, nil
}

// btreeOpenError tells damage from other failures.
func btreeOpenError(name string, err error) error {
	for _, damage := range []error{bolterrors.ErrInvalid, bolterrors.ErrChecksum, bolterrors.ErrVersionMismatch} {
		if errors.Is(err, damage) {
			return &CorruptionError{File: name, Reason: err.Error()}
		}
	}
	return fmt.Errorf("storage: open %s: %w", name, err)
}

// load makes the buckets, reads what the log holds and finishes a trim that a kill interrupted.
func (l *btreeLog) load() error {
	err := l.db.Update(func(tx *bbolt.Tx) error {
		for _, b := range [][]byte{bucketBatches, bucketTimes, bucketIDs, bucketMeta} {
			if _, err := tx.CreateBucketIfNotExists(b); err != nil {
				return err
			}
		}
		meta := tx.Bucket(bucketMeta)
		start, end := getOffset(meta, metaStart), getOffset(meta, metaEnd)
		if k, _ := tx.Bucket(bucketBatches).Cursor().Last(); k != nil {
			end = max(end, batchKeyOf(k).lastOffset+1)
		}
		l.start.Store(start)
		l.end.Store(max(end, start))
		if b := meta.Get(metaEpochs); b != nil {
			if err := l.epochs.decode(b); err != nil {
				return err
			}
			last, hasLast := l.epochs.spanning(l.start.Load())
			l.epochs.truncateEnd(l.end.Load()) // as Kafka: an epoch without a batch is forgotten when a log opens
			if hasLast && l.start.Load() == l.end.Load() {
				l.epochs.keepLast(last, l.end.Load())
			}
		}
		l.times.load(tx)
		l.fileBytes.Store(tx.Size())
		return l.loadProducers(tx, l.end.Load())
	})
	if err == nil {
		err = l.removeBelow(l.start.Load())
	}
	if err == nil {
		// What a killed process left is read from the page cache: it may not be on the disk yet.
		err = l.db.Sync()
	}
	l.flushed.Store(l.end.Load())
	return err
}

// loadProducers makes the producers' state as of end: from the newer of the two
// that the tree has, unless it knows too much, and from the batches after it.
func (l *btreeLog) loadProducers(tx *bbolt.Tx, end int64) error {
	meta := tx.Bucket(bucketMeta)
	from, saved := getOffset(meta, metaEnd), metaProducers
	switch {
	case end < l.start.Load(): // emptied, and begun anew below
		l.producers.clear()
		return nil
	case from < l.start.Load() || from > end:
		from, saved = l.start.Load(), metaBelow
	}
	return replayProducers(tx, &l.producers, saved, from, end, l.lastNow)
}

// replayProducers takes a saved state, as of from, and the batches after it up to end.
func replayProducers(tx *bbolt.Tx, ps *producerStates, saved []byte, from, end, now int64) error {
	ps.clear()
	if b := tx.Bucket(bucketMeta).Get(saved); b != nil {
		if err := ps.decode(b); err != nil {
			return err
		}
	}
	c := tx.Bucket(bucketBatches).Cursor()
	for k, v := c.Seek(offsetKey(from)); k != nil && batchKeyOf(k).lastOffset < end; k, v = c.Next() {
		ps.update(record.ReadHeader(v), now)
	}
	return nil
}

func (l *btreeLog) saveEpochs(tx *bbolt.Tx) error {
	return tx.Bucket(bucketMeta).Put(metaEpochs, l.epochs.encode())
}

// saveEnd notes end and the producers' state as of then.
func (l *btreeLog) saveEnd(tx *bbolt.Tx, end int64) error {
	l.unsaved = 0
	if err := putOffset(tx, metaEnd, end); err != nil {
		return err
	}
	return tx.Bucket(bucketMeta).Put(metaProducers, l.producers.encode())
}

// batchKey is a key of the bucket of batches.
type batchKey struct {
	lastOffset  int64
	endPosition int64
}

func (k batchKey) bytes() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(make([]byte, 0, 16), uint64(k.lastOffset)), uint64(k.endPosition))
}

func batchKeyOf(b []byte) batchKey {
	return batchKey{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))}
}

func offsetKey(offset int64) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(offset))
}

func getOffset(b *bbolt.Bucket, key []byte) int64 {
	if v := b.Get(key); v != nil {
		return int64(binary.BigEndian.Uint64(v))
	}
	return 0
}

// Append writes the batches in one transaction.
func (l *btreeLog) Append(batches []byte, a AppendArgs) (Appended, error) {
	if err := l.writable(); err != nil {
		return Appended{}, err
	}
	l.lastNow = a.Now
	if a.Replica {
		taken, err := l.replicaOf(a).check(batches)
		if err != nil {
			return Appended{}, err
		}
		batches = batches[:taken]
	} else {
		dup, err := checkAppend(batches, &l.cfg, &l.producers)
		if err != nil {
			return Appended{}, err
		}
		if dup != nil {
			return dup.appended(l.start.Load(), l.cfg.LogAppendTime), nil
		}
	}
	first, err := stampAppend(batches, a, l.end.Load(), &l.cfg)
	if err != nil {
		return Appended{}, err
	}
	times := l.times
	// The epochs may be ahead of the tree if the transaction fails: then the log is out of use.
	if err := l.db.Update(func(tx *bbolt.Tx) error { return l.put(tx, batches, &times) }); err != nil {
		return Appended{}, l.fail("append", err)
	}
	l.times = times
	for h := range record.Batches(batches) {
		l.producers.update(h, a.Now)
		l.end.Store(h.NextOffset())
	}
	done := Appended{BaseOffset: first, LastOffset: l.end.Load() - 1, AppendTime: -1, LogStartOffset: l.start.Load(), Bytes: len(batches)}
	if l.cfg.LogAppendTime && !a.Replica {
		done.AppendTime = a.Now
	}
	return done, nil
}

// put puts stamped batches, and what is known of them, into the tree.
func (l *btreeLog) put(tx *bbolt.Tx, batches []byte, times *btreeTimes) error {
	into := newBTreeAppender(tx, l.cfg)
	known := l.epochs.version
	for h, batch := range record.Batches(batches) {
		if err := into.put(h, batch, times); err != nil {
			return err
		}
		l.epochs.assign(h.PartitionLeaderEpoch, h.BaseOffset)
	}
	if l.epochs.version != known {
		if err := l.saveEpochs(tx); err != nil {
			return err
		}
	}
	if l.unsaved += int64(len(batches)); l.unsaved >= snapshotEvery {
		if err := l.saveEnd(tx, l.end.Load()); err != nil {
			return err
		}
	}
	l.fileBytes.Store(tx.Size())
	return nil
}

// btreeAppender puts batches into one transaction.
type btreeAppender struct {
	batches, times, ids *bbolt.Bucket
	indexInterval       int64
	position            int64 // where the next batch begins
}

func newBTreeAppender(tx *bbolt.Tx, cfg LogConfig) *btreeAppender {
	p := &btreeAppender{batches: tx.Bucket(bucketBatches), times: tx.Bucket(bucketTimes), indexInterval: cfg.IndexIntervalBytes}
	p.batches.FillPercent, p.times.FillPercent = appendFill, appendFill
	if cfg.BTreeKey == BTreeKeyMessageID {
		p.ids = tx.Bucket(bucketIDs)
	}
	if k, _ := p.batches.Cursor().Last(); k != nil {
		p.position = batchKeyOf(k).endPosition
	}
	return p
}

func (p *btreeAppender) put(h record.Header, batch []byte, times *btreeTimes) error {
	p.position += int64(len(batch))
	if err := p.batches.Put(batchKey{h.LastOffset(), p.position}.bytes(), batch); err != nil {
		return err
	}
	if err := times.put(p.times, h, p.position, p.indexInterval); err != nil {
		return err
	}
	if p.ids == nil {
		return nil
	}
	return putMessageIDs(p.ids, h)
}

func (l *btreeLog) replicaOf(a AppendArgs) replicaCheck {
	return replicaCheck{log: l.name, end: l.end.Load(), empty: l.start.Load() == l.end.Load(), known: l.epochs.latest(), current: a.LeaderEpoch, offsets: OffsetsLogical}
}

// AssignEpoch notes an epoch that this replica leads.
func (l *btreeLog) AssignEpoch(epoch int32, start int64) error {
	return assignEpoch(l.name, &l.epochs, epoch, start, l.end.Load())
}

// LatestEpoch is the newest leader epoch.
func (l *btreeLog) LatestEpoch() int32 { return l.epochs.newest() }

// EpochAt answers from the leader epoch cache.
func (l *btreeLog) EpochAt(offset int64) int32 { return l.epochs.at(offset) }

// EndOffsetByNextEpoch answers by the rule before KIP-279.
func (l *btreeLog) EndOffsetByNextEpoch(epoch int32) int64 {
	return l.epochs.endByNext(epoch, l.end.Load())
}

// EndOffsetForEpoch answers from the leader epoch cache.
func (l *btreeLog) EndOffsetForEpoch(epoch int32) (found int32, end int64) {
	return l.epochs.endOffset(epoch, l.end.Load())
}

func (l *btreeLog) LogStartOffset() int64 { return l.start.Load() }
func (l *btreeLog) LogEndOffset() int64   { return l.end.Load() }
func (l *btreeLog) FlushedOffset() int64  { return l.flushed.Load() }

// Size is the file's length: a tree keeps the pages of what it deleted, to use them again.
func (l *btreeLog) Size() int64 { return l.fileBytes.Load() }

// SetConfig applies cfg from the next append on. The engine and the tree's key never change.
func (l *btreeLog) SetConfig(cfg LogConfig) {
	cfg.Engine, cfg.BTreeKey = l.cfg.Engine, l.cfg.BTreeKey
	l.cfg = cfg
	l.producers.max = cfg.ProducerIDsMax
}

// fail puts the log, and its directory, out of use: what the file holds is unknown.
func (l *btreeLog) fail(op string, err error) error {
	e := &WriteError{Op: op, File: l.name, Err: err}
	if l.failed == nil {
		l.failed = e
	}
	l.dir.Fail(e)
	return e
}

// writable says why the log takes no change, or nil.
func (l *btreeLog) writable() error {
	if l.failed != nil {
		return l.failed
	}
	if err := l.dir.Offline(); err != nil {
		return &WriteError{Op: "append", File: l.name, Err: err}
	}
	return nil
}

// BeginFlush asks for a sync of the file, and of the directory the first time.
func (l *btreeLog) BeginFlush() *Flush {
	if l.flushed.Load() == l.end.Load() {
		return nil
	}
	f := &Flush{UpTo: l.end.Load(), Steps: []vfs.Syncer{l.db}}
	if l.names != nil {
		f.Steps = append(f.Steps, l.names)
	}
	l.flushesOpen++
	return f
}

// BeginSettling has nothing to do: opening the tree has settled it.
func (l *btreeLog) BeginSettling() *Flush { return nil }

// EndFlush takes note of the outcome.
func (l *btreeLog) EndFlush(f *Flush, err error) {
	l.flushesOpen--
	if err != nil {
		_ = l.fail("fsync", err)
		return
	}
	l.names = nil
	if l.flushesStale > 0 {
		// Begun before a truncation: it says nothing about what was appended since.
		l.flushesStale--
		return
	}
	l.flushed.Store(max(l.flushed.Load(), f.UpTo))
}

// Close keeps the producers' state, so that the next opening need not look for
// it, and closes the file.
func (l *btreeLog) Close() error {
	if l.closed {
		return nil
	}
	l.closed = true
	var err error
	if l.writable() == nil && l.flushed.Load() == l.end.Load() {
		if err = l.db.Update(func(tx *bbolt.Tx) error { return l.saveEnd(tx, l.end.Load()) }); err == nil {
			err = l.db.Sync()
		}
	}
	if e := l.db.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("storage: close %s: %w", l.name, err)
	}
	return nil
}
