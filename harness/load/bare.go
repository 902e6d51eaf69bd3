package load

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// Bare drives a bare loop (harness/limits) with the same code, buffers and
// depth that RawProduce and RawFetch use on a broker, so that what differs is the broker.
type Bare struct {
	Addr string
	// Requests are sent by turns, each a whole frame. Record bytes are taken as its length less 4.
	Requests [][]byte
	// FetchBytes, when above zero, asks for chunks instead: answers of so many bytes out of a file of FileBytes.
	FetchBytes int
	FileBytes  int64
	Depth      int
}

// BareFetchBytes is the length of a chunk request's frame: length 4, correlation 4, offset 8, bytes 4.
const BareFetchBytes = 20

// Run loops until the window closes, an error or the end of ctx.
func (b Bare) Run(ctx context.Context, w *Window) (Stats, error) {
	conn, err := DialTCP(ctx, b.Addr)
	if err != nil {
		return Stats{}, fmt.Errorf("load: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	x := &bareExchange{b: &b, chunk: make([]byte, BareFetchBytes)}
	p := &pipe{conn: conn, frames: NewFrames(conn, b.FetchBytes+4096), depth: b.Depth, window: w, latency: NewHistogram()}
	err = p.closed(ctx, x)
	w.Stop(time.Now())
	if ctx.Err() != nil && err != nil {
		err = ctx.Err()
	}
	return Stats{Tick: w.Measured(), Latency: p.latency}, err
}

type bareExchange struct {
	b              *Bare
	chunk          []byte
	sent, answered uint32
	at             int64
}

func (x *bareExchange) request() []byte {
	frame := x.chunk
	if x.b.FetchBytes == 0 {
		frame = x.b.Requests[int(x.sent)%len(x.b.Requests)]
		binary.BigEndian.PutUint32(frame[8:], x.sent)
	} else {
		if x.at+int64(x.b.FetchBytes) > x.b.FileBytes {
			x.at = 0
		}
		binary.BigEndian.PutUint32(frame, BareFetchBytes-4)
		binary.BigEndian.PutUint32(frame[4:], x.sent)
		binary.BigEndian.PutUint64(frame[8:], uint64(x.at))
		binary.BigEndian.PutUint32(frame[16:], uint32(x.b.FetchBytes))
		x.at += int64(x.b.FetchBytes)
	}
	x.sent++
	return frame
}

func (x *bareExchange) answer(frame []byte) (bytes, records int64, err error) {
	n := int64(x.b.FetchBytes)
	if n == 0 {
		n = int64(len(x.b.Requests[int(x.answered)%len(x.b.Requests)])) - 4
	} else if int64(len(frame)) != n+4 {
		return 0, 0, fmt.Errorf("load: a chunk of %d bytes, asked for %d", len(frame)-4, n)
	}
	x.answered++
	return n, 0, nil
}
