package storage

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// rotWorld is the disk of a log of some segments, closed cleanly, and what is in it.
type rotWorld struct {
	cfg     LogConfig
	disk    *vfs.Sim
	batches []listedBatch
	bases   []int64
}

func newRotWorld(t *testing.T, cfg LogConfig) *rotWorld {
	w := &rotWorld{cfg: cfg, disk: vfs.NewSim(nil)}
	d := testDir(t, w.disk)
	l, _ := testOpen(t, d, cfg)
	for i := range 36 {
		b := batchSpec{records: 1 + i%4, valueSize: 10 + 37*(i%5), timestamp: int64(1000 + 10*i)}.build()
		if _, err := l.Append(b, AppendArgs{LeaderEpoch: 3, Now: 1000}); err != nil {
			t.Fatal(err)
		}
		h := record.ReadHeader(b)
		lb := listedBatch{offset: h.BaseOffset, next: h.NextOffset(), bytes: b}
		for k := range 1 + i%4 {
			lb.times = append(lb.times, int64(1000+10*i+k))
		}
		w.batches = append(w.batches, lb)
	}
	for _, s := range l.segments {
		w.bases = append(w.bases, s.base)
	}
	testFlush(t, l)
	if err := d.Close(true, -1); err != nil {
		t.Fatal(err)
	}
	return w
}

// An index that does not say what was written is found out and made anew, whichever of its bits
// has flipped: where a batch is, and where a timestamp, stays what it was.
func TestARottenIndexMisleadsNobody(t *testing.T) {
	for _, offsets := range []OffsetScheme{OffsetsLogical, OffsetsByte} {
		t.Run(string(offsets), func(t *testing.T) {
			cfg := testConfig()
			cfg.SegmentBytes, cfg.IndexIntervalBytes, cfg.Offsets = 3000, 200, offsets
			w := newRotWorld(t, cfg)
			names, err := w.disk.List("data/orders-0")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if !strings.HasSuffix(name, indexSuffix) && !strings.HasSuffix(name, timeIndexSuffix) {
					continue
				}
				name = "data/orders-0/" + name
				for at := int64(0); ; at++ {
					disk := w.disk.Clone()
					if !disk.Rot(name, at, 1<<(at*3%8)) {
						break
					}
					l, _ := testOpen(t, testDir(t, disk), cfg)
					w.mustTell(t, l, name, at)
				}
			}
		})
	}
}

// mustTell asks for every batch and timestamp.
func (w *rotWorld) mustTell(t *testing.T, l Log, name string, at int64) {
	t.Helper()
	for _, b := range w.batches {
		offset, _, _, ok, err := l.OffsetForTimestamp(b.times[0])
		if err != nil || !ok || offset != b.offset {
			t.Fatalf("byte %d of %s: timestamp %d is found at %d, not %d: %v %v", at, name, b.times[0], offset, b.offset, ok, err)
		}
		r, err := l.Read(b.offset, l.LogEndOffset(), 1)
		if err != nil || !bytes.Equal(regionBytes(t, r), b.bytes) {
			t.Fatalf("byte %d of %s: a read at %d: %v", at, name, b.offset, err)
		}
	}
}
