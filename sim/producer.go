package sim

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/experiments/history"
	"github.com/tidemark-log/tidemark/storage/record"
)

// Kafka's error codes that clients of the world meet.
const (
	codeOffsetOutOfRange    = 1
	codeUnknownTopic        = 3
	codeLeaderNotAvailable  = 5
	codeNotLeader           = 6
	codeInvalidTimestamp    = 32
	codeTopicExists         = 36
	codeOutOfOrderSequence  = 45
	codeInvalidEpoch        = 47
	codeStorageError        = 56
	codeUnknownProducerID   = 59
	codeCoordinatorNotReady = 15
)

func retriable(code int16) bool {
	switch code {
	case codeUnknownTopic, codeLeaderNotAvailable, codeNotLeader, codeStorageError, codeCoordinatorNotReady:
		return true
	}
	return false
}

// producer sends batches of unique records. What is not acknowledged it sends
// again, in order, on a new connection, unless its configuration says to give up.
type producer struct {
	w      *World
	number int
	cfg    producerConfig
	conn   *conn

	parts     []producerPart // by partition
	queue     []*outgoing    // not acknowledged, oldest first
	left      int
	lastValue uint64
}

// producerPart is a producer's session at one partition. Each has a producer id of
// its own, so that a loss in one partition ends no session in another.
type producerPart struct {
	id      int64 // -1: none yet
	asking  bool  // for one
	next    int32 // sequence
	batches int64 // made

	generation int // of the topic, when the session began
}

// queueMax bounds what a producer lets wait.
const queueMax = 40

// outgoing is a batch on its way.
type outgoing struct {
	*history.Batch
	values []value
	sent   bool // on the present connection
	sends  int
}

type value struct {
	timestamp int64
	bytes     []byte
}

func newProducer(w *World, number int, cfg producerConfig) *producer {
	p := &producer{w: w, number: number, cfg: cfg, left: cfg.batches}
	for range w.cfg.partitions {
		p.parts = append(p.parts, producerPart{id: -1})
	}
	return p
}

// produce makes the next batch, at its own pace.
func (p *producer) produce() {
	if p.left > 0 && len(p.queue) < queueMax && p.w.admin.created {
		p.left--
		p.enqueue()
		p.pump()
	}
	if p.left > 0 {
		p.w.after(nil, p.w.between(0, 3*p.cfg.every), p.produce)
	}
}

// wind ends the making of batches, with a last one to each partition that must get through.
func (p *producer) wind() {
	p.left = 0
	if p.w.admin.created {
		p.enqueue()
	}
	p.pump()
}

func (p *producer) enqueue() {
	partition := int32(p.w.rng.IntN(int(p.w.cfg.partitions)))
	p.parts[partition].batches++
	b := &outgoing{Batch: &history.Batch{
		Partition: partition, Producer: p.number, Session: -1, Sequence: -1, Number: p.parts[partition].batches,
		Once: !p.cfg.retries,
	}}
	b.values = newValues(p.w.rng, p.w.wallMs(), p.number, &p.lastValue)
	p.encode(b)
	p.w.partitions[partition].Sent(b.Batch)
	p.queue = append(p.queue, b)
}

// encode builds the batch under the producer's present session.
func (p *producer) encode(b *outgoing) {
	if at := &p.parts[b.Partition]; at.id >= 0 {
		b.Session, b.Sequence = at.id, at.next
		at.next += int32(len(b.values))
	}
	b.build(p.cfg.codec, 0)
}

// newValues makes one to four values that no producer makes again; last counts them.
func newValues(rng *rand.Rand, nowMs int64, producer int, last *uint64) []value {
	var all []value
	for range 1 + rng.IntN(4) {
		*last++
		v := value{nowMs, make([]byte, 16+rng.IntN(300))}
		binary.BigEndian.PutUint64(v.bytes, uint64(producer))
		binary.BigEndian.PutUint64(v.bytes[8:], *last)
		for i := 16; i < len(v.bytes); i++ {
			v.bytes[i] = byte(i) ^ byte(*last)
		}
		all = append(all, v)
	}
	return all
}

// build encodes the batch under its session, if it has one.
func (b *outgoing) build(codec record.Codec, epoch int16) {
	build := record.NewBuilder(codec)
	if b.Session >= 0 {
		build.ProducerID, build.ProducerEpoch, build.BaseSequence = b.Session, epoch, b.Sequence
	}
	for _, v := range b.values {
		build.Append(v.timestamp, nil, v.bytes)
	}
	b.Bytes = build.Build(nil)
	b.Records, b.Timestamp = int32(len(b.values)), record.ReadHeader(b.Bytes).MaxTimestamp
}

// pump connects, gets a producer id where one is needed, and sends what may be in flight.
func (p *producer) pump() {
	if len(p.queue) == 0 || !p.connected() {
		return
	}
	inFlight := 0
	for _, b := range append([]*outgoing(nil), p.queue...) {
		if inFlight == p.cfg.inFlightMax || p.conn == nil {
			return
		}
		switch {
		case p.cfg.idempotent && p.parts[b.Partition].id < 0:
			p.askID(b.Partition)
		case !b.sent:
			p.send(b)
		}
		inFlight++
	}
}

func (p *producer) connected() bool {
	if p.conn == nil {
		p.conn = p.w.dial(p.lost)
		if p.conn == nil {
			p.w.after(nil, 20*time.Millisecond, p.pump)
		}
	}
	return p.conn != nil
}

// lost is told that the connection broke: of what was in flight the outcome is unknown.
func (p *producer) lost() {
	p.conn = nil
	for i := range p.parts {
		p.parts[i].asking = false
	}
	var kept []*outgoing
	for _, b := range p.queue {
		if b.sent && !p.cfg.retries {
			p.w.trace.probe("producer gave a batch up")
			continue
		}
		b.sent = false
		kept = append(kept, b)
	}
	p.queue = kept
	p.pump()
}

func (p *producer) askID(partition int32) {
	at := &p.parts[partition]
	if at.asking {
		return
	}
	at.asking = true
	req := kmsg.NewInitProducerIDRequest()
	req.TransactionTimeoutMillis = 1000
	p.conn.ask(&req, 4, func(r kmsg.Response) {
		at.asking = false
		resp := r.(*kmsg.InitProducerIDResponse)
		if resp.ErrorCode != 0 {
			p.again(resp.ErrorCode)
			return
		}
		p.w.trace.say(p.w.now, "producer %d has id %d at partition %d", p.number, resp.ProducerID, partition)
		at.id, at.next, at.generation = resp.ProducerID, 0, p.w.generation
		for _, b := range p.queue {
			if b.Partition == partition {
				p.encode(b)
			}
		}
		p.pump()
	})
}

func (p *producer) send(b *outgoing) {
	b.sent = true
	if b.sends++; b.sends > 1 {
		p.w.trace.probe("batch sent again")
	}
	req := produceRequest(b, p.cfg.acks, 1000)
	generation := p.w.generation
	p.conn.ask(req, int16(3+p.w.rng.IntN(10)), func(r kmsg.Response) {
		resp := r.(*kmsg.ProduceResponse)
		p.answered(b, resp.Topics[0].Partitions[0], generation == p.w.generation && generation%2 == 0)
	})
	if p.cfg.acks == 0 {
		p.queue = remove(p.queue, b)
	}
}

func produceRequest(b *outgoing, acks int16, timeoutMs int32) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, timeoutMs
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = b.Partition, b.Bytes
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.Partitions = topicName, append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	return req
}

// answered takes in the answer for one batch. sure is false when the topic was
// deleted or made since it was asked: then nobody knows which topic acknowledged.
func (p *producer) answered(b *outgoing, a kmsg.ProduceResponseTopicPartition, sure bool) {
	code := a.ErrorCode
	switch {
	case code == 0 && !sure:
		p.queue = remove(p.queue, b)
		p.pump()
	case code == 0:
		p.w.trace.say(p.w.now, "producer %d: batch %d acknowledged at offset %d of partition %d", p.number, b.Number, a.BaseOffset, b.Partition)
		p.queue = remove(p.queue, b)
		if p.w.judge(p.w.partitions[b.Partition].Acked(b.Batch, a.BaseOffset)) {
			p.pump()
		}
	case retriable(code):
		p.again(code)
	case code == codeOutOfOrderSequence || code == codeUnknownProducerID || code == codeInvalidEpoch:
		p.outOfSequence(b, code)
	default:
		p.w.violated("a valid batch is refused with error %d", code)
	}
}

// again breaks the connection, so that all in flight is sent anew in order.
func (p *producer) again(code int16) {
	p.w.trace.say(p.w.now, "producer %d: error %d, tries again", p.number, code)
	if p.conn != nil {
		p.conn.breakDown()
	}
}

// outOfSequence: behind an earlier batch that failed, the error says nothing.
// For the first in line it says that the log has lost acknowledged batches, which
// only a power cut without the promise of durability may do.
func (p *producer) outOfSequence(b *outgoing, code int16) {
	for _, earlier := range p.queue {
		if earlier == b {
			break
		}
		if earlier.Partition == b.Partition {
			p.again(code)
			return
		}
	}
	renewed := p.parts[b.Partition].generation != p.w.generation || p.w.generation%2 == 1
	if !renewed && (p.w.cfg.promises.AckIsDurable || !p.w.cfg.powerCuts) {
		p.w.violated("S16: producer %d (id %d): batch %d, sequence %d, the first not acknowledged of partition %d, is refused with error %d", p.number, b.Session, b.Number, b.Sequence, b.Partition, code)
		return
	}
	p.w.trace.probe("idempotent session begun anew")
	p.parts[b.Partition].id = -1
	p.again(code)
}
