package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-log/tidemark/storage/record"
)

// KgoProduce sends records through franz-go, as a user's program would.
type KgoProduce struct {
	Addrs       []string
	Topic       string
	Acks        int16
	Codec       string
	Linger      time.Duration
	BatchBytes  int // max bytes of a batch; 0: franz-go's default
	RecordBytes int
	Entropy     float64
	RecordsPerS float64 // 0: as fast as the client takes them
	Inflight    int     // produce requests in flight per broker; 0: franz-go's default
	Seed        uint64
	// Stamp writes the intended send time into the first 8 bytes of each value, for KgoConsume to read.
	Stamp bool
	Dial  Dial
	// Records, when above zero, ends the run after so many.
	Records int64
	// BatchRecords, when above zero, keeps batches at about so many records.
	BatchRecords int
}

// maxBuffered bounds what waits in the client. Produce blocks beyond it.
const maxBuffered = 50_000

// batchBytesMin is the least that franz-go takes as the bound of a batch.
const batchBytesMin = 512

// bounds gives the options by which batches come out as asked. franz-go bounds a
// batch by bytes; below its least bound, what may wait in the client is what
// keeps batches small, and then one request is in flight.
func (k *KgoProduce) bounds() (batchBytes, buffered int) {
	batchBytes, buffered = k.BatchBytes, maxBuffered
	if k.BatchRecords > 0 {
		batchBytes = record.HeaderSize + k.BatchRecords*(k.RecordBytes+12) // a record's own fields take up to 12 bytes
		if batchBytes < batchBytesMin {
			buffered = k.BatchRecords
		}
	}
	if batchBytes > 0 {
		batchBytes = max(batchBytes, batchBytesMin, k.RecordBytes+200)
	}
	return batchBytes, buffered
}

// batchCounter counts batches as they are written.
type batchCounter struct{ batches, wire, records atomic.Int64 }

// OnProduceBatchWritten is called by franz-go.
func (c *batchCounter) OnProduceBatchWritten(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.ProduceBatchMetrics) {
	c.batches.Add(1)
	c.wire.Add(int64(m.CompressedBytes) + record.HeaderSize)
	c.records.Add(int64(m.NumRecords))
}

func (k *KgoProduce) client(counter *batchCounter) (*kgo.Client, error) {
	batchBytes, buffered := k.bounds()
	codec, err := kgoCodec(k.Codec)
	if err != nil {
		return nil, err
	}
	acks := map[int16]kgo.Acks{0: kgo.NoAck(), 1: kgo.LeaderAck(), -1: kgo.AllISRAcks()}[k.Acks]
	opts := []kgo.Opt{
		kgo.SeedBrokers(k.Addrs...), kgo.ClientID(clientID), kgo.DefaultProduceTopic(k.Topic),
		kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite(), kgo.ProducerBatchCompression(codec),
		kgo.ProducerLinger(k.Linger), kgo.MaxBufferedRecords(buffered), kgo.WithHooks(counter), kgo.RecordDeliveryTimeout(answerTimeout),
	}
	if batchBytes > 0 {
		opts = append(opts, kgo.ProducerBatchMaxBytes(int32(batchBytes)))
	}
	if k.Inflight > 0 {
		opts = append(opts, kgo.MaxProduceRequestsInflightPerBroker(k.Inflight))
	}
	if k.Dial != nil {
		opts = append(opts, kgo.Dialer(dialer(k.Dial)))
	}
	return kgo.NewClient(opts...)
}

// Run produces until the window closes, the first error or the end of ctx.
func (k KgoProduce) Run(ctx context.Context, w *Window) (Stats, error) {
	counter := &batchCounter{}
	client, err := k.client(counter)
	if err != nil {
		return Stats{}, fmt.Errorf("load: %w", err)
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return Stats{}, fmt.Errorf("load: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lat := NewHistogram()
	var mu sync.Mutex // of lat: promises run one at a time, but Close runs some too
	promise := func(rec *kgo.Record, err error) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				cancel(fmt.Errorf("load: produce: %w", err))
			}
			return
		}
		now := time.Now()
		intended := rec.Context.Value(intendedKey{}).(*intendedCtx).at
		inside, over := w.Done(now, int64(len(rec.Value)), 1)
		if inside {
			mu.Lock()
			lat.RecordValue(max(1, now.Sub(intended).Microseconds()))
			mu.Unlock()
		}
		if over {
			cancel(errOver)
		}
	}
	err = k.send(ctx, client, w, promise)
	if errors.Is(err, context.Canceled) {
		err = context.Cause(ctx)
	}
	if err == nil {
		if err = client.Flush(ctx); err != nil {
			err = context.Cause(ctx)
		}
	}
	w.Stop(time.Now())
	client.Close() // no promise runs after this
	if errors.Is(err, errOver) {
		err = nil
	}
	return Stats{
		Tick: w.Measured(), Latency: lat, SentBatches: counter.batches.Load(), SentBytes: counter.wire.Load(),
		SentPayload: counter.records.Load() * int64(k.RecordBytes),
	}, err
}

var errOver = errors.New("the window has closed")

// intendedCtx carries the intended send time of records to their promises. The
// record's timestamp cannot: franz-go cuts it to milliseconds.
type intendedCtx struct {
	context.Context
	at time.Time
}

type intendedKey struct{}

func (c *intendedCtx) Value(key any) any {
	if _, ok := key.(intendedKey); ok {
		return c
	}
	return c.Context.Value(key)
}

func (k *KgoProduce) send(ctx context.Context, client *kgo.Client, w *Window, promise func(*kgo.Record, error)) error {
	values := make([][]byte, 1024)
	rng := NewRand(k.Seed, 0x6b60)
	for i := range values {
		values[i] = Payload(rng, k.RecordBytes, k.Entropy)
	}
	w.Start(time.Now())
	start := time.Now()
	var intended *intendedCtx
	for i := int64(0); k.Records == 0 || i < k.Records; i++ {
		switch {
		case k.RecordsPerS > 0:
			due := start.Add(time.Duration(float64(i) / k.RecordsPerS * float64(time.Second)))
			if err := sleepUntil(ctx, due); err != nil {
				return err
			}
			intended = &intendedCtx{ctx, due}
		case i%16 == 0: // not for every record: reading the clock costs as much as handing one over
			if err := ctx.Err(); err != nil {
				return err
			}
			intended = &intendedCtx{ctx, time.Now()}
		}
		value := values[i%int64(len(values))]
		if k.Stamp {
			stamped := make([]byte, max(8, len(value)))
			copy(stamped, value)
			binary.BigEndian.PutUint64(stamped, uint64(intended.at.UnixNano()))
			value = stamped
		}
		client.Produce(intended, &kgo.Record{Value: value}, promise)
	}
	return nil
}

// KgoConsume reads a topic through franz-go, from the start, without a group.
type KgoConsume struct {
	Addrs      []string
	Topic      string
	FetchBytes int
	// Until ends the run after so many records; 0: the window ends it.
	Until int64
	// Stamped takes the intended send time from the first 8 bytes of each value for the latency;
	// otherwise latency is how long each poll waited.
	Stamped bool
	// FromEnd begins with what is produced after Ready; otherwise at the start.
	FromEnd bool
	// Ready, when not nil, is called when the client has been made.
	Ready func()
	// KeepOpen leaves the window as it is when Until is reached, for another run to go on in.
	KeepOpen bool
	// Rack, when not empty, is where the consumer stands: a broker may send it to a replica there (KIP-392).
	Rack string
	Dial Dial
}

// Run consumes until Until records are in, the window closes, or ctx ends.
func (k KgoConsume) Run(ctx context.Context, w *Window) (Stats, error) {
	offset := kgo.NewOffset().AtStart()
	if k.FromEnd {
		offset = kgo.NewOffset().AtEnd()
	}
	opts := []kgo.Opt{kgo.SeedBrokers(k.Addrs...), kgo.ClientID(clientID), kgo.ConsumeTopics(k.Topic), kgo.ConsumeResetOffset(offset), kgo.FetchMaxWait(500 * time.Millisecond)}
	if k.FetchBytes > 0 {
		opts = append(opts, kgo.FetchMaxBytes(int32(k.FetchBytes)), kgo.FetchMaxPartitionBytes(int32(k.FetchBytes)))
	}
	if k.Dial != nil {
		opts = append(opts, kgo.Dialer(dialer(k.Dial)))
	}
	if k.Rack != "" {
		opts = append(opts, kgo.Rack(k.Rack))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return Stats{}, fmt.Errorf("load: %w", err)
	}
	defer client.Close()
	if k.Ready != nil {
		k.Ready()
	}
	st := Stats{Latency: NewHistogram()}
	w.Start(time.Now())
	next := map[int32]int64{}
	for seen, over := int64(0), false; !over && (k.Until == 0 || seen < k.Until); {
		asked := time.Now()
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return st, err
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			return st, fmt.Errorf("load: consume %s-%d: %w", errs[0].Topic, errs[0].Partition, errs[0].Err)
		}
		now := time.Now()
		bytes, records := int64(0), int64(0)
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			for _, rec := range p.Records {
				if want, ok := next[p.Partition]; ok && rec.Offset != want {
					st.Gaps++
				}
				next[p.Partition] = rec.Offset + 1
				bytes += int64(len(rec.Value))
				records++
			}
		})
		seen += records
		var inside bool
		switch inside, over = w.Done(now, bytes, records); {
		case !inside:
		case !k.Stamped:
			st.Latency.RecordValue(max(1, now.Sub(asked).Microseconds()))
		default:
			fetches.EachRecord(func(rec *kgo.Record) {
				if len(rec.Value) >= 8 {
					sent := time.Unix(0, int64(binary.BigEndian.Uint64(rec.Value)))
					st.Latency.RecordValue(max(1, now.Sub(sent).Microseconds()))
				}
			})
		}
	}
	if !k.KeepOpen {
		w.Stop(time.Now())
	}
	st.Tick = w.Measured()
	return st, nil
}
