package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	iofs "io/fs"
	"path"
	"slices"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// A producer snapshot, NNNNNNNNNNNNNNNNNNNN.snapshot, is the state of a
// partition's producers after all batches below the offset in its name. It is
// Kafka's ProducerStateManager format, big endian:
//
//	 0 version int16 = 1    2 crc uint32 (Castagnoli, of byte 6 to the end)    6 count int32
//	then for each producer, 46 bytes:
//	 0 producer id int64   8 epoch int16  10 last sequence int32  14 last offset int64
//	22 offset delta int32 26 timestamp int64  34 coordinator epoch int32 = -1  38 transaction's first offset int64 = -1
//
// Kafka keeps a producer's last batch only, so after a restart it takes the
// resend of an earlier one for a gap. Behind Kafka's entries, where its reader
// does not look but its CRC covers, stands an addition of ours:
//
//	magic "TMK1", then for each producer: last written int64, batches uint8, then 28 bytes for each batch, oldest first:
//	 0 first sequence int32  4 last sequence int32  8 last offset int64  16 offset delta int32  20 timestamp int64
const (
	snapshotHeader    = 10
	snapshotEntry     = 46
	snapshotBatch     = 28
	snapshotAddition  = "TMK1"
	snapshotEvery     = 64 << 20 // bytes of log after which another is written: bounds what opening walks
	snapshotBytesMax  = 1 << 30
	snapshotCRCCovers = 6
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode writes the states, those that wrote least recently first.
func (ps *producerStates) encode() []byte {
	b := make([]byte, 0, snapshotHeader+len(ps.byID)*(snapshotEntry+9+snapshotBatch)+len(snapshotAddition))
	be := binary.BigEndian
	b = be.AppendUint16(b, 1)
	b = be.AppendUint32(b, 0)
	b = be.AppendUint32(b, uint32(len(ps.byID)))
	for p := ps.oldest; p != nil; p = p.newer {
		last := sequenceRange{first: -1, last: -1, lastOffset: -1, timestamp: p.lastWritten}
		if p.n > 0 {
			last = *p.newest()
		}
		b = be.AppendUint64(b, uint64(p.id))
		b = be.AppendUint16(b, uint16(p.epoch))
		b = be.AppendUint32(b, uint32(last.last))
		b = be.AppendUint64(b, uint64(last.lastOffset))
		b = be.AppendUint32(b, uint32(last.offsetDelta))
		b = be.AppendUint64(b, uint64(last.timestamp))
		b = be.AppendUint32(b, ^uint32(0))
		b = be.AppendUint64(b, ^uint64(0))
	}
	b = append(b, snapshotAddition...)
	for p := ps.oldest; p != nil; p = p.newer {
		b = be.AppendUint64(b, uint64(p.lastWritten))
		b = append(b, byte(p.n))
		for _, r := range p.kept() {
			b = be.AppendUint32(b, uint32(r.first))
			b = be.AppendUint32(b, uint32(r.last))
			b = be.AppendUint64(b, uint64(r.lastOffset))
			b = be.AppendUint32(b, uint32(r.offsetDelta))
			b = be.AppendUint64(b, uint64(r.timestamp))
		}
	}
	be.PutUint32(b[2:], crc32.Checksum(b[snapshotCRCCovers:], castagnoli))
	return b
}

// decode replaces the states by a snapshot's. An error leaves them empty.
func (ps *producerStates) decode(b []byte) error {
	ps.clear()
	be := binary.BigEndian
	if len(b) < snapshotHeader {
		return fmt.Errorf("producer snapshot of %d bytes", len(b))
	}
	if v := be.Uint16(b); v != 1 {
		return fmt.Errorf("producer snapshot of version %d", v)
	}
	if got, want := crc32.Checksum(b[snapshotCRCCovers:], castagnoli), be.Uint32(b[2:]); got != want {
		return fmt.Errorf("producer snapshot with CRC %08x where %08x is written", got, want)
	}
	n := int64(int32(be.Uint32(b[6:])))
	b = b[snapshotHeader:]
	if n < 0 || n*snapshotEntry > int64(len(b)) {
		return fmt.Errorf("producer snapshot with %d entries in %d bytes", n, len(b))
	}
	for range n {
		ps.decodeEntry(b[:snapshotEntry])
		b = b[snapshotEntry:]
	}
	if len(b) > len(snapshotAddition) && string(b[:len(snapshotAddition)]) == snapshotAddition && int(n) == len(ps.byID) {
		ps.decodeAddition(b[len(snapshotAddition):])
	}
	return nil
}

func (ps *producerStates) decodeEntry(b []byte) {
	be := binary.BigEndian
	id := int64(be.Uint64(b))
	if ps.byID[id] != nil {
		return
	}
	p := ps.add(id, int16(be.Uint16(b[8:])))
	p.lastWritten = int64(be.Uint64(b[26:]))
	r := sequenceRange{
		last: int32(be.Uint32(b[10:])), lastOffset: int64(be.Uint64(b[14:])),
		offsetDelta: int32(be.Uint32(b[22:])), timestamp: p.lastWritten,
	}
	if r.last >= 0 {
		r.first = int32((int64(r.last) - int64(r.offsetDelta)) & 0x7fffffff)
		*p.newest(), p.n = r, 1
	}
}

// decodeAddition takes our part. It stops at the first thing that does not fit: Kafka's part stands alone.
func (ps *producerStates) decodeAddition(b []byte) {
	be := binary.BigEndian
	for p := ps.oldest; p != nil; p = p.newer {
		if len(b) < 9 || int(b[8]) > sequencesKept || len(b) < 9+int(b[8])*snapshotBatch {
			return
		}
		p.lastWritten = int64(be.Uint64(b))
		p.n = int(b[8])
		b = b[9:]
		for i := range p.n {
			p.batches[sequencesKept-p.n+i] = sequenceRange{
				first: int32(be.Uint32(b)), last: int32(be.Uint32(b[4:])), lastOffset: int64(be.Uint64(b[8:])),
				offsetDelta: int32(be.Uint32(b[16:])), timestamp: int64(be.Uint64(b[20:])),
			}
			b = b[snapshotBatch:]
		}
	}
}

// snapshotFiles is the snapshots in a partition's directory.
type snapshotFiles struct {
	offsets  []int64 // ascending
	unsynced []string
	since    int64 // bytes appended since the newest
}

// maybeSnapshot writes a snapshot when so much has been appended since the last
// that opening after a kill would walk too far.
func (l *segmentLog) maybeSnapshot(appended int64) error {
	l.snapshots.since += appended
	if l.snapshots.since < snapshotEvery {
		return nil
	}
	return l.saveSnapshot()
}

// saveSnapshot writes the producers' state as of the log end, unless that is there
// already. The next flush makes it durable; until then recovery does without it.
func (l *segmentLog) saveSnapshot() error {
	end := l.end.Load()
	l.snapshots.since = 0
	if end == l.segments[0].base && len(l.producers.byID) == 0 {
		return nil // no batch and no producer: without a snapshot there is nothing to walk either
	}
	if err := l.saveSnapshotAt(end); err != nil {
		return err
	}
	return l.dropSnapshots(l.checkpointed.Load(), end)
}

// saveSnapshotAt writes the producers' state, which is that as of offset.
func (l *segmentLog) saveSnapshotAt(offset int64) error {
	f := &l.snapshots
	at, there := slices.BinarySearch(f.offsets, offset)
	if there {
		return nil
	}
	name := offsetName(offset, snapshotSuffix)
	if err := writeFile(l.fs, path.Join(l.path, name), l.producers.encode()); err != nil {
		return l.fail("snapshot", path.Join(l.path, name), 0, err)
	}
	l.names++
	l.active().indexDue = true
	f.offsets = slices.Insert(f.offsets, at, offset)
	f.unsynced = append(f.unsynced, name)
	return nil
}

// keepProducers syncs the producers' state at base, before the batches
// below it go: it alone knows then of producers that wrote nothing since. A flush
// that has it under way may come too late. It may be of an earlier process, whose sync
// of it failed, so it is written again (see leftover).
func (l *segmentLog) keepProducers(base int64) error {
	if len(l.producers.byID) == 0 {
		return nil
	}
	if _, there := slices.BinarySearch(l.snapshots.offsets, base); !there {
		if err := l.saveSnapshot(); err != nil {
			return err
		}
		base = l.end.Load()
	}
	name := path.Join(l.path, offsetName(base, snapshotSuffix))
	if err := rewritePath(l.fs, name, snapshotBytesMax); err != nil {
		return l.fail("fsync", name, 0, err)
	}
	return nil
}

// removeSnapshot removes the one at offset.
func (l *segmentLog) removeSnapshot(offset int64) error {
	f := &l.snapshots
	name := offsetName(offset, snapshotSuffix)
	if err := removeIfThere(l.fs, path.Join(l.path, name)); err != nil {
		return l.fail("remove", path.Join(l.path, name), 0, err)
	}
	l.names++
	f.offsets = slices.DeleteFunc(f.offsets, func(o int64) bool { return o == offset })
	f.unsynced = slices.DeleteFunc(f.unsynced, func(n string) bool { return n == name })
	return nil
}

// dropSnapshots removes those that nothing will begin from: above the log end
// offset (after a truncation), and older than the newest at or below needed. Those at
// a segment's base stay: a truncation begins from one, and it alone knows of
// producers whose batches went with earlier segments.
func (l *segmentLog) dropSnapshots(needed, end int64) error {
	f := &l.snapshots
	first := 0
	for i, o := range f.offsets {
		if o <= needed {
			first = i
		}
	}
	for i, o := range slices.Clone(f.offsets) {
		if o <= end && (i >= first || l.isSegmentBase(o)) {
			continue
		}
		if err := l.removeSnapshot(o); err != nil {
			return err
		}
	}
	return nil
}

func (l *segmentLog) isSegmentBase(offset int64) bool {
	return l.segments[l.segmentAt(offset)].base == offset
}

// loadProducers rebuilds the producers' state as of the log end: from the newest
// snapshot at or below upTo that can be read, then from the batches after it.
func (l *segmentLog) loadProducers(upTo, now int64) error {
	from := l.segments[0].base
	l.producers.clear()
	for i := len(l.snapshots.offsets) - 1; i >= 0; i-- {
		o := l.snapshots.offsets[i]
		if o > upTo {
			continue
		}
		// A damaged snapshot is worth a longer walk, not the partition. A failed read is
		// no damage: a walk cannot make up for it, once retention has taken batches.
		b, err := readFile(l.fs, path.Join(l.path, offsetName(o, snapshotSuffix)), snapshotBytesMax)
		if errors.Is(err, iofs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if l.producers.decode(b) == nil {
			from = max(from, o)
			break
		}
		l.producers.clear()
		if err := l.removeSnapshot(o); err != nil { // nobody shall count on it later
			return err
		}
	}
	for i := l.segmentAt(from); i < len(l.segments); i++ {
		if base := l.segments[i].base; base > from {
			if err := l.saveSnapshotAt(base); err != nil {
				return err
			}
		}
		if err := l.walkProducers(i, from, now); err != nil {
			return err
		}
	}
	return nil
}

// walkProducers takes in the batches of segment i from offset on.
func (l *segmentLog) walkProducers(i int, from, now int64) error {
	s := l.segments[i]
	if from >= l.segmentEnd(i) || s.size == 0 {
		return nil
	}
	pos, err := l.position(i, max(from, s.base))
	if isDamage(err) {
		return nil // reported by recovery; who wrote behind it is not known
	}
	if err != nil {
		return err
	}
	w := l.walk(s, s.size)
	defer w.done()
	for pos < s.size {
		h, err := w.header(pos)
		if isDamage(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.BaseOffset >= from {
			l.producers.update(h, now)
		}
		pos += int64(h.Size())
	}
	return nil
}

// removeIfThere removes a file, which need not exist.
func removeIfThere(fs vfs.FS, name string) error {
	return ignoreNotExist(fs.Remove(name))
}
