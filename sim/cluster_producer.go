package sim

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/experiments/history"
	"github.com/tidemark-log/tidemark/sim/ghost"
)

// clusterProducer sends batches of unique records to the leaders of their partitions, in order
// in each, and what is not acknowledged again, unless its configuration says to give up.
type clusterProducer struct {
	client
	number    int
	cfg       producerConfig
	lanes     []*producerLane
	left      int
	lastValue uint64
}

// producerLane is a producer's session at one partition.
type producerLane struct {
	lane
	p       *clusterProducer
	id      int64 // -1: none yet
	idEpoch int16
	next    int32 // sequence
	asksID  bool
	batches int64
	queue   []*outgoing // not acknowledged, oldest first
}

func newClusterProducer(c *Cluster, number int, cfg producerConfig) *clusterProducer {
	p := &clusterProducer{client: newClient(c), number: number, cfg: cfg, left: cfg.batches}
	for i := range c.cfg.partitions {
		l := &producerLane{p: p, id: -1}
		l.lane = lane{client: &p.client, partition: i, epoch: -1, ready: l.pump, lost: l.lostConn}
		p.lanes = append(p.lanes, l)
	}
	return p
}

// produce makes the next batch, at its own pace.
func (p *clusterProducer) produce() {
	if p.left > 0 && p.c.admin.created {
		if l := pick(p.c.rng, p.lanes...); len(l.queue) < queueMax {
			p.left--
			l.enqueue()
		}
	}
	if p.left > 0 {
		wait := p.c.between(0, 3*p.cfg.every)
		if p.cfg.rests > 0 && p.c.chance(p.cfg.rests) {
			wait += p.c.between(0, 5*time.Second)
		}
		p.c.after(&p.process, wait, p.produce)
	}
}

// more gives it further batches to make.
func (p *clusterProducer) more(batches int) {
	idle := p.left == 0
	p.left += batches
	if idle {
		p.produce()
	}
}

// wind ends the making of batches, with a last one to each partition that must get
// through where that is asked for.
func (p *clusterProducer) wind(last bool) {
	p.left = 0
	for _, l := range p.lanes {
		if last {
			l.enqueue()
		}
	}
}

// pending lists what is not acknowledged.
func (p *clusterProducer) pending() []string {
	var all []string
	for _, l := range p.lanes {
		if len(l.queue) > 0 {
			all = append(all, fmt.Sprintf("batch %d of producer %d to partition %d", l.queue[0].Number, p.number, l.partition))
		}
	}
	return all
}

func (l *producerLane) enqueue() {
	p := l.p
	l.batches++
	b := &outgoing{Batch: &history.Batch{Partition: l.partition, Producer: p.number, Session: -1, Sequence: -1, Number: l.batches, Once: !p.cfg.retries}}
	b.values = newValues(p.c.rng, p.c.wallMs(), p.number, &p.lastValue)
	if p.c.cfg.oneRecord {
		b.values = b.values[:1]
	}
	l.encode(b)
	p.c.partitions[l.partition].Sent(b.Batch)
	l.queue = append(l.queue, b)
	l.pump()
}

// encode builds the batch under the lane's present session.
func (l *producerLane) encode(b *outgoing) {
	if l.id >= 0 {
		b.Session, b.Sequence = l.id, l.next
		l.next += int32(len(b.values))
	}
	b.build(l.p.cfg.codec, l.idEpoch)
}

// pump sends what may be in flight.
func (l *producerLane) pump() {
	if len(l.queue) == 0 {
		return
	}
	if l.conn == nil {
		l.open()
		return
	}
	if l.p.cfg.idempotent && l.id < 0 {
		l.askID()
		return
	}
	for i := 0; i < len(l.queue) && i < l.p.cfg.inFlightMax && l.conn != nil; i++ {
		if b := l.queue[i]; !b.sent {
			l.send(b)
			if l.p.cfg.acks == 0 {
				i-- // it has left the queue
			}
		}
	}
}

// lostConn: of what was in flight the outcome is unknown.
func (l *producerLane) lostConn() {
	l.asksID = false
	var kept []*outgoing
	for _, b := range l.queue {
		if b.sent && !l.p.cfg.retries {
			l.c.trace.probe("producer gave a batch up")
			continue
		}
		b.sent = false
		kept = append(kept, b)
	}
	l.queue = kept
	l.c.after(&l.process, l.c.between(0, 20*time.Millisecond), l.pump)
}

func (l *producerLane) askID() {
	if l.asksID {
		return
	}
	l.asksID = true
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionTimeoutMillis = 1000
	l.conn.ask(req, 4, func(r kmsg.Response) {
		l.asksID = false
		resp := r.(*kmsg.InitProducerIDResponse)
		if resp.ErrorCode != 0 {
			l.again()
			return
		}
		l.id, l.idEpoch, l.next = resp.ProducerID, resp.ProducerEpoch, 0
		l.c.trace.say(l.c.now, "producer %d has id %d at partition %d", l.p.number, l.id, l.partition)
		for _, b := range l.queue {
			l.encode(b)
		}
		l.pump()
	})
}

func (l *producerLane) send(b *outgoing) {
	b.sent = true
	if b.sends++; b.sends > 1 {
		l.c.trace.probe("batch sent again")
	}
	req := produceRequest(b, l.p.cfg.acks, int32(l.c.cfg.requestTimeout.Milliseconds()*2/3))
	conn := l.conn
	if l.p.cfg.acks == 0 {
		conn.ask(req, 9, nil)
		l.queue = remove(l.queue, b)
		return
	}
	conn.ask(req, 9, func(r kmsg.Response) {
		resp := r.(*kmsg.ProduceResponse)
		l.answered(b, resp.Topics[0].Partitions[0])
	})
}

// answered takes in the answer for one batch.
func (l *producerLane) answered(b *outgoing, a kmsg.ProduceResponseTopicPartition) {
	c := l.c
	c.forget(l.partition)
	switch code := a.ErrorCode; {
	case code == 0 || code == 46: // 46: a duplicate that the broker does not know the offset of any more
		l.queue = remove(l.queue, b)
		if code == 0 {
			c.trace.say(c.now, "producer %d: batch %d acknowledged at offset %d of partition %d", l.p.number, b.Number, a.BaseOffset, l.partition)
			c.acknowledged(l, b, a.BaseOffset)
		}
		l.pump()
	case clusterRetriable(code) || code == codeInvalidTimestamp && c.cfg.faults.clockJump:
		c.trace.say(c.now, "producer %d: error %d, tries again", l.p.number, code)
		if code == 19 || code == 20 {
			c.trace.probe("not enough in-sync replicas")
		}
		if !l.p.cfg.retries && code != 20 && code != 7 {
			l.queue = remove(l.queue, b) // refused: it is not there
		}
		l.again()
	case code == codeOutOfOrderSequence || code == codeUnknownProducerID || code == codeInvalidEpoch:
		l.outOfSequence(b, code)
	default:
		c.violated("a valid batch is refused with error %d", code)
	}
}

// acknowledged notes an acknowledgement. Under acks=1 it binds nobody.
func (c *Cluster) acknowledged(l *producerLane, b *outgoing, base int64) {
	if l.p.cfg.acks != -1 {
		c.ghost.AckedWeak += int64(len(b.values))
		return
	}
	c.ghost.Acked += int64(len(b.values))
	if v := c.partitions[l.partition].Acked(b.Batch, base); v != nil && !c.cfg.rules.Unclean {
		c.violated("%s", v.Text)
	}
}

// outOfSequence: for the first in line it says that the log has lost what was
// acknowledged before, which only an unclean election may do. A leader that has not
// heard of its successor says so of its own log, which ends earlier: others are asked then.
func (l *producerLane) outOfSequence(b *outgoing, code int16) {
	if !l.c.ghost.Told(ghost.TP{Topic: topicName, Partition: l.partition}, l.leader) {
		l.c.trace.probe("sequence refused by a deposed leader")
		l.again()
		return
	}
	if l.queue[0] == b && !l.c.cfg.rules.Unclean && l.c.cfg.rules.RetentionMs < 0 && l.c.cfg.rules.RetentionBytes < 0 {
		l.c.violated("S16 NoSessionGap: producer %d (id %d): batch %d, sequence %d, the first not acknowledged of partition %d, is refused with error %d", l.p.number, b.Session, b.Number, b.Sequence, l.partition, code)
		return
	}
	if l.queue[0] == b {
		l.c.trace.probe("idempotent session begun anew")
		l.id = -1
	}
	l.again()
}

// forget lets the history forget what an unclean election took.
func (c *Cluster) forget(partition int32) {
	if n := c.ghost.Resets(tp(partition)); n != c.resets[partition] {
		c.resets[partition] = n
		c.partitions[partition].Reset(c.ghost.TrueHighWatermark(tp(partition)))
	}
}
