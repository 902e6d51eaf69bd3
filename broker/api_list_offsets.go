package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListOffsets, versions 1-11.
//
// Left out: remote storage, so the earliest local offset (-4) is the log start
// offset and the offsets of tiers (-5, -6) are unknown (-1); isolation levels,
// since there are no transactions.

// The timestamps that mean a place.
const (
	timestampLatest        = -1
	timestampEarliest      = -2
	timestampMax           = -3
	timestampEarliestLocal = -4
	timestampLatestTiered  = -5
	timestampPendingUpload = -6
)

// placeSince gives the version that first knew a place. Who asks in an older one means something else, or
// errs: Kafka tells it the same of a place that nobody knows.
var placeSince = map[int64]int16{
	timestampLatest: 1, timestampEarliest: 1, timestampMax: 7, timestampEarliestLocal: 8, timestampLatestTiered: 9, timestampPendingUpload: 11,
}

// A partition that a request names twice is answered with INVALID_REQUEST, as Kafka does. A lookup by timestamp
// may decompress a batch: a hundred thousand of them for a megabyte's request would take hours.
type askedPartition struct {
	topic     string
	partition int32
}

// timesAsked counts how often a request names each partition.
func timesAsked(req *kmsg.ListOffsetsRequest) map[askedPartition]int {
	times := map[askedPartition]int{}
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			times[askedPartition{req.Topics[i].Topic, req.Topics[i].Partitions[j].Partition}]++
		}
	}
	return times
}

func (b *Broker) listOffsets(req *kmsg.ListOffsetsRequest) *kmsg.ListOffsetsResponse {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	m := b.meta.Load()
	named := timesAsked(req)
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		rt, t := &req.Topics[i], &resp.Topics[i]
		t.Topic = rt.Topic
		t.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(rt.Partitions))
		for j := range rt.Partitions {
			rp, answer := &rt.Partitions[j], &t.Partitions[j]
			answer.Default()
			answer.Partition = rp.Partition
			answer.Timestamp, answer.Offset, answer.LeaderEpoch = -1, -1, -1
			if named[askedPartition{rt.Topic, rp.Partition}] > 1 {
				answer.ErrorCode = codeInvalidRequest
				continue
			}
			if since, known := placeSince[rp.Timestamp]; rp.Timestamp < 0 && (!known || req.Version < since) {
				answer.ErrorCode = codeUnsupportedVersion
				continue
			}
			p, code := m.topics[rt.Topic].find(rp.Partition, codeUnknownTopicOrPartition)
			if answer.ErrorCode = code; p != nil {
				p.listOffset(rp.Timestamp, rp.CurrentLeaderEpoch, answer)
			}
		}
	}
	return resp
}

func (p *partition) listOffset(timestamp int64, epoch int32, answer *kmsg.ListOffsetsResponseTopicPartition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usable(); err != nil {
		answer.ErrorCode = codeOf(err)
		return
	}
	if answer.ErrorCode = p.checkEpoch(epoch); answer.ErrorCode != codeNone {
		return
	}
	if !p.leads() {
		answer.ErrorCode = codeNotLeaderOrFollower
		return
	}
	if timestamp == timestampLatest && p.repl != nil {
		if _, ok := p.repl.leader.LatestOffset(); !ok {
			answer.ErrorCode = codeOffsetNotAvailable // less than an earlier leader may have said (KIP-207, G4)
			return
		}
	}
	switch {
	case timestamp == timestampLatest:
		answer.Offset, answer.LeaderEpoch = p.visible, p.epoch
	case timestamp == timestampEarliest, timestamp == timestampEarliestLocal:
		answer.Offset = p.log.LogStartOffset()
		answer.LeaderEpoch = p.log.EpochAt(answer.Offset) // of the record there, as a client's truncation check wants it, and not of who leads
	case timestamp == timestampLatestTiered, timestamp == timestampPendingUpload:
	case timestamp == timestampMax:
		found, err := p.maxTimestamp()
		p.putTimestamped(answer, found, err)
	default:
		found, err := p.offsetForTimestamp(timestamp)
		p.putTimestamped(answer, found, err)
	}
}

// timestamped is an offset found by its timestamp; ok is false when there is none.
type timestamped struct {
	offset, timestamp int64
	epoch             int32
	ok                bool
}

func (p *partition) putTimestamped(answer *kmsg.ListOffsetsResponseTopicPartition, f timestamped, err error) {
	if err != nil {
		answer.ErrorCode = codeOf(err)
		p.reportRead("a lookup by timestamp", err)
		return
	}
	if f.ok {
		answer.Offset, answer.Timestamp, answer.LeaderEpoch = f.offset, f.timestamp, f.epoch
	}
}

// offsetForTimestamp finds the first visible offset whose timestamp is at least ts.
func (p *partition) offsetForTimestamp(ts int64) (timestamped, error) {
	offset, timestamp, epoch, ok, err := p.log.OffsetForTimestamp(ts)
	return timestamped{offset, timestamp, epoch, ok && offset < p.visible}, err
}

// maxTimestamp finds the offset of the largest timestamp: by bisection, since a
// log answers only where a timestamp or a larger one first is. At most 2*63 looks.
func (p *partition) maxTimestamp() (timestamped, error) {
	best, err := p.offsetForTimestamp(0)
	if err != nil || !best.ok {
		return best, err
	}
	// best is one that is there; high a timestamp that neither is nor is passed.
	high := int64(noLimit)
	if f, err := p.offsetForTimestamp(high); err != nil || f.ok {
		return f, err
	}
	for step := int64(1); best.timestamp < noLimit-step; step *= 2 {
		f, err := p.offsetForTimestamp(best.timestamp + step)
		if err != nil {
			return f, err
		}
		if !f.ok {
			high = best.timestamp + step
			break
		}
		best = f
	}
	for best.timestamp < high-1 { // a record of an unread batch may have the largest of all, and that plus 1 is the least
		middle := best.timestamp + (high-best.timestamp)/2
		f, err := p.offsetForTimestamp(middle)
		switch {
		case err != nil:
			return f, err
		case f.ok:
			best = f
		default:
			high = middle
		}
	}
	return best, nil
}
