package broker

import "github.com/twmb/franz-go/pkg/kmsg"

// OffsetForLeaderEpoch, versions 0-4: where an epoch ends in this log (KIP-320,
// KIP-279), by which a consumer learns that a log was cut below what it had read.
//
// Left out: nothing that one broker needs.

func (b *Broker) offsetForLeaderEpoch(req *kmsg.OffsetForLeaderEpochRequest) *kmsg.OffsetForLeaderEpochResponse {
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	m := b.meta.Load()
	resp.Topics = make([]kmsg.OffsetForLeaderEpochResponseTopic, len(req.Topics))
	for i := range req.Topics {
		rt, t := &req.Topics[i], &resp.Topics[i]
		t.Topic = rt.Topic
		t.Partitions = make([]kmsg.OffsetForLeaderEpochResponseTopicPartition, len(rt.Partitions))
		for j := range rt.Partitions {
			rp, answer := &rt.Partitions[j], &t.Partitions[j]
			answer.Default()
			answer.Partition, answer.LeaderEpoch, answer.EndOffset = rp.Partition, -1, -1
			if p := m.partition(rt.Topic, rp.Partition); p != nil {
				p.endOfEpoch(rp, answer)
			} else {
				answer.ErrorCode = codeUnknownTopicOrPartition
			}
		}
	}
	return resp
}

func (p *partition) endOfEpoch(asked *kmsg.OffsetForLeaderEpochRequestTopicPartition, answer *kmsg.OffsetForLeaderEpochResponseTopicPartition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usable(); err != nil {
		answer.ErrorCode = codeOf(err)
		return
	}
	if answer.ErrorCode = p.checkEpoch(asked.CurrentLeaderEpoch); answer.ErrorCode != codeNone {
		return
	}
	// The current epoch ends where the log does, also when it has no batch yet.
	if asked.LeaderEpoch == p.epoch {
		answer.LeaderEpoch, answer.EndOffset = p.epoch, p.log.LogEndOffset()
		return
	}
	answer.LeaderEpoch, answer.EndOffset = p.log.EndOffsetForEpoch(asked.LeaderEpoch)
}
