package coord

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// ranges looks for entries anywhere in the bytes of a journal. Behind a torn entry nobody knows where
// the next begins, and what stands there may be a client's data, made of nothing but beginnings of long
// entries. To compute the CRC of each would take the square of the file's size: a client
// could keep the service from starting. So the CRC of any stretch is put together from those of what lies before its ends.
type ranges struct {
	b      []byte
	upTo   []uint32 // CRC of b[:i*rangeStep]
	hashed int64    // bytes that went through the CRC, for the test
}

// rangeStep is how far the known CRCs lie apart: each costs 4 bytes of memory, and each end of a stretch up to so many bytes of work.
const rangeStep = 64

func newRanges(b []byte) *ranges {
	r := &ranges{b: b, upTo: make([]uint32, len(b)/rangeStep+1)}
	for i := range len(r.upTo) - 1 {
		r.upTo[i+1] = r.update(r.upTo[i], b[i*rangeStep:(i+1)*rangeStep])
	}
	return r
}

func (r *ranges) update(crc uint32, p []byte) uint32 {
	r.hashed += int64(len(p))
	return crc32.Update(crc, castagnoli, p)
}

// before is the CRC of b[:i].
func (r *ranges) before(i int) uint32 {
	k := i / rangeStep
	return r.update(r.upTo[k], r.b[k*rangeStep:i])
}

// checksum is the CRC of b[from:to]. That of b[:to] is that of b[:from], as if so many zeros had followed, plus the one we want.
func (r *ranges) checksum(from, to int) uint32 {
	return r.before(to) ^ multiply(r.before(from), xToTheBytes(to-from))
}

// vouchedFor is true when a good entry after pos says that pos was on disk.
func (r *ranges) vouchedFor(pos int64) bool {
	var magic [4]byte
	binary.BigEndian.PutUint32(magic[:], journalMagic)
	for at := int(pos) + 1; ; at++ {
		next := bytes.Index(r.b[at:], magic[:])
		if next < 0 {
			return false
		}
		at += next
		e, n, why := readHeader(r.b[at:])
		if why == "" && e.durable > pos && r.checksum(at+12, at+n) == e.crc {
			return true
		}
	}
}

// Polynomials over GF(2) of degree 31 at most, modulo Castagnoli's, as CRCs write them: the highest bit is that of x^0.

// multiply is a*b.
func multiply(a, b uint32) uint32 {
	var product uint32
	for ; a != 0; a <<= 1 {
		if a>>31 != 0 {
			product ^= b
		}
		b = b>>1 ^ -(b&1)&crc32.Castagnoli // times x
	}
	return product
}

// bytePowers[k][d] is x^(8·d·256^k): so many zero bytes.
var bytePowers = func() (p [4][256]uint32) {
	step := uint32(1) << (31 - 8) // x^8
	for k := range p {
		p[k][0] = 1 << 31
		for d := 1; d < 256; d++ {
			p[k][d] = multiply(p[k][d-1], step)
		}
		step = multiply(p[k][255], step)
	}
	return p
}()

// xToTheBytes is x^(8n), for a stretch of n bytes; a journal has fewer than 2^32.
func xToTheBytes(n int) uint32 {
	power := bytePowers[0][n&0xff]
	for k := 1; n>>(8*k) != 0; k++ {
		power = multiply(power, bytePowers[k][n>>(8*k)&0xff])
	}
	return power
}
