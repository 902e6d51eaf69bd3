package sim

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// admin makes the topic, and where the seed says so deletes records, or the topic
// to make it again.
type admin struct {
	w       *World
	conn    *conn
	created bool // the topic is there
	// deleting: DeleteTopics was sent and not yet answered. deleted: it was
	// answered, and CreateTopics not sent yet.
	deleting, deleted bool
}

func newAdmin(w *World) *admin { return &admin{w: w} }

func (a *admin) connect() {
	if a.conn = a.w.dial(a.lost); a.conn == nil {
		a.w.after(nil, 20*time.Millisecond, a.connect)
		return
	}
	switch {
	case a.deleting:
		a.deleteTopic()
	case !a.created && !a.deleted:
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
	a.deleted = false
	a.conn.ask(&req, 5, func(r kmsg.Response) {
		switch code := r.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; {
		case code == 0 || code == codeTopicExists:
			a.made()
		case retriable(code):
			a.conn.breakDown()
		default:
			a.w.violated("CreateTopics is refused with error %d", code)
		}
	})
}

func (a *admin) made() {
	first := a.w.generation == 0
	a.created = true
	a.w.trace.say(a.w.now, "topic created")
	if !first {
		a.w.trace.probe("topic deleted and made again")
		a.w.generation++
		for i, p := range a.w.partitions {
			p.Renewed()
			a.w.consumer.positions[i] = 0
		}
	}
	if first && a.w.cfg.deletes {
		a.deleteLater()
	}
	if a.w.cfg.renews {
		a.w.after(nil, a.w.between(100*time.Millisecond, 3*time.Second), func() {
			if !a.w.healed {
				a.created, a.deleting = false, true
				a.w.generation++
				a.deleteTopic()
			}
		})
	}
}

// deleteTopic deletes the topic, and makes it again a while later.
func (a *admin) deleteTopic() {
	if a.conn == nil {
		return // connect will come here again
	}
	a.w.trace.say(a.w.now, "admin: deletes the topic")
	req := kmsg.NewDeleteTopicsRequest()
	req.TimeoutMillis, req.TopicNames = 5000, []string{topicName}
	a.conn.ask(&req, 5, func(r kmsg.Response) {
		switch code := r.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode; {
		case code == 0 || code == codeUnknownTopic: // unknown: deleted by a request whose answer was lost
			a.w.trace.say(a.w.now, "topic deleted")
			a.deleting, a.deleted = false, true
			a.w.after(nil, a.w.between(0, 500*time.Millisecond), a.createAgain)
		case retriable(code):
			a.conn.breakDown()
		default:
			a.w.violated("DeleteTopics is refused with error %d", code)
		}
	})
}

func (a *admin) createAgain() {
	if a.conn == nil {
		a.w.after(nil, 20*time.Millisecond, a.createAgain)
		return
	}
	a.create()
}

func (a *admin) deleteLater() {
	a.w.after(nil, a.w.between(50*time.Millisecond, time.Second), a.deleteRecords)
}

func (a *admin) deleteRecords() {
	if a.w.healed {
		return
	}
	defer a.deleteLater()
	i := a.w.rng.IntN(len(a.w.partitions))
	p := a.w.partitions[i]
	if a.conn == nil || !a.created || p.End() <= p.Start() {
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
