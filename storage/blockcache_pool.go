package storage

import (
	"math/bits"
	"sync"
)

// pooledBytes is a buffer that a region holds until its Release. Buffers come in
// powers of two and are aligned for direct I/O; the garbage collector bounds
// what the pool keeps, and the requests in flight bound what is out of it.
type pooledBytes struct {
	data  []byte
	class int
}

const (
	pooledMinBits = 12 // the smallest class, 4 KiB
	pooledMaxBits = 26 // the largest, 64 MiB; what is larger is not pooled
)

var bytesPools [pooledMaxBits + 1]sync.Pool

// newPooledBytes gives a buffer with room for n bytes. Its content is arbitrary.
func newPooledBytes(n int) *pooledBytes {
	class := max(bits.Len(uint(max(n, 1)-1)), pooledMinBits)
	if class > pooledMaxBits {
		return &pooledBytes{data: alignedBytes(n), class: class}
	}
	if p, ok := bytesPools[class].Get().(*pooledBytes); ok {
		return p
	}
	return &pooledBytes{data: alignedBytes(1 << class), class: class}
}

func (p *pooledBytes) unpin() {
	if p.class <= pooledMaxBits {
		bytesPools[p.class].Put(p)
	}
}
