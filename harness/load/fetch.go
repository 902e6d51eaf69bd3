package load

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/storage/record"
)

// RawFetch reads partitions from an offset on, parsing batch headers and
// nothing else.
type RawFetch struct {
	Addr       string
	Topic      string
	Partitions int // one connection each
	From       int64
	// To ends a partition when it is reached (exclusive); 0: the end of the log at the first answer.
	To int64
	// Loop begins again at From when To is reached, until the window closes.
	Loop       bool
	FetchBytes int
	Depth      int // requests in flight per connection
	Verify     bool
	Dial       Dial
	// OnBatch, when not nil, hears of each batch in order. The bytes are valid during the call.
	OnBatch func(partition int32, h record.Header, batch []byte)
	// MaxWait is how long the broker may hold a fetch at the end of the log.
	MaxWait time.Duration
	// Follow waits at the end of the log for more, until the window closes or ctx ends.
	Follow bool
}

// Run fetches until every partition is at its end or the window closes.
func (r RawFetch) Run(ctx context.Context, w *Window) (Stats, error) {
	if r.Dial == nil {
		r.Dial = DialTCP
	}
	r.Depth = max(1, r.Depth)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	exchanges := make([]*fetchExchange, max(1, r.Partitions))
	lats := make([]*hdrhistogram.Histogram, len(exchanges))
	errs := make([]error, len(exchanges))
	var wg sync.WaitGroup
	for p := range exchanges {
		exchanges[p], lats[p] = newFetchExchange(&r, int32(p)), NewHistogram()
		wg.Go(func() {
			if errs[p] = r.connection(ctx, w, exchanges[p], lats[p]); errs[p] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	w.Stop(time.Now())
	st := Stats{Tick: w.Measured(), Latency: NewHistogram()}
	for p, x := range exchanges {
		st.Latency.Merge(lats[p])
		st.Gaps += x.gaps
		st.Wasted += x.wasted
	}
	return st, firstCause(errs)
}

func (r *RawFetch) connection(ctx context.Context, w *Window, x *fetchExchange, lat *hdrhistogram.Histogram) error {
	conn, err := r.Dial(ctx, r.Addr)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	// One batch may be larger than FetchBytes and still has to come.
	p := &pipe{conn: conn, frames: NewFrames(conn, max(r.FetchBytes, 16<<20)+4096), depth: r.Depth, window: w, latency: lat}
	err = p.closed(ctx, x)
	if ctx.Err() != nil && err != nil {
		return ctx.Err()
	}
	return err
}

// fetchVersion is the version sent: the last with topic names and fixed-size fields.
const fetchVersion = 11

// fetchExchange reads one partition with several fetches in flight. Where the
// next fetch starts is known only once the last answer is in, so it guesses
// that each answer holds as many offsets as the one before. After a wrong guess
// the answers still under way are thrown away and counted as wasted.
type fetchExchange struct {
	r         *RawFetch
	partition int32
	frame     []byte
	at        int // where the fetch offset stands in frame

	asked    []int64 // offsets of what is in flight, oldest first
	next     int64   // the offset that must come next
	ask      int64   // the offset to ask for next
	stride   int64   // offsets in the fullest answer so far; 0: unknown, so one fetch at a time
	end      int64   // where reading stops, exclusive; -1: not known before the first answer
	sent     uint32
	received uint32

	gaps, wasted int64
	stalled      int // empty answers in a row
}

func newFetchExchange(r *RawFetch, partition int32) *fetchExchange {
	req := kmsg.NewPtrFetchRequest()
	req.Version = fetchVersion
	req.MaxWaitMillis = int32(r.MaxWait.Milliseconds())
	req.MinBytes = 1
	req.MaxBytes = int32(r.FetchBytes)
	req.SessionEpoch = -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = r.Topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition = partition
	p.FetchOffset = r.From
	p.PartitionMaxBytes = int32(r.FetchBytes)
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	x := &fetchExchange{r: r, partition: partition, next: r.From, ask: r.From, end: -1}
	if r.To > 0 {
		x.end = r.To
	}
	x.frame = kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID)).AppendRequest(nil, req, 0)
	// after the offset: log start offset 8, max bytes 4, forgotten topics 4, rack 2
	x.at = len(x.frame) - 2 - 4 - 4 - 8 - 8
	return x
}

func (x *fetchExchange) request() []byte {
	if len(x.asked) > 0 && x.stride == 0 {
		return nil // one answer first, to learn the stride
	}
	if x.end >= 0 && x.ask >= x.end {
		switch {
		case x.r.Loop && x.end > x.r.From:
			x.ask = x.r.From
		case !x.r.Follow || len(x.asked) > 0:
			return nil
		default:
			x.ask = x.next
		}
	}
	binary.BigEndian.PutUint32(x.frame[8:], x.sent)
	binary.BigEndian.PutUint64(x.frame[x.at:], uint64(x.ask))
	x.asked = append(x.asked, x.ask)
	x.sent++
	x.ask += x.stride
	return x.frame
}

func (x *fetchExchange) answer(frame []byte) (bytes, records int64, err error) {
	offset := x.asked[0]
	x.asked = x.asked[:copy(x.asked, x.asked[1:])]
	batches, high, err := x.parse(frame)
	x.received++
	if err != nil {
		return 0, 0, err
	}
	if x.r.To == 0 {
		x.end = high
	}
	if offset != x.next {
		x.wasted++
		return 0, 0, nil
	}
	bytes, records, after, err := x.walk(batches)
	if err != nil {
		return 0, 0, err
	}
	if err := x.progress(records); err != nil {
		return 0, 0, err
	}
	x.stride = max(x.stride, after-x.next)
	x.next = after
	if x.r.Loop && x.next >= x.end {
		x.next = x.r.From
	}
	if len(x.asked) == 0 || x.asked[0] != x.next {
		x.ask = x.next // nothing is under way, or it starts at the wrong place (a segment ended, say)
	}
	return bytes, records, nil
}

// progress fails a partition that answers without records again and again below its end.
func (x *fetchExchange) progress(records int64) error {
	const most = 100
	if records > 0 || x.next >= x.end {
		x.stalled = 0
		return nil
	}
	if x.stalled++; x.stalled > most {
		return fmt.Errorf("load: %s-%d at offset %d: %d answers without a batch below the end %d; is fetch_bytes %d less than one batch?",
			x.r.Topic, x.partition, x.next, x.stalled, x.end, x.r.FetchBytes)
	}
	return nil
}

// walk steps over batch headers, checking that offsets follow on. A last batch
// that max bytes cut off does not count. A first one may begin below the offset asked for.
func (x *fetchExchange) walk(b []byte) (bytes, records, after int64, err error) {
	after = x.next
	for len(b) >= record.HeaderSize {
		h := record.ReadHeader(b)
		if h.Size() < record.HeaderSize || h.Size() > len(b) {
			break
		}
		batch := b[:h.Size()]
		if x.r.Verify {
			if sum := crc32.Checksum(batch[21:], castagnoli); sum != h.CRC {
				return 0, 0, 0, fmt.Errorf("load: %s-%d offset %d: the batch says CRC %08x, its bytes give %08x", x.r.Topic, x.partition, h.BaseOffset, h.CRC, sum)
			}
		}
		holds := h.BaseOffset <= after && after < h.NextOffset()
		if h.BaseOffset != after && (bytes > 0 || !holds) {
			x.gaps++
		}
		if x.r.OnBatch != nil {
			x.r.OnBatch(x.partition, h, batch)
		}
		after = h.NextOffset()
		bytes += int64(len(batch))
		records += int64(h.RecordCount)
		b = b[len(batch):]
	}
	return bytes, records, after, nil
}

// parse finds the records of a version 11 answer with one topic and one
// partition: correlation 4, throttle 4, error 2, session 4, topics 4, topic
// 2+n, partitions 4, index 4, error 2, high watermark 8, last stable offset 8,
// log start 8, aborted 4+16·n, preferred replica 4, records 4+n.
func (x *fetchExchange) parse(frame []byte) (batches []byte, high int64, err error) {
	short := func() error { return fmt.Errorf("load: a fetch answer of %d bytes is cut short", len(frame)) }
	at := 4 + 4 + 2 + 4 + 4
	if len(frame) < at {
		return nil, 0, short()
	}
	if got := binary.BigEndian.Uint32(frame); got != x.received {
		return nil, 0, fmt.Errorf("load: answer %d came where %d was due", got, x.received)
	}
	if err := kerr.ErrorForCode(int16(binary.BigEndian.Uint16(frame[8:]))); err != nil {
		return nil, 0, fmt.Errorf("load: fetch: %w", err)
	}
	at += 2 + len(x.r.Topic) + 4
	f := frame[min(at, len(frame)):]
	if len(f) < 4+2+24+4+4+4 {
		return nil, 0, short()
	}
	if err := kerr.ErrorForCode(int16(binary.BigEndian.Uint16(f[4:]))); err != nil {
		return nil, 0, fmt.Errorf("load: fetch %s-%d from offset %d: %w", x.r.Topic, x.partition, x.next, err)
	}
	high = int64(binary.BigEndian.Uint64(f[6:]))
	aborted := max(0, int(int32(binary.BigEndian.Uint32(f[30:]))))
	f = f[34:]
	if skip := 16*aborted + 4 + 4; aborted > len(f) || len(f) < skip {
		return nil, 0, short()
	} else if f = f[skip-4:]; int32(binary.BigEndian.Uint32(f)) <= 0 {
		return nil, high, nil
	}
	n := int(int32(binary.BigEndian.Uint32(f)))
	if n > len(f)-4 {
		return nil, 0, short()
	}
	return f[4 : 4+n], high, nil
}
