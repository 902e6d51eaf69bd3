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
			p, code := m.topics[rt.Topic].find(rp.Partition, codeUnknownTopicOrPartition)
			if answer.ErrorCode = code; p != nil {
				p.endOfEpoch(req.ReplicaID, rp, answer)
			}
		}
	}
	return resp
}

func (p *partition) endOfEpoch(replicaID int32, asked *kmsg.OffsetForLeaderEpochRequestTopicPartition, answer *kmsg.OffsetForLeaderEpochResponseTopicPartition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usable(); err != nil {
		answer.ErrorCode = codeOf(err)
		return
	}
	if p.repl != nil && replicaID >= 0 {
		// A follower that learns where to truncate must be in this leader's epoch (B4).
		if answer.ErrorCode = p.repl.leader.CheckEpoch(asked.CurrentLeaderEpoch).Code(); answer.ErrorCode == codeNone {
			end := p.repl.leader.EpochEndAnswer(asked.LeaderEpoch, p.log)
			answer.LeaderEpoch, answer.EndOffset = end.Epoch, end.End
		}
		return
	}
	if answer.ErrorCode = p.checkEpoch(asked.CurrentLeaderEpoch); answer.ErrorCode != codeNone {
		return
	}
	if !p.leads() {
		answer.ErrorCode = codeNotLeaderOrFollower
		return
	}
	// The current epoch ends where the log does, also when it has no batch yet.
	if asked.LeaderEpoch == p.epoch {
		answer.LeaderEpoch, answer.EndOffset = p.epoch, p.log.LogEndOffset()
		return
	}
	answer.LeaderEpoch, answer.EndOffset = p.log.EndOffsetForEpoch(asked.LeaderEpoch)
}
