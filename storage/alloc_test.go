package storage

import (
	"testing"

	"github.com/tidemark-log/tidemark/internal/need"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// An append and a read allocate nothing, however many batches and records there are.
func TestAppendAndReadAllocateNothing(t *testing.T) {
	if need.RaceDetector {
		t.Skip("counts of allocations say nothing under the race detector")
	}
	for _, offsets := range []OffsetScheme{OffsetsLogical, OffsetsByte} {
		cfg := DefaultLogConfig()
		cfg.Offsets = offsets
		l, _ := testOpen(t, testDir(t, vfs.NewReal(t.TempDir(), nil)), cfg)
		batch := batchSpec{records: 100, valueSize: 100}.build()
		many := make([]byte, 0, 50*len(batch))
		for range 50 {
			many = append(many, batch...)
		}
		appendMany := func() {
			if _, err := l.Append(many, AppendArgs{Now: 1000}); err != nil {
				t.Fatal(err)
			}
		}
		appendMany()
		if n := testing.AllocsPerRun(100, appendMany); n > 0 {
			t.Errorf("offsets %s: append of 50 batches: %v allocations", offsets, n)
		}
		next := int64(0)
		cold := int64(0)
		for name, read := range map[string]func() int64{
			"hot": func() int64 { return next },
			"cold": func() int64 {
				cold = (cold + 7919*int64(len(batch))) % l.LogEndOffset()
				return cold
			},
		} {
			if n := testing.AllocsPerRun(100, func() {
				r, err := l.Read(read(), l.LogEndOffset(), 100_000)
				if err != nil {
					t.Fatal(err)
				}
				next = (next + 6*l.LogEndOffset()/5050) % l.LogEndOffset()
				r.Release()
			}); n > 0 {
				t.Errorf("offsets %s: %s read: %v allocations", offsets, name, n)
			}
		}
	}
}
