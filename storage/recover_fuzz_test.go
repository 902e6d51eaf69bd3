package storage

import (
	"bytes"
	"testing"

	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// FuzzRecovery gives a log whatever bytes as its files. Opening must end, and
// leave a log that is a prefix of the .log's bytes made of whole valid batches,
// in which everything is found, and that takes appends.
func FuzzRecovery(f *testing.F) {
	for _, offsets := range []OffsetScheme{OffsetsLogical, OffsetsByte} {
		log, index, times, snapshot := fuzzSeed(f, offsets)
		for _, recoveryPoint := range []int64{0, 3, 1 << 40} {
			scheme := offsets == OffsetsByte
			f.Add(log, index, times, snapshot, recoveryPoint, scheme, true)
			f.Add(log[:len(log)-7], index, times, snapshot, recoveryPoint, scheme, false)
			f.Add(append(bytes.Clone(log), make([]byte, 500)...), index[:9], times[:1], snapshot[:20], recoveryPoint, scheme, false)
			damaged := bytes.Clone(log)
			damaged[len(log)/2] ^= 1
			f.Add(damaged, []byte{}, []byte{}, []byte{}, recoveryPoint, scheme, true)
		}
	}
	f.Fuzz(func(t *testing.T, log, index, times, snapshot []byte, recoveryPoint int64, byteOffsets, clean bool) {
		cfg := testConfig()
		cfg.SegmentBytes, cfg.ProducerIDsMax = 1<<20, 16
		if byteOffsets {
			cfg.Offsets = OffsetsByte
		}
		disk := vfs.NewSim(nil)
		if err := disk.MkdirAll("data/orders-0"); err != nil {
			t.Fatal(err)
		}
		put := func(name string, b []byte) {
			if err := writeFile(disk, name, b); err != nil {
				t.Fatal(err)
			}
		}
		put("data/orders-0/00000000000000000000.log", log)
		put("data/orders-0/00000000000000000000.index", index)
		put("data/orders-0/00000000000000000000.timeindex", times)
		put("data/orders-0/00000000000000000002.snapshot", snapshot)
		if recoveryPoint >= 0 {
			put("data/"+recoveryPointFile, encodeOffsets([]PartitionOffset{{"orders", 0, recoveryPoint}}))
		}
		if clean {
			put("data/"+cleanFile, nil)
		}
		d := testDir(t, disk)
		l, _, err := d.Open("orders", [16]byte{}, 0, cfg, 1000)
		if err != nil {
			return // refused, and says why
		}
		// Below the recovery point, and after a clean shutdown, the batches are believed.
		checkRecovered(t, l, log, clean || recoveryPoint > 0)
		if err := d.Close(true, -1); err != nil {
			t.Fatal(err)
		}
	})
}

// fuzzSeed is the files of a small log.
func fuzzSeed(f *testing.F, offsets OffsetScheme) (log, index, times, snapshot []byte) {
	cfg := testConfig()
	cfg.Offsets = offsets
	disk := vfs.NewSim(nil)
	d := testDir(f, disk)
	l, _ := testOpen(f, d, cfg)
	for i := range 6 {
		testAppend(f, l, batchSpec{records: 2, valueSize: 100, timestamp: int64(1000 + i), producer: 5, sequence: int32(2 * i)})
	}
	name := offsetName(l.LogEndOffset(), "")
	if err := d.Close(true, -1); err != nil {
		f.Fatal(err)
	}
	read := func(name string) []byte {
		b, err := readFile(disk, "data/orders-0/"+name, 1<<20)
		if ignoreNotExist(err) != nil {
			f.Fatal(err)
		}
		return append(b, make([]byte, 9)...)[:max(len(b), 9)]
	}
	return read(offsetName(0, logSuffix)), read(offsetName(0, indexSuffix)), read(offsetName(0, timeIndexSuffix)), read(name + snapshotSuffix)
}

func checkRecovered(t *testing.T, l Log, log []byte, believed bool) {
	if !believed {
		pos, next := 0, l.LogStartOffset()
		for _, b := range readAll(t, l, l.LogStartOffset(), 1<<20) {
			h := record.ReadHeader(b)
			if pos+len(b) > len(log) || !bytes.Equal(log[pos:pos+len(b)], b) {
				t.Fatalf("batch at offset %d is not what the file had at byte %d", h.BaseOffset, pos)
			}
			if h.BaseOffset < next {
				t.Fatalf("offset %d after %d", h.BaseOffset, next)
			}
			pos, next = pos+len(b), h.NextOffset()
		}
		if next != l.LogEndOffset() {
			t.Fatalf("the last batch ends at %d, the log at %d", next, l.LogEndOffset())
		}
		for _, ts := range []int64{0, 1003, 1 << 50} {
			if _, _, _, _, err := l.OffsetForTimestamp(ts); err != nil {
				t.Fatalf("offset for timestamp %d: %v", ts, err)
			}
		}
	}
	a, err := l.Append(batchSpec{records: 3, timestamp: 2000}.build(), AppendArgs{Now: 2000})
	if err != nil {
		if l.LogEndOffset() > 1<<61 {
			return // the offsets are used up
		}
		t.Fatalf("append: %v", err)
	}
	r, err := l.Read(a.BaseOffset, l.LogEndOffset(), 1)
	if err != nil || r.Len == 0 {
		t.Fatalf("read of what was appended: %d bytes, %v", r.Len, err)
	}
	r.Release()
}
