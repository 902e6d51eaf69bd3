package storage

import (
	"testing"

	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
	"github.com/tidemark-log/tidemark/storage/vfs/syscount"
)

// A consumer that reads on costs two reads a fetch: one of the index, and one of the
// header of the batch at which its region ends.
func TestAReadThatGoesOnReadsOneEntryAndOneHeader(t *testing.T) {
	var count syscount.Counters
	cfg := testConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 64<<20, 4096
	l, _ := testOpen(t, testDir(t, vfs.NewReal(t.TempDir(), &count)), cfg)
	for range 1200 { // more entries than one read of the index takes
		testAppend(t, l, batchSpec{records: 1, valueSize: 8000})
	}
	preads := func() int64 { return count.Snapshot().Of(syscount.Pread) }
	for next := int64(0); next < 1150; {
		before := preads()
		r, err := l.Read(next, l.LogEndOffset(), 100_000)
		if err != nil {
			t.Fatal(err)
		}
		if n := preads() - before; next > 0 && n > 2 {
			t.Errorf("the read at %d made %d calls to read files, want 2", next, n)
		}
		b := regionBytes(t, r)
		for len(b) > 0 {
			h := record.ReadHeader(b)
			next, b = h.NextOffset(), b[h.Size():]
		}
	}
}

// What the read before saw of a batch is believed once: a consumer that comes back
// for a batch that has been damaged since is told.
func TestABatchDamagedBetweenReadsIsToldToWhoComesBack(t *testing.T) {
	for name, cfg := range logVariants() {
		if cfg.Cache != CachePage {
			continue // has its own copy
		}
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewReal(t.TempDir(), nil)
			l, _ := testOpen(t, testDir(t, fs), cfg)
			size := int64(0)
			for range 4 {
				b := batchSpec{records: 1, valueSize: 400}.build()
				if _, err := l.Append(b, AppendArgs{Now: 1000}); err != nil {
					t.Fatal(err)
				}
				size = int64(len(b))
			}
			r, err := l.Read(0, l.LogEndOffset(), int(2*size+size/2))
			if err != nil || int64(r.Len) != 2*size {
				t.Fatalf("%d bytes, %v; want two batches of %d", r.Len, err, size)
			}
			r.Release()
			f, err := fs.Open("data/orders-0/00000000000000000000.log", vfs.ReadWrite)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt(make([]byte, record.HeaderSize), 2*size); err != nil {
				t.Fatal(err)
			}
			third := int64(2)
			if cfg.Offsets == OffsetsByte {
				third = 2 * size
			}
			for range 2 {
				if r, err = l.Read(third, l.LogEndOffset(), int(size)); err != nil {
					break
				}
				r.Release()
			}
			if !isDamage(err) {
				t.Errorf("asked twice for a batch whose header is gone: %v", err)
			}
		})
	}
}

// Under byte offsets a limit inside a batch lies where a fetch of the next batch may begin: behind the first one's records.
func TestALimitInsideABatchIsNoPlaceToFetchFrom(t *testing.T) {
	cfg := testConfig()
	cfg.Offsets = OffsetsByte
	l, _ := testOpen(t, testDir(t, vfs.NewSim(nil)), cfg)
	for range 3 {
		testAppend(t, l, batchSpec{valueSize: 100})
	}
	second := l.LogEndOffset() / 3
	behind := second + 1 // the second batch has one record
	for _, limit := range []int64{behind, l.LogEndOffset()} {
		r, err := l.Read(0, limit, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		r.Release()
	}
	r, err := l.Read(behind, l.LogEndOffset(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if h := record.ReadHeader(regionBytes(t, r)); h.BaseOffset != 2*second {
		t.Errorf("a fetch behind the records of the batch at %d is answered with the batch at %d, not %d", second, h.BaseOffset, 2*second)
	}
}

// A segment that a truncation cut while a reader held it is cut in its file by the recovery after a kill, and is
// complete then: its largest timestamp is to be known to who opens the log next.
func TestASegmentThatRecoveryCutsTellsItsLargestTimestamp(t *testing.T) {
	for _, offsets := range []OffsetScheme{OffsetsLogical, OffsetsByte} {
		t.Run(string(offsets), func(t *testing.T) {
			cfg := testConfig()
			cfg.SegmentBytes, cfg.IndexIntervalBytes, cfg.Offsets = 1<<20, 2000, offsets
			disk := vfs.NewSim(nil)
			l, _ := testOpen(t, testDir(t, disk), cfg)
			var at []int64
			for i := range 12 {
				at = append(at, testAppend(t, l, batchSpec{valueSize: 300, timestamp: int64(1000 + i)}).BaseOffset)
			}
			held, err := l.Read(0, l.LogEndOffset(), 1<<20)
			if err != nil || held.Len == 0 {
				t.Fatal(held.Len, err)
			}
			if err := l.Truncate(at[11]); err != nil {
				t.Fatal(err)
			}
			disk.Kill()
			d := testDir(t, disk)
			l, _ = testOpen(t, d, cfg)
			testFlush(t, l)
			if err := d.Close(true, -1); err != nil {
				t.Fatal(err)
			}
			l, _ = testOpen(t, testDir(t, disk), cfg)
			if offset, _, _, ok, err := l.OffsetForTimestamp(1010); err != nil || !ok || offset != at[10] {
				t.Errorf("timestamp 1010 is found at %d, %v, %v; want %d", offset, ok, err, at[10])
			}
		})
	}
}
