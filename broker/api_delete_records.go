package broker

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/storage"
)

// DeleteRecords, versions 0-2: moves the log start offset; -1 means up to the high watermark.
//
// Left out: the timeout, since no replica has to follow.

func (b *Broker) deleteRecords(req *kmsg.DeleteRecordsRequest) *kmsg.DeleteRecordsResponse {
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	m := b.meta.Load()
	resp.Topics = make([]kmsg.DeleteRecordsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		rt, t := &req.Topics[i], &resp.Topics[i]
		t.Topic = rt.Topic
		t.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(rt.Partitions))
		for j := range rt.Partitions {
			rp, answer := &rt.Partitions[j], &t.Partitions[j]
			answer.Partition, answer.LowWatermark = rp.Partition, -1
			p, code := m.topics[rt.Topic].find(rp.Partition, codeUnknownTopicOrPartition)
			if answer.ErrorCode = code; p == nil {
				continue
			}
			start, err := p.deleteBelow(rp.Offset)
			if answer.ErrorCode = codeOf(err); err == nil {
				answer.LowWatermark = start
			}
		}
	}
	return resp
}

// deleteBelow makes offset the log start offset, unless it is there already, and says what it is then.
func (p *partition) deleteBelow(offset int64) (start int64, err error) {
	p.step(func(fx *effects) { start, err = p.deleteBelowLocked(fx, offset) })
	return start, err
}

func (p *partition) deleteBelowLocked(fx *effects, offset int64) (int64, error) {
	if err := p.usable(); err != nil {
		return -1, err
	}
	if !p.leads() {
		return -1, errNotLeader
	}
	if offset == -1 {
		offset = p.committed()
	}
	if offset < 0 || offset > p.committed() {
		return -1, storage.ErrOffsetOutOfRange
	}
	if offset > p.log.LogStartOffset() {
		if err := p.log.AdvanceLogStart(offset, p.committed()); err != nil {
			if errors.As(err, new(*storage.WriteError)) {
				fx.dirFailed = err
				return -1, storage.ErrStorage
			}
			return -1, err
		}
	}
	return p.log.LogStartOffset(), nil
}
