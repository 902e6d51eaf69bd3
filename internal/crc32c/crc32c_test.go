package crc32c

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

func random(n int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// TestEveryLengthAndAlignment: lengths around every block and its sums.
func TestEveryLengthAndAlignment(t *testing.T) {
	data := random(140_000)
	var lengths []int
	for n := range 2000 {
		lengths = append(lengths, n)
	}
	for _, n := range []int{7168, 2 * 7168, 57344, 57344 + 7168 + 896, 65536, 2 * 57344, 131072} {
		for d := -20; d <= 20; d++ {
			lengths = append(lengths, n+d)
		}
	}
	for i, n := range lengths {
		p := data[i%33:][:n]
		for _, before := range []uint32{0, 1, 0xffffffff, 0x12345678} {
			if got, want := Update(before, p), crc32.Update(before, table, p); got != want {
				t.Fatalf("%d bytes at %d after %#x: %#x, want %#x", n, i%33, before, got, want)
			}
		}
	}
}

// TestEveryBitCounts: a checksum that skipped a byte would pass over damage there.
func TestEveryBitCounts(t *testing.T) {
	data := random(7168 + 896 + 50)
	good := Checksum(data)
	for i := range data {
		data[i] ^= 1 << (i % 8)
		if Checksum(data) == good {
			t.Fatalf("a flipped bit in byte %d is not seen", i)
		}
		data[i] ^= 1 << (i % 8)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	data := random(1 << 16)
	if n := testing.AllocsPerRun(10, func() { Checksum(data) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzUpdate(f *testing.F) {
	f.Add(uint32(0), []byte("123456789"), uint16(300), uint8(0))
	f.Add(^uint32(0), random(500), uint16(3), uint8(7))
	f.Fuzz(func(t *testing.T, before uint32, seed []byte, times uint16, skip uint8) {
		var p []byte
		for range times % 400 {
			p = append(p, seed...)
			if len(p) > 300_000 {
				break
			}
		}
		p = p[min(len(p), int(skip)):]
		if got, want := Update(before, p), crc32.Update(before, table, p); got != want {
			t.Fatalf("%d bytes after %#x: %#x, want %#x", len(p), before, got, want)
		}
	})
}

func BenchmarkChecksum(b *testing.B) {
	for _, n := range []int{100, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20} {
		data := random(n)
		for _, f := range []struct {
			name string
			sum  func([]byte) uint32
		}{{"ours", Checksum}, {"stdlib", func(p []byte) uint32 { return crc32.Checksum(p, table) }}} {
			b.Run(fmt.Sprintf("bytes=%d/of=%s", n, f.name), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					f.sum(data)
				}
			})
		}
	}
}
