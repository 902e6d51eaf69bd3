package workload

import (
	"context"
	bin "encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/harness/load"
	"github.com/tidemark-log/tidemark/harness/sut"
	"github.com/tidemark-log/tidemark/harness/timeline"
)

func init() { runners[LeaderKill] = runLeaderKill }

const (
	timelineStep = 100 * time.Millisecond
	// killClientPause is how soon the client looks again after a failure: what is to be seen is the cluster's time, not the client's.
	killClientPause = 20 * time.Millisecond
	// killFlushMax bounds the wait for acknowledgements after the last record was sent.
	killFlushMax = 30 * time.Second
)

// runLeaderKill produces at a fixed rate to partitions that one broker leads, kills
// that broker, starts it again, and reads back what there is in the end.
func runLeaderKill(ctx context.Context, c *Cell, r *Result) error {
	b, err := makeBed(ctx, c, r, nil)
	defer b.close()
	if err != nil {
		return err
	}
	leader, err := b.victim(ctx, VictimBroker)
	if err != nil {
		return err
	}
	if err := b.createReplicated(ctx, b.topic, b.allFrom(leader)); err != nil {
		return err
	}
	p := &killProducer{p: b.p, latency: load.NewHistogram()}
	events := killEvents{}
	restart := func() error { return b.cluster.Brokers[leader-1].Start(ctx) } // the cell's ctx: the process outlives the producer
	if err := p.run(ctx, b.addrs(), b.topic, b.c.Seed, func(ctx context.Context, start time.Time) error {
		return b.killAndRestart(ctx, leader, start, restart, &events)
	}); err != nil {
		return err
	}
	c.Progress("reading back")
	found, err := b.readBack(ctx)
	if err != nil {
		return errors.Join(err, b.ended())
	}
	p.account(b, found, &events)
	return nil
}

// killEvents is when things happened.
type killEvents struct{ killed, restarted, inSync time.Time }

// killAndRestart plays the cell's faults and waits until the topic has all its copies again.
func (b *bed) killAndRestart(ctx context.Context, leader int, start time.Time, restart func() error, e *killEvents) error {
	victim := b.cluster.Brokers[leader-1]
	if err := sleepUntil(ctx, start.Add(b.p.KillAfter)); err != nil {
		return err
	}
	b.c.Progress(fmt.Sprintf("broker %d, the leader, is killed", leader))
	e.killed = time.Now()
	victim.Kill()
	if err := sleepUntil(ctx, e.killed.Add(b.p.RestartAfter)); err != nil {
		return err
	}
	b.c.Progress("the killed broker is started again")
	e.restarted = time.Now()
	if err := restart(); err != nil {
		return err
	}
	adm, err := b.adminOf(b.survivors(leader)[:1])
	if err != nil {
		return err
	}
	defer adm.Close()
	ctx, cancel := context.WithTimeout(ctx, clusterPatience)
	defer cancel()
	err = until(ctx, func() (string, error) {
		topics, err := adm.ListTopics(ctx, b.topic)
		if err != nil {
			return "", err
		}
		for p := range b.p.Partitions {
			if d := topics[b.topic].Partitions[int32(p)]; len(d.ISR) != b.p.copies() {
				return fmt.Sprintf("partition %d has ISR %v", p, d.ISR), nil
			}
		}
		return "", nil
	})
	e.inSync = time.Now()
	return err
}

// killProducer sends numbered records through the death of a leader.
type killProducer struct {
	p *Params

	mu      sync.Mutex
	start   time.Time
	sent    int64
	failed  int64
	due     time.Time   // of the last record
	acked   []bool      // by number
	acks    []time.Time // in order
	latency *hdrhistogram.Histogram
}

func (k *killProducer) client(addrs []string, topic string) (*kgo.Client, error) {
	p := k.p
	opts := []kgo.Opt{
		kgo.SeedBrokers(addrs...), kgo.ClientID("tidemark-harness"), kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(p.Linger),
		kgo.MaxBufferedRecords(int(p.RecordsPerS*p.Measure.Seconds()) + 1000), // none is held back: the rate goes on
		kgo.AlwaysRetryEOF(), // a connection that dies right after its first request is no sign that SASL is missing
		kgo.MetadataMinAge(killClientPause), kgo.RetryBackoffFn(func(int) time.Duration { return killClientPause }),
		kgo.RequiredAcks(map[string]kgo.Acks{"1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}[p.Acks]),
	}
	if !p.Idempotence { // an idempotent client keeps five requests in flight
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(p.Inflight))
	}
	return kgo.NewClient(opts...)
}

// run sends for the measured time while faults happen beside it, and waits for the last acknowledgements.
func (k *killProducer) run(ctx context.Context, addrs []string, topic string, seed uint64, faults func(context.Context, time.Time) error) error {
	client, err := k.client(addrs, topic)
	if err != nil {
		return fmt.Errorf("workload: %w", err)
	}
	defer client.Close()
	if err := k.send(ctx, client, seed, k.p.Warmup, false); err != nil { // connections, metadata, producer id
		return err
	}
	if err := client.Flush(ctx); err != nil {
		return fmt.Errorf("workload: warmup: %w", err)
	}
	k.start = time.Now()
	faulty := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		err := faults(ctx, k.start)
		if err != nil {
			cancel()
		}
		faulty <- err
	}()
	err = k.send(ctx, client, seed, k.p.Measure, true)
	if err == nil {
		flush, done := context.WithTimeout(ctx, killFlushMax)
		err = client.Flush(flush)
		done()
	}
	if err != nil {
		cancel()
	}
	if e := <-faulty; err == nil || errors.Is(err, context.Canceled) {
		err = errors.Join(e, err)
	}
	if err != nil {
		return fmt.Errorf("workload: produce through the kill: %w", err)
	}
	return nil
}

// numberedBytes is what a record says of itself: its number.
const numberedBytes = 8

// send sends numbered records at the rate for some time. Those of the warmup have no number that counts.
func (k *killProducer) send(ctx context.Context, client *kgo.Client, seed uint64, length time.Duration, counts bool) error {
	filler := load.Payload(load.NewRand(seed, 0x6b31), max(numberedBytes, k.p.RecordBytes), k.p.Entropy)
	start := time.Now()
	for i := int64(0); ; i++ {
		due := start.Add(time.Duration(float64(i) / k.p.RecordsPerS * float64(time.Second)))
		if due.Sub(start) >= length {
			return nil
		}
		if err := sleepUntil(ctx, due); err != nil {
			return err
		}
		value := append([]byte(nil), filler...)
		number := int64(-1)
		if counts {
			number = k.next(due)
		}
		bin.BigEndian.PutUint64(value, uint64(number))
		client.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if counts {
				k.told(number, due, err)
			}
		})
	}
}

func (k *killProducer) next(due time.Time) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.due = due
	k.acked = append(k.acked, false)
	k.sent++
	return k.sent - 1
}

// told notes what the client was told of a record.
func (k *killProducer) told(number int64, due time.Time, err error) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.failed++
		return
	}
	k.acked[number] = true
	k.acks = append(k.acks, now)
	k.latency.RecordValue(max(1, now.Sub(due).Microseconds()))
}

// unavailable is the longest time without any acknowledgement after the kill. One that nothing
// ended is as long as records went on to be due.
func (k *killProducer) unavailable(killed time.Time) time.Duration {
	longest, last := time.Duration(0), killed
	for _, at := range k.acks {
		if at.After(killed) {
			longest, last = max(longest, at.Sub(last)), at
		}
	}
	return max(longest, k.due.Sub(last))
}

// account says what came of it. found is how often each number was read back.
func (k *killProducer) account(b *bed, found map[int64]int, e *killEvents) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var acked, lost, duplicated int64
	for number, ok := range k.acked {
		if ok {
			acked++
			if found[int64(number)] == 0 {
				lost++
			}
		}
		duplicated += int64(max(0, found[int64(number)]-1))
	}
	m := b.r.Metrics
	m["sent-records"], m["acked-records"], m["failed-records"] = float64(k.sent), float64(acked), float64(k.failed)
	m["lost-acked-records"], m["duplicated-records"] = float64(lost), float64(duplicated)
	out := k.unavailable(e.killed)
	m["unavailable-sec"], m["unavailable/bound"] = out.Seconds(), out.Seconds()/b.failoverBound().Seconds()
	m["in-sync-again-sec"] = e.inSync.Sub(e.restarted).Seconds()
	m["under-replicated-sec"] = e.inSync.Sub(e.killed).Seconds()
	b.addLatency("produce", "", k.latency)
	b.r.check("no-acked-record-lost", lost == 0, "%d of %d acknowledged records are gone", lost, acked)
	at := func(t time.Time) float64 { return t.Sub(k.start).Seconds() }
	steps := make([]float64, int(b.p.Measure/timelineStep))
	for _, t := range k.acks {
		if i := int(t.Sub(k.start) / timelineStep); i < len(steps) {
			steps[i] += 1 / timelineStep.Seconds()
		}
	}
	b.r.Timeline = &timeline.Timeline{
		Step: timelineStep.Seconds(), Values: map[string][]float64{"acked-records/s": steps},
		Marks: []timeline.Mark{{At: at(e.killed), Name: "leader killed"}, {At: at(e.restarted), Name: "started again"}, {At: at(e.inSync), Name: "all copies in sync"}},
	}
}

// readBack reads the topic to its end and counts each number.
func (b *bed) readBack(ctx context.Context) (map[int64]int, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterPatience)
	defer cancel()
	adm, err := b.admin()
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	var ends kadm.ListedOffsets
	err = until(ctx, func() (string, error) { // a broker that was started just now may not know yet who leads
		if ends, err = adm.ListEndOffsets(ctx, b.topic); err == nil {
			err = ends.Error()
		}
		return "", err
	})
	if err != nil {
		return nil, fmt.Errorf("workload: read back: %w", err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addrs()...), kgo.ClientID("tidemark-harness"), kgo.ConsumeTopics(b.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	defer client.Close()
	found, left := map[int64]int{}, map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil { // other errors pass: the client tries again
			return nil, fmt.Errorf("workload: read back: %w; partitions not read to their ends: %v", errors.Join(ctx.Err(), fetches.Err()), left)
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			if len(rec.Value) >= numberedBytes {
				found[int64(bin.BigEndian.Uint64(rec.Value))]++
			}
			if end, ok := left[rec.Partition]; ok && rec.Offset+1 >= end {
				delete(left, rec.Partition)
			}
		})
	}
	return found, nil
}

// failoverBound is the longest that a broker's death may keep a partition from being
// written: until its session has expired, one tick of the service's clock, and half a second for the rest.
func (b *bed) failoverBound() time.Duration {
	asked := int64(broker.DefaultConfig().ZooKeeperSessionTimeout / time.Millisecond)
	if v, err := strconv.ParseInt(b.c.Broker["zookeeper.session.timeout.ms"], 10, 64); err == nil {
		asked = v
	}
	return time.Duration(coord.NegotiateTimeout(asked)+coord.TickMs)*time.Millisecond + 500*time.Millisecond
}

func sleepUntil(ctx context.Context, due time.Time) error {
	wait := time.Until(due)
	if wait <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// survivors are all brokers but one, which is named by its id.
func (b *bed) survivors(victim int) []*sut.Broker {
	var all []*sut.Broker
	for i, broker := range b.cluster.Brokers {
		if i+1 != victim {
			all = append(all, broker)
		}
	}
	return all
}

func (b *bed) adminOf(brokers []*sut.Broker) (*kadm.Client, error) {
	var addrs []string
	for _, broker := range brokers {
		addrs = append(addrs, broker.Addr)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.ClientID("tidemark-harness"), kgo.MetadataMinAge(clusterPoll))
	if err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	return kadm.NewClient(client), nil
}

// victim chooses the broker to kill, by id: the controller, or the first that is not.
func (b *bed) victim(ctx context.Context, which string) (int, error) {
	adm, err := b.admin()
	if err != nil {
		return 0, err
	}
	defer adm.Close()
	m, err := adm.BrokerMetadata(ctx)
	if err != nil {
		return 0, fmt.Errorf("workload: who is controller: %w", err)
	}
	controller := int(m.Controller)
	if which == VictimController {
		return controller, nil
	}
	return controller%b.p.Brokers + 1, nil
}

// allFrom places all partitions so that one broker leads them.
func (b *bed) allFrom(leader int) [][]int32 {
	all := make([][]int32, b.p.Partitions)
	for p := range all {
		all[p] = b.replicasFrom(leader)
	}
	return all
}
