package load

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"
)

// RawSeek fetches one batch at a time at random offsets of one partition.
type RawSeek struct {
	Addr      string
	Topic     string
	Partition int32
	From, To  int64 // offsets asked for, half-open
	Seed      uint64
	Requests  int64 // 0: until the window closes
}

// Run seeks until the window closes, an error or the end of ctx.
func (r RawSeek) Run(ctx context.Context, w *Window) (Stats, error) {
	if r.To <= r.From {
		return Stats{}, fmt.Errorf("load: seek in the empty range %d to %d", r.From, r.To)
	}
	conn, err := DialTCP(ctx, r.Addr)
	if err != nil {
		return Stats{}, fmt.Errorf("load: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	// max bytes of 1: a broker gives the one batch that holds the offset
	x := &seekExchange{f: newFetchExchange(&RawFetch{Topic: r.Topic, FetchBytes: 1}, r.Partition), r: &r, rng: NewRand(r.Seed, 0x5eec)}
	p := &pipe{conn: conn, frames: NewFrames(conn, 16<<20), depth: 1, window: w, latency: NewHistogram()}
	err = p.closed(ctx, x)
	w.Stop(time.Now())
	if ctx.Err() != nil && err != nil {
		err = ctx.Err()
	}
	return Stats{Tick: w.Measured(), Latency: p.latency, Gaps: x.f.gaps}, err
}

type seekExchange struct {
	f   *fetchExchange
	r   *RawSeek
	rng *rand.Rand
}

func (x *seekExchange) request() []byte {
	f := x.f
	if x.r.Requests > 0 && int64(f.sent) >= x.r.Requests {
		return nil
	}
	f.next = x.r.From + x.rng.Int64N(x.r.To-x.r.From)
	binary.BigEndian.PutUint32(f.frame[8:], f.sent)
	binary.BigEndian.PutUint64(f.frame[f.at:], uint64(f.next))
	f.sent++
	return f.frame
}

func (x *seekExchange) answer(frame []byte) (bytes, records int64, err error) {
	batches, _, err := x.f.parse(frame)
	x.f.received++
	if err != nil {
		return 0, 0, err
	}
	asked := x.f.next
	bytes, records, after, err := x.f.walk(batches)
	if err == nil && after <= asked {
		err = fmt.Errorf("load: %s-%d: a fetch at offset %d gave nothing", x.r.Topic, x.r.Partition, asked)
	}
	return bytes, records, err
}
