package storage

import (
	"math/rand/v2"
	"testing"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// The search must find what a walk over all entries finds, in indexes of any
// length and with any spacing, whether entries are written or still gathered.
func TestAnIndexSearchFindsTheLastEntryAtMost(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 63, 64, 500, 511, 512, 513, 700, 1025, 3000, 20_000} {
		for _, spread := range []func(i int) int64{
			func(int) int64 { return 1 + rng.Int64N(2) },
			func(int) int64 { return 1 + rng.Int64N(5000) },
			func(i int) int64 { return 1 + int64(i/1000)*rng.Int64N(1000) },
		} {
			disk := vfs.NewSim(nil)
			reads := 0
			fs := vfs.WithHook(disk, func(op vfs.Op) error {
				if op.Kind == vfs.OpRead {
					reads++
				}
				return nil
			})
			x := &index{name: "x.index", width: offsetEntrySize}
			if err := x.load(fs); err != nil {
				t.Fatal(err)
			}
			fields := make([]int64, n)
			last := int64(0)
			for i := range fields {
				last += spread(i)
				fields[i] = last
				if x.full() {
					if _, err := x.writeOut(fs, true); err != nil {
						t.Fatal(err)
					}
				}
				x.appendOffset(int32(last), int64(i))
			}
			var buf indexBuf
			searches := 0
			reads = 0
			for range 300 {
				target := rng.Int64N(last+10) - 2
				want := -1
				for want+1 < n && fields[want+1] <= target {
					want++
				}
				slot, e, err := x.search(&buf, entryOffset, target)
				if err != nil || slot != want || (want >= 0 && (entryOffset(e) != fields[want] || entryPos(e) != int64(want))) {
					t.Fatalf("%d entries, target %d: slot %d %v, want %d", n, target, slot, err, want)
				}
				searches++
			}
			if perSearch := float64(reads) / float64(searches); perSearch > 12 {
				t.Errorf("%d entries: %.1f reads a search", n, perSearch)
			}
		}
	}
}

// A producer that sends many batches within a millisecond must not cost a read of
// the time index each.
func TestAppendsOfOneTimestampReadNothing(t *testing.T) {
	reads := 0
	fs := vfs.WithHook(vfs.NewSim(nil), func(op vfs.Op) error {
		if op.Kind == vfs.OpRead {
			reads++
		}
		return nil
	})
	cfg := testConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 1<<20, 0 // an index entry for each batch
	l, _ := testOpen(t, testDir(t, fs), cfg)
	reads = 0
	for range 3 * indexTailMax {
		testAppend(t, l, batchSpec{timestamp: 5})
	}
	if reads > 1 {
		t.Errorf("%d appends made %d reads", 3*indexTailMax, reads)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
