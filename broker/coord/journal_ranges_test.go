package coord

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

func TestTheCRCOfAnyStretchIsPutTogether(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, rangeStep - 1, rangeStep, rangeStep + 1, 1000, 70_000} {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		r := newRanges(b)
		for range 300 {
			from := rng.IntN(size + 1)
			to := from + rng.IntN(size-from+1)
			if got, want := r.checksum(from, to), crc32.Checksum(b[from:to], castagnoli); got != want {
				t.Fatalf("%d bytes, [%d, %d): %08x, want %08x", size, from, to, got, want)
			}
		}
	}
	for _, n := range []int{1 << 16, 1<<24 + 3, 1<<31 - 1} { // longer than what is tried above
		want := uint32(1) << 31
		for i, square := 0, uint32(1)<<23; n>>i != 0; i++ {
			if n>>i&1 != 0 {
				want = multiply(want, square)
			}
			square = multiply(square, square)
		}
		if got := xToTheBytes(n); got != want {
			t.Errorf("x^(8·%d): %08x, want %08x", n, got, want)
		}
	}
}

// A torn entry's data may be a client's, and made to look like beginnings of entries that go on to the end, each
// 8 bytes behind the last, each of which says that the torn one was on disk. To look through them takes work in proportion to their bytes, and finds the entry that is none of them.
func TestATornTailOfBeginningsOfEntriesIsReadInLinearTime(t *testing.T) {
	for _, vouched := range []bool{false, true} {
		const pos = 40
		b := bytes.Repeat([]byte{7}, pos)
		head := binary.BigEndian.AppendUint32(nil, journalMagic)
		const size = 1 << 20
		for len(b) < size {
			left := size - len(b)
			b = append(b, head...)
			b = binary.BigEndian.AppendUint32(b, uint32(max(0, left-entryHeaderSize)))
			// The next one's magic and length are this one's CRC and prev, and its "durable", which so is any.
		}
		if vouched {
			at := len(b)
			b = append(beginEntry(b), "a body"...)
			endEntry(b, at, entryTxn, 1, 2, pos+1)
		}
		r := newRanges(b)
		if got := r.vouchedFor(pos); got != vouched {
			t.Errorf("vouched for: %t", got)
		}
		if per := float64(r.hashed) / float64(len(b)); per > 1+2*rangeStep/8 {
			t.Errorf("%.0f bytes were hashed for each byte of the file", per)
		}
	}
}
