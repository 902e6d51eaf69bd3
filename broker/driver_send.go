package broker

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/controller"
	"github.com/tidemark-log/tidemark/broker/env"
)

// commandTimeout is how long the controller waits for a broker to carry out a
// command; opening thousands of partitions takes a while. Then it sends it again.
const commandTimeout = 30 * time.Second

// logsWait is how long an election waits for the log of a replica that lives, was not there last and does not answer: the
// question has timed out, and been asked again.
const logsWait = 2 * commandTimeout

// The versions that brokers speak among each other.
const (
	leaderAndISRVersion       = 6
	stopReplicaVersion        = 3
	updateMetadataVersion     = 7
	controlledShutdownVersion = 3
)

// tagELR is the number of our own tagged field of a LeaderAndIsr partition: its ELR, which
// the leader has to write along with each ISR (KIP-966 gives it to the controller instead).
const tagELR = 10_000

// tagLastKnownELR is the number of another: see controller.State.
const tagLastKnownELR = 10_003

// tagTopicID is the number of our own tagged field of a StopReplica topic: its id. A
// deletion that arrives late must not hit a topic that was made again under the name.
const tagTopicID = 10_001

// tagLog is the number of our own tagged field of a partition in the answer to LeaderAndIsr: how far the log of a
// partition without a leader reaches (KIP-966 has a request of its own for it).
const tagLog = 10_002

// tagSeq is the number of our own tagged field of an UpdateMetadata: its number among the commands of the controller's term.
const tagSeq = 10_004

// send encodes a command, sends it, and tells the controller what came back.
func (d *driver) send(e controller.Send) {
	to := env.Peer{ID: e.To.ID, Host: e.To.Host, Port: e.To.Port}
	d.b.env.Send(to, d.encode(e), commandTimeout, func(resp kmsg.Response, err error) {
		in := controller.CommandDone{Broker: e.To.ID, Seq: e.Seq, Failed: err != nil}
		if err == nil {
			in.Code, in.Errors, in.Logs = d.answerOf(e.Command, resp)
		}
		d.step(in)
	})
}

func (d *driver) encode(e controller.Send) kmsg.Request {
	switch c := e.Command.(type) {
	case *controller.LeaderAndISR:
		req := kmsg.NewPtrLeaderAndISRRequest()
		req.Version, req.ControllerID, req.ControllerEpoch, req.BrokerEpoch = leaderAndISRVersion, d.b.static.BrokerID, e.ControllerEpoch, e.BrokerEpoch
		if c.Full {
			req.Type = 1
		}
		for _, l := range c.LiveLeaders {
			live := kmsg.NewLeaderAndISRRequestLiveLeader()
			live.BrokerID, live.Host, live.Port = l.ID, l.Host, l.Port
			req.LiveLeaders = append(req.LiveLeaders, live)
		}
		for i := range c.Partitions {
			p := &c.Partitions[i]
			if n := len(req.TopicStates); n == 0 || req.TopicStates[n-1].Topic != p.Partition.Topic {
				t := kmsg.NewLeaderAndISRRequestTopicState()
				t.Topic, t.TopicID = p.Partition.Topic, p.TopicID
				req.TopicStates = append(req.TopicStates, t)
			}
			t := &req.TopicStates[len(req.TopicStates)-1]
			t.PartitionStates = append(t.PartitionStates, encodeLeaderAndISR(p))
		}
		return req
	case *controller.UpdateMetadata:
		req := kmsg.NewPtrUpdateMetadataRequest()
		req.Version, req.ControllerID, req.ControllerEpoch, req.BrokerEpoch = updateMetadataVersion, d.b.static.BrokerID, e.ControllerEpoch, e.BrokerEpoch
		req.UnknownTags.Set(tagSeq, binary.BigEndian.AppendUint64(nil, e.Seq))
		for i := range c.Brokers {
			req.LiveBrokers = append(req.LiveBrokers, encodeLiveBroker(&c.Brokers[i]))
		}
		for i := range c.Partitions {
			p := &c.Partitions[i]
			if n := len(req.TopicStates); n == 0 || req.TopicStates[n-1].Topic != p.Partition.Topic {
				t := kmsg.NewUpdateMetadataRequestTopicState()
				t.Topic, t.TopicID = p.Partition.Topic, p.TopicID
				req.TopicStates = append(req.TopicStates, t)
			}
			t := &req.TopicStates[len(req.TopicStates)-1]
			m := kmsg.NewUpdateMetadataRequestTopicPartition()
			m.Partition, m.ControllerEpoch, m.Leader, m.LeaderEpoch = p.Partition.Partition, p.ControllerEpoch, p.Leader, p.LeaderEpoch
			m.ISR, m.ZKVersion, m.Replicas, m.OfflineReplicas = p.ISR, p.PartitionEpoch, p.Replicas, p.Offline
			t.PartitionStates = append(t.PartitionStates, m)
		}
		return req
	case *controller.StopReplica:
		req := kmsg.NewPtrStopReplicaRequest()
		req.Version, req.ControllerID, req.ControllerEpoch, req.BrokerEpoch = stopReplicaVersion, d.b.static.BrokerID, e.ControllerEpoch, e.BrokerEpoch
		for _, p := range c.Partitions {
			if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != p.Partition.Topic {
				t := kmsg.NewStopReplicaRequestTopic()
				t.Topic = p.Partition.Topic
				t.UnknownTags.Set(tagTopicID, bytes.Clone(p.TopicID[:]))
				req.Topics = append(req.Topics, t)
			}
			t := &req.Topics[len(req.Topics)-1]
			s := kmsg.NewStopReplicaRequestTopicPartitionState()
			s.Partition, s.LeaderEpoch, s.Delete = p.Partition.Partition, p.LeaderEpoch, p.Delete
			t.PartitionStates = append(t.PartitionStates, s)
		}
		return req
	}
	panic("BUG: broker: unknown command of the controller")
}

func encodeLeaderAndISR(p *controller.PartitionInfo) kmsg.LeaderAndISRRequestTopicPartition {
	s := kmsg.NewLeaderAndISRRequestTopicPartition()
	s.Partition, s.ControllerEpoch, s.Leader, s.LeaderEpoch = p.Partition.Partition, p.ControllerEpoch, p.Leader, p.LeaderEpoch
	s.ISR, s.ZKVersion, s.Replicas, s.AddingReplicas, s.RemovingReplicas = p.ISR, p.PartitionEpoch, p.Replicas, p.Adding, p.Removing
	if len(p.ELR) > 0 {
		s.UnknownTags.Set(tagELR, encodeIDs(p.ELR))
	}
	if len(p.LastKnownELR) > 0 {
		s.UnknownTags.Set(tagLastKnownELR, encodeIDs(p.LastKnownELR))
	}
	return s
}

func encodeLiveBroker(b *controller.Broker) kmsg.UpdateMetadataRequestLiveBroker {
	live := kmsg.NewUpdateMetadataRequestLiveBroker()
	live.ID = b.ID
	if b.Rack != "" {
		live.Rack = &b.Rack
	}
	endpoint := kmsg.NewUpdateMetadataRequestLiveBrokerEndpoint()
	endpoint.Host, endpoint.Port, endpoint.ListenerName = b.Host, b.Port, "PLAINTEXT"
	live.Endpoints = []kmsg.UpdateMetadataRequestLiveBrokerEndpoint{endpoint}
	return live
}

// encodeIDs and decodeIDs are for tagELR: four bytes each.
func encodeIDs(ids []int32) []byte {
	b := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		b = append(b, byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
	}
	return b
}

func decodeIDs(b []byte) (ids []int32) {
	for ; len(b) >= 4; b = b[4:] {
		ids = append(ids, int32(b[0])<<24|int32(b[1])<<16|int32(b[2])<<8|int32(b[3]))
	}
	return ids
}

// logEnd is tagLog's content: the leader epoch that the replica is in, that of its last record, its log end
// offset and its log start offset. It does not change before the replica is told of a leader.
func (p *partition) logEnd() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := binary.BigEndian.AppendUint32(nil, uint32(p.epoch))
	b = binary.BigEndian.AppendUint32(b, uint32(p.log.LatestEpoch()))
	b = binary.BigEndian.AppendUint64(b, uint64(p.log.LogEndOffset()))
	return binary.BigEndian.AppendUint64(b, uint64(p.log.LogStartOffset()))
}

func decodeLogEnd(b []byte, of controller.TopicPartition) (l controller.ReplicaLog, ok bool) {
	if len(b) != 24 {
		return l, false
	}
	return controller.ReplicaLog{
		Partition: of, LeaderEpoch: int32(binary.BigEndian.Uint32(b)), LastEpoch: int32(binary.BigEndian.Uint32(b[4:])), End: int64(binary.BigEndian.Uint64(b[8:])), Start: int64(binary.BigEndian.Uint64(b[16:])),
	}, true
}

// answerOf gives the code of an answer, the codes of the partitions in it that are not 0, and the ends of logs that it tells.
func (d *driver) answerOf(command controller.Command, resp kmsg.Response) (code int16, failed []controller.PartitionError, logs []controller.ReplicaLog) {
	note := func(topic string, partition int32, code int16) {
		if code != codeNone {
			failed = append(failed, controller.PartitionError{Partition: controller.TopicPartition{Topic: topic, Partition: partition}, Code: code})
		}
	}
	switch r := resp.(type) {
	case *kmsg.LeaderAndISRResponse:
		names := map[[16]byte]string{}
		if c, ok := command.(*controller.LeaderAndISR); ok {
			for i := range c.Partitions {
				names[c.Partitions[i].TopicID] = c.Partitions[i].Partition.Topic
			}
		}
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				note(names[t.TopicID], p.Partition, p.ErrorCode)
				p.UnknownTags.Each(func(tag uint32, value []byte) {
					if l, ok := decodeLogEnd(value, controller.TopicPartition{Topic: names[t.TopicID], Partition: p.Partition}); ok && tag == tagLog {
						logs = append(logs, l)
					}
				})
			}
		}
		return r.ErrorCode, failed, logs
	case *kmsg.UpdateMetadataResponse:
		return r.ErrorCode, nil, nil
	case *kmsg.StopReplicaResponse:
		for _, p := range r.Partitions {
			note(p.Topic, p.Partition, p.ErrorCode)
		}
		return r.ErrorCode, failed, nil
	}
	return codeUnknownServerError, nil, nil
}
