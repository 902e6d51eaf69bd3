package sim

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// admin makes the topic, and deletes records where the seed says so.
type admin struct {
	w       *World
	conn    *conn
	created bool
}

func newAdmin(w *World) *admin { return &admin{w: w} }

func (a *admin) connect() {
	if a.conn = a.w.dial(a.lost); a.conn == nil {
		a.w.after(nil, 20*time.Millisecond, a.connect)
		return
	}
	if !a.created {
		a.create()
	}
}

func (a *admin) lost() {
	a.conn = nil
	a.w.after(nil, 20*time.Millisecond, a.connect)
}

func (a *admin) create() {
	req := kmsg.NewCreateTopicsRequest()
	req.TimeoutMillis = 5000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = topicName, a.w.cfg.partitions, 1
	req.Topics = append(req.Topics, topic)
	a.conn.ask(&req, 5, func(r kmsg.Response) {
		switch code := r.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; {
		case code == 0 || code == codeTopicExists:
			a.created = true
			a.w.trace.say(a.w.now, "topic created")
			a.deleteLater()
		case retriable(code):
			a.conn.breakDown()
		default:
			a.w.violated("CreateTopics is refused with error %d", code)
		}
	})
}

func (a *admin) deleteLater() {
	if a.w.cfg.deletes {
		a.w.after(nil, a.w.between(50*time.Millisecond, time.Second), a.deleteRecords)
	}
}

func (a *admin) deleteRecords() {
	if a.w.healed {
		return
	}
	defer a.deleteLater()
	i := a.w.rng.IntN(len(a.w.partitions))
	p := a.w.partitions[i]
	if a.conn == nil || p.End() <= p.Start() {
		return
	}
	to := p.Start() + a.w.rng.Int64N(p.End()-p.Start()+1)
	if bases := p.Bases(); a.w.cfg.promises.ByteOffsets && len(bases) > 0 { // whoever deletes has an offset that a read gave
		to = pick(a.w.rng, bases...)
	}
	p.Deletes(to)
	a.w.trace.say(a.w.now, "admin: deletes records of partition %d below %d", i, to)
	req := kmsg.NewDeleteRecordsRequest()
	req.TimeoutMillis = 1000
	part := kmsg.NewDeleteRecordsRequestTopicPartition()
	part.Partition, part.Offset = int32(i), to
	topic := kmsg.NewDeleteRecordsRequestTopic()
	topic.Topic, topic.Partitions = topicName, append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	a.conn.ask(&req, 2, func(r kmsg.Response) {
		switch code := r.(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0].ErrorCode; {
		case code == 0:
			a.w.trace.probe("records deleted")
		case code == codeOffsetOutOfRange: // lost by a power cut, or not yet visible
		case retriable(code):
		default:
			a.w.violated("DeleteRecords up to %d is refused with error %d", to, code)
		}
	})
}
