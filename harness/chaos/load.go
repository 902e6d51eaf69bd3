package chaos

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/experiments/history"
	"github.com/tidemark-log/tidemark/storage/record"
)

const (
	// sendEvery is the pace of a producer at a partition: hours of history must fit into memory.
	sendEvery = 5 * time.Millisecond
	// inFlightMax bounds the records of a producer at a partition that wait for an answer.
	inFlightMax = 200
	clientPause = 50 * time.Millisecond
	clientWait  = 2 * time.Second // a broker that stands still never answers
)

// load is producers and a consumer, and what they saw.
//
// The history is told of records: each stands for a batch of its own, encoded as one would
// be, with the producer's number as the session. How clients put records into batches
// differs from run to run, and is nobody's promise.
type load struct {
	partitions int32
	seeds      []string
	lanes      []*lane
	consumer   *kgo.Client
	end        chan struct{} // closed: no more records
	stop       context.CancelFunc
	work       sync.WaitGroup

	mu        sync.Mutex // guards what follows
	history   []*history.Partition
	positions []int64
	acked     int
	weak      int
	read      int
	err       error // the first thing that went wrong
}

// lane is a producer at one partition.
type lane struct {
	l         *load
	producer  int
	partition int32
	acks      int16
	client    *kgo.Client
	room      chan struct{}

	answered int // records; guarded by load.mu
	sent     int
	ended    bool // it sends no more
}

func startLoad(seeds []string, s *experiments.Scenario) (*load, error) {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{partitions: s.Partitions, seeds: seeds, end: make(chan struct{}), stop: cancel, positions: make([]int64, s.Partitions),
		history: history.New(int(s.Partitions), history.Promises{RetentionMs: -1, RetentionBytes: -1})}
	from := map[int32]kgo.Offset{}
	for p := range s.Partitions {
		from[p] = kgo.NewOffset().At(0)
	}
	var err error
	if l.consumer, err = kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.AlwaysRetryEOF(), kgo.MetadataMinAge(clientPause), kgo.RequestTimeoutOverhead(clientWait)); err != nil {
		cancel()
		return nil, err
	}
	for i, acks := range s.Acks {
		for p := range s.Partitions {
			n := &lane{l: l, producer: i, partition: p, acks: acks, room: make(chan struct{}, inFlightMax)}
			if n.client, err = newProducer(seeds, acks); err != nil {
				l.close()
				return nil, err
			}
			l.lanes = append(l.lanes, n)
		}
	}
	l.work.Go(func() { l.consume(ctx) })
	for _, n := range l.lanes {
		l.work.Go(func() { n.run(ctx) })
	}
	return l, nil
}

func newProducer(seeds []string, acks int16) (*kgo.Client, error) {
	opts := []kgo.Opt{
		// A connection closed right after its first request is no sign that SASL is missing here: its broker died.
		kgo.AlwaysRetryEOF(), kgo.SeedBrokers(seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RetryBackoffFn(func(int) time.Duration { return clientPause }),
		kgo.MetadataMinAge(clientPause), kgo.ProducerLinger(5 * time.Millisecond), kgo.MaxBufferedRecords(2 * inFlightMax),
		kgo.ProduceRequestTimeout(clientWait), kgo.RequestTimeoutOverhead(clientWait),
	}
	switch acks {
	case 0:
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	case 1:
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	}
	return kgo.NewClient(opts...)
}

// run sends numbered records at its pace until the load ends.
func (n *lane) run(ctx context.Context) {
	pace := time.NewTicker(sendEvery)
	defer pace.Stop()
	defer func() {
		n.l.mu.Lock()
		n.ended = true
		n.l.mu.Unlock()
	}()
	for number := 0; ; number++ {
		select {
		case <-pace.C:
		case <-n.l.end:
			return
		case <-ctx.Done():
			return
		}
		select {
		case n.room <- struct{}{}:
			n.send(ctx, number)
		case <-n.l.end:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (n *lane) send(ctx context.Context, number int) {
	value := fmt.Sprintf("%d/%d/%d", n.producer, n.partition, number)
	b := &history.Batch{Partition: n.partition, Producer: n.producer, Session: -1, Sequence: -1, Number: int64(number), Records: 1}
	if n.acks == -1 {
		b.Session, b.Sequence = int64(n.producer), int32(number)
	}
	b.Bytes = encode(value, b.Session, b.Sequence)
	n.l.mu.Lock()
	n.sent++
	n.l.history[n.partition].Sent(b)
	n.l.mu.Unlock()
	n.client.Produce(ctx, &kgo.Record{Topic: topic, Partition: n.partition, Value: []byte(value)}, func(r *kgo.Record, err error) {
		<-n.room
		n.done(b, r, err)
	})
}

// done takes in what came of a record. Only acks=all promises anything.
func (n *lane) done(b *history.Batch, r *kgo.Record, err error) {
	l := n.l
	l.mu.Lock()
	defer l.mu.Unlock()
	n.answered++
	switch {
	case n.acks != -1:
		if err == nil {
			l.weak++
		}
	case err != nil:
		l.fail(fmt.Errorf("producer %d: record %d of partition %d is given up: %w", n.producer, b.Number, n.partition, err))
	default:
		l.acked++
		l.broke(l.history[n.partition].Acked(b, r.Offset))
	}
}

// encode gives the batch that one record would be.
func encode(value string, session int64, sequence int32) []byte {
	build := record.NewBuilder(record.None)
	if session >= 0 {
		build.ProducerID, build.ProducerEpoch, build.BaseSequence = session, 0, sequence
	}
	build.Append(0, nil, []byte(value))
	return build.Build(nil)
}

// encodeRead gives the batch that a record that was read would be at its offset, under the session that
// its value names.
func (l *load) encodeRead(dst []byte, r *kgo.Record) []byte {
	session, sequence := int64(-1), int32(-1)
	if part := strings.Split(string(r.Value), "/"); len(part) == 3 {
		producer, err1 := strconv.ParseInt(part[0], 10, 32)
		number, err2 := strconv.ParseInt(part[2], 10, 32)
		for _, n := range l.lanes {
			if err1 == nil && err2 == nil && int64(n.producer) == producer && n.acks == -1 {
				session, sequence = producer, int32(number)
			}
		}
	}
	b := encode(string(r.Value), session, sequence)
	record.SetBaseOffset(b, r.Offset)
	return append(dst, b...)
}

// consume reads everything, in order, and holds it against what was sent.
func (l *load) consume(ctx context.Context) {
	for {
		f := l.consumer.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		l.mu.Lock()
		for _, e := range f.Errors() {
			l.fail(violated("S22: the consumer of partition %d, at offset %d, is told: %v", e.Partition, l.positions[max(e.Partition, 0)], e.Err))
		}
		f.EachPartition(func(p kgo.FetchTopicPartition) {
			var data []byte
			for _, r := range p.Records {
				data = l.encodeRead(data, r)
			}
			l.read += len(p.Records)
			next, v := l.history[p.Partition].Read(l.positions[p.Partition], data, p.HighWatermark)
			l.positions[p.Partition] = next
			l.broke(v)
		})
		l.mu.Unlock()
	}
}

// broke and fail keep the first thing that went wrong. The caller holds mu.
func (l *load) broke(v *history.Violation) {
	if v != nil {
		l.fail(&violationError{v.Text})
	}
}

func (l *load) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

func (l *load) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *load) counts() (acked, weak, read int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked, l.weak, l.read
}

// everyLane says whether each producer has an answer at each partition.
func (l *load) everyLane() (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.lanes {
		if n.answered == 0 {
			return false, nil
		}
	}
	return true, nil
}

// wind ends the making of records.
func (l *load) wind() { close(l.end) }

// answered says whether nothing waits any more.
func (l *load) answered() (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.lanes {
		if !n.ended || n.answered < n.sent {
			return false, nil
		}
	}
	return true, nil
}

// ends asks for the end of each partition.
func (l *load) ends(ctx context.Context) (map[int32]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	listed, err := kadm.NewClient(l.consumer).ListEndOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	ends := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
	return ends, err
}

// caughtUp says whether the consumer is at the end of every partition.
func (l *load) caughtUp(ctx context.Context) (bool, error) {
	ends, err := l.ends(ctx)
	if err != nil {
		return false, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, at := range l.positions {
		if at < ends[int32(p)] {
			return false, nil
		}
	}
	return len(ends) == len(l.positions), nil
}

// judge reads everything again from the start, and holds it against all that was acknowledged and read.
func (l *load) judge(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, restMax)
	defer cancel()
	ends, err := l.ends(ctx)
	if err != nil {
		return err
	}
	for p := range l.partitions {
		data, err := l.readAll(ctx, p, ends[p])
		if err != nil {
			return err
		}
		l.mu.Lock()
		_, v := l.history[p].Recovered(0, ends[p], data, false, 0)
		l.broke(v)
		l.mu.Unlock()
	}
	return l.failed()
}

func (l *load) readAll(ctx context.Context, partition int32, end int64) ([]byte, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(l.seeds...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(0)}}))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var data []byte
	for next := int64(0); next < end; {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			return nil, fmt.Errorf("partition %d cannot be read from %d to %d: %w", partition, next, end, err)
		}
		f.EachRecord(func(r *kgo.Record) {
			data = l.encodeRead(data, r)
			next = r.Offset + 1
		})
	}
	return data, nil
}

// close ends the clients, whatever they wait for.
func (l *load) close() {
	l.stop()
	l.consumer.CloseAllowingRebalance()
	for _, n := range l.lanes {
		n.client.Close()
	}
	l.work.Wait()
}
