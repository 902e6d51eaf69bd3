package server

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Receive buffers. A connection owns smallBufferBytes for as long as it lives.
// Anything larger comes from shared pools when bytes have arrived that need it,
// and goes back when its frame is handled and nothing else has arrived. So idle
// connections are cheap and a busy one reads each frame with one system call
// into memory that is still in the processor's cache.
const (
	smallBufferBytes = 4 << 10
	largeClassMin    = 16 // 64 KiB: the smallest pooled buffer
	largeClassMax    = 30 // 1 GiB: more than any socket.request.max.bytes makes sense for

	// hintBytesMax is the most memory that a connection gets in expectation of
	// another frame like its last; more only follows bytes that have arrived.
	hintBytesMax = 2 << 20
)

// bufferPool hands out buffers in powers of two and bounds what is out at once.
type bufferPool struct {
	max   int64        // bytes lent at most (queued.max.request.bytes)
	lent  atomic.Int64 // bytes
	class [largeClassMax + 1]sync.Pool

	waiting atomic.Int64 // connections that wait for a buffer to come back
	mu      sync.Mutex
	back    chan struct{} // closed when one does; nil when nobody waits
}

// get lends a buffer of at least n bytes, or nil when that would pass the bound.
func (p *bufferPool) get(n int) *[]byte {
	class := max(largeClassMin, bits.Len(uint(n-1)))
	if class > largeClassMax {
		return nil
	}
	size := int64(1) << class
	if p.lent.Add(size) > p.max {
		p.lent.Add(-size)
		return nil
	}
	if b, ok := p.class[class].Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, size)
	return &b
}

// wait returns when a buffer has come back since the call, or after d, or at the end.
func (p *bufferPool) wait(d time.Duration, end <-chan struct{}) {
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	p.mu.Lock()
	if p.back == nil {
		p.back = make(chan struct{})
	}
	back := p.back
	p.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-back:
	case <-timer.C:
	case <-end:
	}
}

func (p *bufferPool) put(b *[]byte) {
	p.lent.Add(-int64(len(*b)))
	p.class[bits.Len(uint(len(*b)-1))].Put(b)
	if p.waiting.Load() > 0 {
		p.mu.Lock()
		if p.back != nil {
			close(p.back)
			p.back = nil
		}
		p.mu.Unlock()
	}
}

// recvBuffer turns a stream of bytes into frames.
//
// Invariant: buf[start:end] are bytes received and not yet handed out.
type recvBuffer struct {
	small      []byte  // always there
	large      *[]byte // from the pool, or nil
	buf        []byte  // small or *large
	start, end int
	hint       int // bytes of recent frames (it decays): how much to read into when the next length is unknown
	pool       *bufferPool
	requestMax int // socket.request.max.bytes
}

func newRecvBuffer(pool *bufferPool, requestMax int) recvBuffer {
	small := make([]byte, smallBufferBytes)
	return recvBuffer{small: small, buf: small, pool: pool, requestMax: requestMax}
}

// frame gives the next whole frame without its length prefix, or nil when more
// bytes are needed. The frame is the caller's until the next call of any method.
func (r *recvBuffer) frame() ([]byte, error) {
	if r.end-r.start < lengthBytes {
		return nil, nil
	}
	n, err := frameLength(r.buf[r.start:], r.requestMax)
	if err != nil {
		return nil, err
	}
	if r.end-r.start < lengthBytes+n {
		return nil, nil
	}
	frame := r.buf[r.start+lengthBytes : r.start+lengthBytes+n]
	r.start += lengthBytes + n
	r.hint = max(lengthBytes+n, r.hint-r.hint/8)
	return frame, nil
}

// space gives the memory to read into next.
//
// Of a frame whose length is known it asks for just the rest, and the length
// prefix after it: a pipelining client's next frame then starts with four bytes
// to move instead of half a buffer. Small frames are read as many as fit.
// Memory grows with the bytes that came (it at most doubles), never by a claim.
func (r *recvBuffer) space() ([]byte, error) {
	if r.start == r.end {
		r.start, r.end = 0, 0
	}
	want := max(smallBufferBytes, min(r.hint+lengthBytes, hintBytesMax))
	if r.end-r.start >= lengthBytes {
		n, err := frameLength(r.buf[r.start:], r.requestMax)
		if err != nil {
			return nil, err
		}
		want = max(smallBufferBytes, lengthBytes+n+lengthBytes)
	}
	if want > len(r.buf) {
		if err := r.grow(want); err != nil {
			return nil, err
		}
	}
	if r.start > 0 && r.start+want > len(r.buf) {
		r.end = copy(r.buf, r.buf[r.start:r.end])
		r.start = 0
	}
	return r.buf[r.end:min(len(r.buf), r.start+want)], nil
}

// grow moves to a larger buffer when the present one is full: of the size
// wanted, but at most twice what has arrived.
func (r *recvBuffer) grow(want int) error {
	have := r.end - r.start
	size := min(want, max(2*have, min(r.hint+lengthBytes, hintBytesMax)))
	if size <= len(r.buf) && have < len(r.buf) {
		return nil // there is room yet
	}
	b := r.pool.get(max(size, len(r.buf)+1))
	if b == nil {
		return errBufferBudget
	}
	end := copy(*b, r.buf[r.start:r.end])
	r.release()
	r.large, r.buf, r.start, r.end = b, *b, 0, end
	return nil
}

// received notes that n bytes were read into the last space.
func (r *recvBuffer) received(n int) { r.end += n }

// park gives the large buffer back before a wait of unknown length; it may do
// so only between frames.
func (r *recvBuffer) park() {
	if r.start == r.end {
		r.release()
	}
}

// release goes back to the small buffer. The caller has moved what it needs.
func (r *recvBuffer) release() {
	if r.large != nil {
		r.pool.put(r.large)
	}
	r.large, r.buf, r.start, r.end = nil, r.small, 0, 0
}
