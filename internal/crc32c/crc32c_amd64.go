//go:build !purego

package crc32c

import "golang.org/x/sys/cpu"

// fold and foldWide differ in the size of their vectors; the one with the larger is used where the processor has it.
const narrow, wide = 16, 32 // bytes

// stepVectors is what one step takes, in vectors: four folded, and one's length in each of three lanes.
const stepVectors = 4 + 3

// constants are the multipliers of a fold, x^n mod P for some n: a pair is for the low and the high
// half of 16 bytes, and stands there as often as a vector has 16 bytes. fold_amd64.s knows the layout.
type constants struct {
	overStep   [4]uint64 // over four vectors
	overVector [4]uint64
	over16     [2]uint64 // over 16 bytes
	shift      uint64    // a remainder past one lane
}

// folding is what there is to fold with: the size of vectors, and the lengths of the blocks that
// are folded, longest first: the last multiplier depends on the length, and is made once.
type folding struct {
	vector int
	blocks [3]block
}

type block struct {
	bytes int
	c     constants
}

func foldingWith(vector int) folding {
	f := folding{vector: vector}
	for i, bytes := range [...]int{57344, 7168, 896} {
		f.blocks[i] = block{bytes, constantsFor(bytes, vector)}
	}
	return f
}

var (
	fast = cpu.X86.HasPCLMULQDQ && cpu.X86.HasSSE42 && cpu.X86.HasSSE41
	best = foldingWith(vectorBytes())
)

func vectorBytes() int {
	// AVX2 says too that the operating system keeps the upper halves.
	if cpu.X86.HasAVX2 && hasVPCLMULQDQ() {
		return wide
	}
	return narrow
}

// hasVPCLMULQDQ: package cpu tells it of processors with AVX-512 alone.
//
//go:noescape
func hasVPCLMULQDQ() bool

// fold takes k steps with 16-byte vectors at p. crc is without the inversions that
// frame a checksum.
//
//go:noescape
func fold(crc uint32, p *byte, k int, c *constants) uint32

// foldWide is fold with 32-byte vectors.
//
//go:noescape
func foldWide(crc uint32, p *byte, k int, c *constants) uint32

// updateLarge takes what it can from the front of p.
func updateLarge(crc uint32, p []byte) (uint32, []byte) {
	if !fast || len(p) < best.blocks[len(best.blocks)-1].bytes {
		return crc, p
	}
	crc = ^crc
	for i := range best.blocks {
		b := &best.blocks[i]
		for ; len(p) >= b.bytes; p = p[b.bytes:] {
			if best.vector == wide {
				crc = foldWide(crc, &p[0], b.bytes/(stepVectors*wide), &b.c)
			} else {
				crc = fold(crc, &p[0], b.bytes/(stepVectors*narrow), &b.c)
			}
		}
	}
	return ^crc, p
}

// constantsFor gives the multipliers for a block of so many bytes with vectors of so many.
//
// Bits are reflected: bit 31 of a remainder is x^0. A remainder in the low half of
// a 64-bit word then stands for itself times x^32, and the product of two
// reflected words comes out one bit low, that is times x. So to multiply by x^n,
// n less 33 goes into the constant. The low half of a vector comes first in
// the message: it has 64 bits further to go.
func constantsFor(bytes, vector int) constants {
	over := func(bytes int) (low, high uint64) { return power(8*bytes + 64 - 33), power(8*bytes - 33) }
	var c constants
	c.overStep[0], c.overStep[1] = over(4 * vector)
	c.overVector[0], c.overVector[1] = over(vector)
	c.over16[0], c.over16[1] = over(16)
	c.shift = power(8*bytes/stepVectors - 33)
	copy(c.overStep[2:], c.overStep[:2])
	copy(c.overVector[2:], c.overVector[:2])
	return c
}

// power is x^n modulo the Castagnoli polynomial, reflected.
func power(n int) uint64 {
	const reflected = 0x82f63b78
	r := uint32(1) << 31
	for range n {
		r = r>>1 ^ reflected*(r&1)
	}
	return uint64(r)
}
