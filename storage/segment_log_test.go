package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// logVariants are the forms of the engine that must all behave as one log.
func logVariants() map[string]LogConfig {
	all := map[string]LogConfig{}
	for _, cache := range []Cache{CachePage, CacheProcess, CacheDirect} {
		for _, offsets := range []OffsetScheme{OffsetsLogical, OffsetsByte} {
			cfg := testConfig()
			cfg.Cache, cfg.Offsets, cfg.CacheBytes = cache, offsets, 1<<20
			all[fmt.Sprintf("%s/%s", cache, offsets)] = cfg
		}
	}
	return all
}

func TestEveryBatchIsFoundByEachOfItsOffsets(t *testing.T) {
	for name, cfg := range logVariants() {
		t.Run(name, func(t *testing.T) {
			d := testDir(t, vfs.NewReal(t.TempDir(), nil))
			l, _ := testOpen(t, d, cfg)
			rng := rand.New(rand.NewPCG(1, 2))
			var want [][]byte
			appendSome := func(n int) {
				for range n {
					b := batchSpec{records: 1 + rng.IntN(5), valueSize: 1 + rng.IntN(300), timestamp: rng.Int64N(1e6)}.build()
					if _, err := l.Append(b, AppendArgs{LeaderEpoch: 3, Now: 5}); err != nil {
						t.Fatal(err)
					}
					want = append(want, b)
				}
			}
			check := func() {
				t.Helper()
				for _, maxBytes := range []int{1, 700, 40_000, 1 << 20} {
					if got := readAll(t, l, 0, maxBytes); !bytes.Equal(bytes.Join(got, nil), bytes.Join(want, nil)) {
						t.Fatalf("reading with %d bytes gives other batches than were appended", maxBytes)
					}
				}
				for i, b := range want {
					h := record.ReadHeader(b)
					// Under byte offsets a batch has many: some of each kind.
					step := max(1, int64(h.LastOffsetDelta)/4)
					for o := h.BaseOffset; o < h.NextOffset(); o += step {
						answer := b
						if o-h.BaseOffset >= int64(h.RecordCount) { // byte offsets: behind the records
							answer = nil
							if i+1 < len(want) {
								answer = want[i+1]
							}
						}
						r, err := l.Read(o, l.LogEndOffset(), 1)
						if err != nil {
							t.Fatal(err)
						}
						if got := regionBytes(t, r); !bytes.Equal(got, answer) {
							t.Fatalf("read at %d (batch %d at %d of %d records): %d bytes, want %d", o, i, h.BaseOffset, h.RecordCount, len(got), len(answer))
						}
					}
				}
			}
			appendSome(120)
			check()
			if err := d.Close(true, -1); err != nil {
				t.Fatal(err)
			}
			d = testDir(t, vfs.NewReal(d.fs.(*vfs.Real).RealPath(""), nil))
			l, rep := testOpen(t, d, cfg)
			if !rep.Clean || rep.BytesScanned != 0 {
				t.Errorf("clean reopening: %+v", rep)
			}
			check()
			appendSome(60)
			testFlush(t, l)
			appendSome(30)
			check()
			if err := d.Close(false, -1); err != nil {
				t.Fatal(err)
			}
			d = testDir(t, vfs.NewReal(d.fs.(*vfs.Real).RealPath(""), nil))
			l, rep = testOpen(t, d, cfg)
			if rep.Clean || len(rep.Damage) > 0 || rep.TruncatedBytes > 0 || rep.BytesScanned == 0 {
				t.Errorf("reopening after a kill: %+v", rep)
			}
			check()
			appendSome(10)
			check()
			if err := d.Close(true, -1); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestSequencesWrapToZero(t *testing.T) {
	l, _ := testOpen(t, testDir(t, vfs.NewSim(nil)), testConfig())
	last := batchSpec{records: 3, producer: 7, sequence: 1<<31 - 2}.build() // ends at sequence 0
	if _, err := l.Append(last, AppendArgs{Now: 1, Replica: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(batchSpec{producer: 7, sequence: 2}.build(), AppendArgs{Now: 1}); err != ErrOutOfOrderSequence {
		t.Errorf("a gap behind the wrap: %v", err)
	}
	again := batchSpec{records: 3, producer: 7, sequence: 1<<31 - 2}
	if a := testAppend(t, l, again); !a.Duplicate || a.BaseOffset != 0 {
		t.Errorf("resend of the batch that wraps: %+v", a)
	}
	if a := testAppend(t, l, batchSpec{producer: 7, sequence: 1}); a.BaseOffset != 3 {
		t.Errorf("the next sequence: %+v", a)
	}
}

func TestAResendWithinOneAppendIsSeen(t *testing.T) {
	l, _ := testOpen(t, testDir(t, vfs.NewSim(nil)), testConfig())
	first := batchSpec{producer: 7, records: 2}.build()
	second := batchSpec{producer: 7, sequence: 2}.build()
	if _, err := l.Append(append(bytes.Clone(second), first...), AppendArgs{Now: 1}); err != ErrUnknownProducerID {
		t.Errorf("batches in the wrong order: %v", err)
	}
	if _, err := l.Append(append(bytes.Clone(first), second...), AppendArgs{Now: 1}); err != nil {
		t.Error(err)
	}
	other := batchSpec{producer: 8}.build()
	if _, err := l.Append(append(batchSpec{producer: 7, sequence: 3}.build(), other...), AppendArgs{Now: 1}); err != ErrInvalidRecord {
		t.Errorf("batches of two producers: %v", err)
	}
	if l.LogEndOffset() != 3 {
		t.Errorf("log ends at %d", l.LogEndOffset())
	}
}

// A full disk ends in one answer, and what was flushed before is there.
func TestAFullDiskTakesTheDirectoryOffline(t *testing.T) {
	for space := int64(300); space < 6000; space += 171 {
		disk := vfs.NewSim(nil)
		full := vfs.WithHook(disk, vfs.DiskFull(space))
		d, err := OpenDir(full, "data", Identity{ClusterID: "cluster", BrokerID: 1})
		if err != nil {
			continue
		}
		l, _, err := d.Open("orders", [16]byte{1, 2, 3}, 0, testConfig(), 1)
		for n := 0; err == nil; n++ {
			if _, err = l.Append(batchSpec{records: 2, valueSize: 90}.build(), AppendArgs{Now: 1}); err == nil {
				err = flushNow(l)
			}
		}
		if !errors.Is(err, vfs.ErrNoSpace) || !errors.Is(d.Offline(), vfs.ErrNoSpace) {
			t.Fatalf("with %d bytes: %v, directory offline: %v", space, err, d.Offline())
		}
		if l == nil {
			continue
		}
		flushed := l.FlushedOffset()
		_ = d.Close(true, -1)
		again, rep := testOpen(t, testDir(t, disk), testConfig())
		if rep.Clean || again.LogEndOffset() < flushed {
			t.Errorf("with %d bytes: log ends at %d, flushed to %d, clean %v", space, again.LogEndOffset(), flushed, rep.Clean)
		}
	}
}

// As in Kafka: segment.jitter.ms counts only up to segment.ms.
func TestAJitterOverTheAgeDoesNotRollAtEveryAppend(t *testing.T) {
	d := testDir(t, vfs.NewReal(t.TempDir(), nil))
	cfg := testConfig()
	cfg.SegmentMs, cfg.SegmentJitterMs = 1<<40, 1<<62
	l, _ := testOpen(t, d, cfg)
	for i := range 20 {
		b := batchSpec{records: 1, valueSize: 10, timestamp: 1000}.build()
		if a, err := l.Append(b, AppendArgs{Now: 1000}); err != nil || a.Rolled {
			t.Fatalf("append %d: rolled %v, %v", i, a.Rolled, err)
		}
	}
}
