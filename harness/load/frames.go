package load

import (
	"encoding/binary"
	"fmt"
	"io"
)

// peek is how far a read may run past the end of the frame it is for: enough to
// take many small answers in one call, little enough that moving the surplus
// to the front costs nothing beside a large frame.
const peek = 4096

// Frames cuts a stream into Kafka frames (int32 length, then that many bytes)
// inside one buffer.
type Frames struct {
	r        io.Reader
	buf      []byte
	from, to int // unread bytes of buf
	max      int // a longer frame is an error
}

// NewFrames reads frames of at most maxFrame bytes from r.
func NewFrames(r io.Reader, maxFrame int) *Frames {
	return &Frames{r: r, buf: make([]byte, 4+maxFrame+peek), max: maxFrame}
}

// Next gives the next frame without its length. It is valid until the next call.
func (f *Frames) Next() ([]byte, error) {
	if err := f.fill(4); err != nil {
		return nil, err
	}
	n := int(int32(binary.BigEndian.Uint32(f.buf[f.from:])))
	if n < 4 || n > f.max {
		return nil, fmt.Errorf("load: a frame of %d bytes, the longest expected is %d", n, f.max)
	}
	if err := f.fill(4 + n); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	frame := f.buf[f.from+4 : f.from+4+n]
	f.from += 4 + n
	return frame, nil
}

// fill reads until n unread bytes are there.
func (f *Frames) fill(n int) error {
	if f.to-f.from >= n {
		return nil
	}
	copy(f.buf, f.buf[f.from:f.to])
	f.from, f.to = 0, f.to-f.from
	for f.to < n {
		m, err := f.r.Read(f.buf[f.to:min(len(f.buf), n+peek)])
		f.to += m
		if err != nil && f.to < n {
			return err
		}
	}
	return nil
}
