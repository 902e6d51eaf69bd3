package record

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// batchOf makes a batch of about size bytes of 100-byte records, half compressible.
func batchOf(c Codec, size int) []byte {
	rng := rand.New(rand.NewPCG(7, 7))
	b := NewBuilder(c)
	value := make([]byte, 90)
	for b.Size()+100 <= size {
		for i := range value[:45] {
			value[i] = byte(rng.Uint32())
		}
		b.Append(sampleTs, nil, value)
	}
	return b.Build(nil)
}

// bytes/s are of uncompressed records.
func BenchmarkValidate(b *testing.B) {
	for _, level := range []Level{LevelBatch, LevelRecords} {
		for _, c := range codecs {
			if level == LevelBatch && c != None {
				continue // the same work
			}
			for _, size := range []int{64 << 10, 1 << 20} {
				name := map[Level]string{LevelBatch: "batch", LevelRecords: "records"}[level]
				b.Run(fmt.Sprintf("level=%s/codec=%s/size=%dKiB", name, c, size>>10), func(b *testing.B) {
					raw := batchOf(c, size)
					lim := Limits{BatchBytesMax: 2 << 20, DecompressedBytesMax: 16 << 20}
					b.SetBytes(int64(size))
					b.ReportAllocs()
					for b.Loop() {
						if _, err := Validate(raw, level, lim); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

func TestValidateAllocatesNothingAtLevelBatch(t *testing.T) {
	raw := batchOf(LZ4, 64<<10)
	plain := batchOf(None, 64<<10)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := Validate(raw, LevelBatch, roomy); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("LevelBatch: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := Validate(plain, LevelRecords, roomy); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("LevelRecords of an uncompressed batch: %v allocations", n)
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, c := range codecs {
		b.Run("codec="+c.String(), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(7, 7))
			value := make([]byte, 90)
			for i := range value[:45] {
				value[i] = byte(rng.Uint32())
			}
			bld := NewBuilder(c)
			var out []byte
			b.SetBytes(64 << 10)
			b.ReportAllocs()
			for b.Loop() {
				bld.Reset()
				for bld.Size()+100 <= 64<<10 {
					bld.Append(sampleTs, nil, value)
				}
				out = bld.Build(out[:0])
			}
		})
	}
}
