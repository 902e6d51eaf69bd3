//go:build !purego

package crc32c

import "golang.org/x/sys/cpu"

// stepBytes is what one step of fold takes: 64 bytes folded, 16 in each of three lanes.
const stepBytes = 64 + 3*16

// constants are the multipliers of fold, x^n mod P for some n. fold_amd64.s knows the layout.
type constants struct {
	by64  [2]uint64 // fold a 16-byte vector over 64 bytes: for its low and its high half
	by16  [2]uint64 // over 16 bytes
	shift uint64    // a remainder past one lane
}

// blocks are the lengths that fold is used at, in steps, longest first: the last
// multiplier depends on the length, and is made once. 57 KB, 7 KB and 900 bytes.
var blocks = [...]struct {
	steps int
	c     constants
}{{512, constantsFor(512)}, {64, constantsFor(64)}, {8, constantsFor(8)}}

var fast = cpu.X86.HasPCLMULQDQ && cpu.X86.HasSSE42 && cpu.X86.HasSSE41

// fold takes k steps: k*stepBytes bytes at p. crc is without the inversions that
// frame a checksum.
//
//go:noescape
func fold(crc uint32, p *byte, k int, c *constants) uint32

// updateLarge takes what it can from the front of p.
func updateLarge(crc uint32, p []byte) (uint32, []byte) {
	if !fast || len(p) < blocks[len(blocks)-1].steps*stepBytes {
		return crc, p
	}
	crc = ^crc
	for i := range blocks {
		b := &blocks[i]
		for n := b.steps * stepBytes; len(p) >= n; p = p[n:] {
			crc = fold(crc, &p[0], b.steps, &b.c)
		}
	}
	return ^crc, p
}

// constantsFor gives the multipliers for a block of so many steps.
//
// Bits are reflected: bit 31 of a remainder is x^0. A remainder in the low half of
// a 64-bit word then stands for itself times x^32, and the product of two
// reflected words comes out one bit low, that is times x. So to multiply by x^n,
// n less 33 goes into the constant. The low half of a vector comes first in
// the message: it has 64 bits further to go.
func constantsFor(steps int) constants {
	return constants{
		by64:  [2]uint64{power(512 + 64 - 33), power(512 - 33)},
		by16:  [2]uint64{power(128 + 64 - 33), power(128 - 33)},
		shift: power(8*16*steps - 33),
	}
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
