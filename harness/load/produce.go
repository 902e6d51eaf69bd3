package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Dial connects to a broker; a test or a slow link puts its own in.
type Dial func(ctx context.Context, addr string) (net.Conn, error)

// DialTCP is the plain Dial.
func DialTCP(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// RawProduce sends prepared batches.
type RawProduce struct {
	Addr string
	// Leaders, when not nil, has the address of each partition's leader: one connection goes to each
	// of them, with the partitions it leads, and Addr and Connections do not count.
	Leaders     []string
	Topic       string
	Partitions  int // 0…Partitions-1, by turns; connection c serves those with p % Connections == c
	Connections int // 0: one
	Acks        int16
	Batches     []Batch // sent by turns
	Depth       int     // requests in flight per connection
	RecordsPerS float64 // of all connections together; 0: closed loop
	Dial        Dial    // nil: DialTCP
	// OnSent and OnAck, when not nil, hear of each batch (its index in Batches); base is
	// the offset it got. Called from one goroutine each, which waits meanwhile.
	OnSent func(partition int32, batch int)
	OnAck  func(partition int32, batch int, base int64)
	// OnStart, when not nil, hears when the first request of a connection is due and how far
	// apart they are; 0 in a closed loop.
	OnStart func(start time.Time, interval time.Duration)
	// Requests, when above zero, ends the run after so many on each connection.
	Requests int64
}

// Stats is what a run did inside its window.
type Stats struct {
	Tick
	Latency *hdrhistogram.Histogram // microseconds from the intended send time
	// Gaps counts answers whose offset was not the one after the last.
	Gaps int64
	// SentBytes, SentPayload and SentBatches are of the whole run, warmup included: batches as they
	// went over the wire, the values in them, their number.
	SentBytes, SentPayload, SentBatches int64
	// Wasted counts fetch answers that were thrown away because the guess of where they start was wrong.
	Wasted int64
}

// BytesPerS is record batch bytes per second of the window.
func (s Stats) BytesPerS() float64 { return perS(s.Bytes, s.Elapsed) }

// RecordsPerS is records per second of the window.
func (s Stats) RecordsPerS() float64 { return perS(s.Records, s.Elapsed) }

func perS(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// Run produces until the window closes, an error or the end of ctx.
func (r RawProduce) Run(ctx context.Context, w *Window) (Stats, error) {
	routes := r.routes()
	r.Connections = len(routes)
	if r.Dial == nil {
		r.Dial = DialTCP
	}
	type outcome struct {
		x   *produceExchange
		lat *hdrhistogram.Histogram
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := make([]outcome, r.Connections)
	var wg sync.WaitGroup
	for c := range r.Connections {
		outcomes[c] = outcome{x: newProduceExchange(&r, routes[c].partitions), lat: NewHistogram()}
		wg.Go(func() {
			o := &outcomes[c]
			if o.err = r.connection(ctx, w, routes[c].addr, o.x, o.lat); o.err != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	w.Stop(time.Now())
	st := Stats{Tick: w.Measured(), Latency: NewHistogram()}
	var errs []error
	for _, o := range outcomes {
		st.Latency.Merge(o.lat)
		st.Gaps += o.x.gaps
		o.x.count(&st)
		errs = append(errs, o.err)
	}
	return st, firstCause(errs)
}

// route is one connection: where to, and for which partitions.
type route struct {
	addr       string
	partitions []int32
}

func (r RawProduce) routes() []route {
	if r.Leaders == nil {
		all := make([]route, max(1, min(r.Connections, r.Partitions)))
		for p := range r.Partitions {
			c := &all[p%len(all)]
			c.partitions = append(c.partitions, int32(p))
		}
		for c := range all {
			all[c].addr = r.Addr
		}
		return all
	}
	var all []route
	for p, addr := range r.Leaders {
		c := slices.IndexFunc(all, func(o route) bool { return o.addr == addr })
		if c < 0 {
			c, all = len(all), append(all, route{addr: addr})
		}
		all[c].partitions = append(all[c].partitions, int32(p))
	}
	return all
}

// firstCause is the error that made the others stop.
func firstCause(errs []error) error {
	var first error
	for _, err := range errs {
		if err != nil && (first == nil || errors.Is(first, context.Canceled)) {
			first = err
		}
	}
	return first
}

func (r *RawProduce) connection(ctx context.Context, w *Window, addr string, x *produceExchange, lat *hdrhistogram.Histogram) error {
	conn, err := r.Dial(ctx, addr)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	p := &pipe{conn: conn, frames: NewFrames(conn, 1<<20), depth: r.Depth, window: w, latency: lat}
	var interval time.Duration
	if r.RecordsPerS > 0 {
		perBatch := float64(x.records) / float64(len(r.Batches)) * float64(r.Connections)
		interval = time.Duration(perBatch / r.RecordsPerS * float64(time.Second))
	}
	p.onStart = func(start time.Time) {
		if r.OnStart != nil {
			r.OnStart(start, interval)
		}
	}
	switch {
	case r.Acks == 0:
		err = p.oneWay(ctx, x, interval,
			func() int64 { return int64(len(r.Batches[x.lastSent].Bytes)) },
			func() int64 { return int64(r.Batches[x.lastSent].Records) })
	case interval > 0:
		err = p.open(ctx, x, interval)
	default:
		err = p.closed(ctx, x)
	}
	if ctx.Err() != nil && err != nil {
		return ctx.Err()
	}
	return err
}

// produceVersion is the version sent: the last before record errors and
// flexible encoding, so that an answer's fields stand at fixed places.
const produceVersion = 7

// produceExchange is one connection's produce requests.
type produceExchange struct {
	r          *RawProduce
	partitions []int32
	frames     [][]byte // one prepared request per batch
	at         int      // where the partition index stands in each
	records    int      // of all batches together

	sent     int64 // by request
	lastSent int   // batch

	acked int64 // by answer
	next  map[int32]int64
	gaps  int64
}

func newProduceExchange(r *RawProduce, partitions []int32) *produceExchange {
	x := &produceExchange{r: r, partitions: partitions, next: map[int32]int64{}}
	x.frames = ProduceFrames(r.Topic, r.Acks, r.Batches)
	for i := range r.Batches {
		x.records += r.Batches[i].Records
	}
	// length 4, header (key 2, version 2, correlation 4, client id 2+8), transactional id 2, acks 2, timeout 4, topics 4, topic 2+n, partitions 4
	x.at = 4 + 8 + 2 + len(clientID) + 2 + 2 + 4 + 4 + 2 + len(r.Topic) + 4
	return x
}

const clientID = "tidemark"

// ProduceFrames gives the requests that RawProduce would send, for a bare loop.
func ProduceFrames(topic string, acks int16, batches []Batch) [][]byte {
	frames := make([][]byte, len(batches))
	for i := range batches {
		frames[i] = produceFrame(topic, acks, batches[i].Bytes)
	}
	return frames
}

func produceFrame(topic string, acks int16, batch []byte) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.Version = produceVersion
	req.Acks = acks
	req.TimeoutMillis = 30_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = batch
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID)).AppendRequest(nil, req, 0)
}

func (x *produceExchange) request() []byte {
	if x.r.Requests > 0 && x.sent >= x.r.Requests {
		return nil
	}
	batch, partition := x.turn(x.sent)
	f := x.frames[batch]
	binary.BigEndian.PutUint32(f[8:], uint32(x.sent))
	binary.BigEndian.PutUint32(f[x.at:], uint32(partition))
	x.sent++
	x.lastSent = batch
	if x.r.OnSent != nil {
		x.r.OnSent(partition, batch)
	}
	return f
}

// count adds what was sent to st.
func (x *produceExchange) count(st *Stats) {
	n := int64(len(x.r.Batches))
	for i := range x.r.Batches {
		times := x.sent / n
		if int64(i) < x.sent%n {
			times++
		}
		st.SentBytes += times * int64(len(x.r.Batches[i].Bytes))
		st.SentPayload += times * int64(x.r.Batches[i].Payload)
	}
	st.SentBatches += x.sent
}

// turn says what the n-th request of the connection carries, and where to.
func (x *produceExchange) turn(n int64) (batch int, partition int32) {
	return int(n % int64(len(x.r.Batches))), x.partitions[n%int64(len(x.partitions))]
}

func (x *produceExchange) answer(frame []byte) (bytes, records int64, err error) {
	batch, partition := x.turn(x.acked)
	base, err := x.parse(frame, partition)
	if err != nil {
		return 0, 0, err
	}
	b := &x.r.Batches[batch]
	if want, seen := x.next[partition]; seen && base != want {
		x.gaps++
	}
	x.next[partition] = base + int64(b.Records)
	x.acked++
	if x.r.OnAck != nil {
		x.r.OnAck(partition, batch, base)
	}
	return int64(len(b.Bytes)), int64(b.Records), nil
}

// parse reads the base offset of a version 7 answer: correlation 4, topics 4,
// topic 2+n, partitions 4, index 4, error 2, base offset 8, append time 8, log start 8, throttle 4.
func (x *produceExchange) parse(frame []byte, partition int32) (base int64, err error) {
	const before, after = 4 + 4 + 2, 4 + 4 + 2 + 8 + 8 + 8 + 4
	if len(frame) != before+len(x.r.Topic)+after {
		return 0, fmt.Errorf("load: a produce answer of %d bytes, expected %d", len(frame), before+len(x.r.Topic)+after)
	}
	if got := binary.BigEndian.Uint32(frame); got != uint32(x.acked) {
		return 0, fmt.Errorf("load: answer %d came where %d was due", got, uint32(x.acked))
	}
	f := frame[before+len(x.r.Topic)+4:]
	if got := int32(binary.BigEndian.Uint32(f)); got != partition {
		return 0, fmt.Errorf("load: answer for partition %d where %d was due", got, partition)
	}
	if err := kerr.ErrorForCode(int16(binary.BigEndian.Uint16(f[4:]))); err != nil {
		return 0, fmt.Errorf("load: produce to %s-%d: %w", x.r.Topic, partition, err)
	}
	return int64(binary.BigEndian.Uint64(f[6:])), nil
}
