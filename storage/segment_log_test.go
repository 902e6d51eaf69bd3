package storage

import (
	"bytes"
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
			if err := d.Close(true); err != nil {
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
			if err := d.Close(false); err != nil {
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
			if err := d.Close(true); err != nil {
				t.Fatal(err)
			}
		})
	}
}
