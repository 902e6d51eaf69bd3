package sim

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/sim/ghost"
)

// clusterConsumer reads every partition from its leader, from the start on.
type clusterConsumer struct {
	client
	number int
	parts  []*consumerLane
}

// consumerLane is a consumer's reading of one partition.
type consumerLane struct {
	lane
	r        *clusterConsumer
	position int64
	last     int32 // leader epoch of the batch before position; -1: none
	checked  int32 // leader epoch in which position was found to lie on the leader's log (KIP-320)
	endHeard int64 // largest end offset that ListOffsets told, since so many unclean elections took records
	resets   int
}

func newClusterConsumer(c *Cluster, number int) *clusterConsumer {
	r := &clusterConsumer{client: newClient(c), number: number}
	for i := range c.cfg.partitions {
		l := &consumerLane{r: r, last: -1, checked: -1}
		l.lane = lane{client: &r.client, partition: i, epoch: -1, ready: l.next, lost: l.lostConn}
		r.parts = append(r.parts, l)
	}
	return r
}

func (r *clusterConsumer) begin() {
	if !r.c.admin.created {
		r.c.after(&r.process, 50*time.Millisecond, r.begin)
		return
	}
	for _, l := range r.parts {
		l.open()
	}
}

func (l *consumerLane) lostConn() {
	l.c.after(&l.process, l.c.between(0, 50*time.Millisecond), l.open)
}

// next asks for more, after the position was validated in the leader's epoch.
func (l *consumerLane) next() {
	switch {
	case l.conn == nil:
		return
	case l.checked != l.epoch && l.last >= 0 && !l.anyReplica:
		l.validate()
	case l.anyReplica && l.c.chance(10):
		l.again() // to another replica
	case l.c.chance(l.c.cfg.endsAsked) && !l.anyReplica:
		l.listEnd()
	default:
		l.fetch()
	}
}

func (l *consumerLane) later(d time.Duration) {
	conn := l.conn
	l.c.after(&l.process, d, func() {
		if l.conn == conn && conn != nil {
			l.next()
		}
	})
}

// validate asks where the epoch of the last batch read ends on the leader (OffsetForLeaderEpoch).
func (l *consumerLane) validate() {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	topic := kmsg.NewOffsetForLeaderEpochRequestTopic()
	topic.Topic = topicName
	part := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	part.Partition, part.CurrentLeaderEpoch, part.LeaderEpoch = l.partition, l.epoch, l.last
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	epoch := l.epoch
	l.conn.ask(req, 4, func(r kmsg.Response) {
		p := r.(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
		switch {
		case p.ErrorCode != 0:
			l.again()
		case p.EndOffset >= 0 && p.EndOffset < l.position:
			l.truncated(p.EndOffset)
		default:
			l.checked = epoch
			l.next()
		}
	})
}

// truncated: the leader's log has lost what was read.
func (l *consumerLane) truncated(to int64) {
	c := l.c
	c.trace.probe("consumer saw a truncation")
	if !c.cfg.rules.Unclean {
		c.violated("S22 PollContiguity: consumer %d has read partition %d up to %d, and its leader has its last epoch %d up to %d only", l.r.number, l.partition, l.position, l.last, to)
		return
	}
	l.position, l.last, l.checked = to, -1, l.epoch
	l.next()
}

func (l *consumerLane) listEnd() {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = topicName
	part := kmsg.NewListOffsetsRequestTopicPartition()
	part.Partition, part.Timestamp, part.CurrentLeaderEpoch = l.partition, -1, l.epoch
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resets := l.c.ghost.Resets(tp(l.partition))
	if resets != l.resets {
		l.endHeard, l.resets = 0, resets
	}
	before := l.endHeard
	l.conn.ask(req, 6, func(r kmsg.Response) {
		p := r.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		if p.ErrorCode != 0 {
			if p.ErrorCode == 78 {
				l.c.trace.probe("end offset not available yet")
			}
			l.again()
			return
		}
		l.c.ghost.S9EndOffset(tp(l.partition), before, p.Offset, resets)
		l.endHeard = max(l.endHeard, p.Offset)
		l.later(l.c.between(0, 5*time.Millisecond))
	})
}

func (l *consumerLane) fetch() {
	rng := l.c.rng
	req := fetchRequest([]int64{l.position}, l.partition, pick(rng, int32(300), 2000, 60_000), pick(rng, 100*time.Millisecond, 500*time.Millisecond))
	req.Topics[0].Partitions[0].CurrentLeaderEpoch = l.epoch
	at, resets := l.position, l.c.ghost.Resets(tp(l.partition))
	l.conn.ask(req, 11, func(r kmsg.Response) {
		resp := r.(*kmsg.FetchResponse)
		if resp.ErrorCode != 0 || len(resp.Topics) == 0 {
			l.again()
			return
		}
		l.fetched(at, resets, &resp.Topics[0].Partitions[0])
	})
}

// fetched takes in what a fetch at offset at gave.
func (l *consumerLane) fetched(at int64, resets int, part *kmsg.FetchResponseTopicPartition) {
	c := l.c
	switch code := part.ErrorCode; {
	case code == 0:
		if !c.read(l, at, part) {
			return
		}
		l.later(c.between(0, c.cfg.pollPause))
	case code == codeOffsetOutOfRange:
		l.outOfRange(part.LogStartOffset, resets)
	case clusterRetriable(code):
		if code == 78 {
			c.trace.probe("follower behind its consumer")
		}
		l.again()
	default:
		c.violated("a fetch of partition %d at %d is refused with error %d", l.partition, at, code)
	}
}

// read judges what was delivered and moves the position.
func (c *Cluster) read(l *consumerLane, at int64, part *kmsg.FetchResponseTopicPartition) bool {
	c.forget(l.partition)
	entries := ghost.Entries(part.RecordBatches)
	if len(entries) == 0 {
		return true
	}
	next := c.ghost.Delivered(tp(l.partition), at, entries)
	if !c.cfg.rules.Unclean {
		_, v := c.partitions[l.partition].Read(at, part.RecordBatches, part.HighWatermark)
		if v != nil {
			c.violated("%s", v.Text)
			return false
		}
	}
	if next < c.ghost.EndOf(tp(l.partition), l.leader) {
		c.trace.probe("read that ends before the log")
	}
	l.position, l.last = next, entries[len(entries)-1].Epoch
	c.trace.say(c.now, "consumer %d: partition %d read from %d to %d", l.r.number, l.partition, at, next)
	return c.violation == ""
}

// outOfRange goes on where the log begins now. A position past the end of a leader's log is
// that of a leader that does not know yet what is committed, or of a lost log.
func (l *consumerLane) outOfRange(logStart int64, resets int) {
	l.c.trace.probe("offset out of range")
	follower := l.anyReplica && l.leader != l.c.ghost.Leader(tp(l.partition))
	if follower && logStart > l.position {
		// Retention is each broker's own, by its own clock: another may have it still (KIP-392 sends the consumer to the leader).
		l.again()
		return
	}
	if logStart > l.position {
		l.c.ghost.S20AtLeastOnce(tp(l.partition), l.position, logStart, resets)
		l.position, l.last = logStart, -1
		l.next()
		return
	}
	if l.c.cfg.rules.Unclean && l.anyReplica { // what it has read is lost, and its policy is to begin anew
		l.position, l.last = logStart, -1
		l.again()
		return
	}
	if follower {
		// A consumer that believes this resets to where its policy says: here, to the beginning (G2).
		l.c.violated("S22 PollContiguity: consumer %d has read partition %d up to %d, and broker %d, which follows broker %d, calls that out of range", l.r.number, l.partition, l.position, l.leader, l.c.ghost.Leader(tp(l.partition)))
		return
	}
	l.checked = -1
	l.again()
}
