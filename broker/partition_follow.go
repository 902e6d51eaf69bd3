package broker

import (
	"errors"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/broker/replica"
	"github.com/tidemark-log/tidemark/storage"
)

// nextAsk is what the partition wants of that leader now. flushing: nothing before a sync has ended.
func (p *partition) nextAsk(leader int32) (ask replica.Ask, flushing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.repl
	if p.usable() != nil || q.leader.Leading() || q.follower.Leader() != leader || q.flushing {
		return replica.Ask{}, q != nil && q.flushing
	}
	return q.follower.Next(p.b.env.Now()), false
}

// syncForFetch syncs what was fetched, since the next fetch says that it is safe here.
func (p *partition) syncForFetch() {
	p.step(func(fx *effects) {
		if p.usable() == nil {
			p.repl.flushing = true
			p.flushLocked(fx)
		}
	})
}

// askFailed tells the partition that its question got no answer.
func (p *partition) askFailed() {
	p.step(func(*effects) {
		if p.usable() == nil {
			p.repl.follower.Failed(p.b.env.Now())
		}
	})
}

// epochEnd takes the leader's answer to where an epoch ends in its log.
func (p *partition) epochEnd(asked replica.Ask, a *kmsg.OffsetForLeaderEpochResponseTopicPartition) {
	p.step(func(fx *effects) {
		if p.usable() != nil {
			return
		}
		do := p.repl.follower.EpochEnd(replica.EpochEndReply{
			LeaderEpoch: asked.LeaderEpoch, EndOf: asked.EndOf, Code: a.ErrorCode,
			EpochEnd: replica.EpochEnd{Epoch: a.LeaderEpoch, End: a.EndOffset}, Now: p.b.env.Now(),
		})
		p.tryFollow(fx, do, nil)
	})
}

// fetched takes the leader's answer to a fetch, and says whether it brought records.
func (p *partition) fetched(asked replica.Ask, a *kmsg.FetchResponseTopicPartition) (brought bool) {
	p.step(func(fx *effects) {
		if p.usable() != nil {
			return
		}
		do := p.repl.follower.Fetched(replica.FetchReply{
			LeaderEpoch: asked.LeaderEpoch, Offset: asked.Offset, Code: a.ErrorCode, LogStart: a.LogStartOffset, HW: a.HighWatermark,
			Diverging:   replica.EpochEnd{Epoch: a.DivergingEpoch.Epoch, End: a.DivergingEpoch.EndOffset},
			IsDiverging: a.DivergingEpoch.EndOffset >= 0, HasRecords: len(a.RecordBatches) > 0, Now: p.b.env.Now(),
		})
		brought = do.Action == replica.DoAppend
		if p.tryFollow(fx, do, a.RecordBatches) && a.ErrorCode == codeNone && !do.Stale {
			p.followLogStart(fx, a.LogStartOffset)
		}
	})
	return brought
}

// tryFollow does what the follower decided; where the log cannot be changed so, it waits before it asks again.
func (p *partition) tryFollow(fx *effects, do replica.Do, records []byte) bool {
	if err := p.followed(fx, do, records); err != nil {
		p.repl.follower.Failed(p.b.env.Now())
		return false
	}
	return true
}

// followed carries out what the follower decided.
func (p *partition) followed(fx *effects, do replica.Do, records []byte) error {
	q := p.repl
	if do.HWMoved {
		p.followVisible(fx)
	}
	var err error
	switch do.Action {
	case replica.DoNothing:
		return nil
	case replica.DoTruncate:
		if do.Offset < p.log.LogEndOffset() {
			p.b.report(env.Info, "%s-%d: truncated from offset %d to %d, as the leader of epoch %d has it", p.topic, p.index, p.log.LogEndOffset(), do.Offset, p.epoch)
		}
		if do.BelowHW {
			p.b.report(env.Error, "%s-%d: truncation to offset %d below the high watermark %d: committed records are given up", p.topic, p.index, do.Offset, q.follower.HighWatermark())
		}
		err = p.log.Truncate(do.Offset)
	case replica.DoRestart:
		p.b.report(env.Warn, "%s-%d: the leader's log begins at offset %d, above this one's end %d: it begins anew there", p.topic, p.index, do.Offset, p.log.LogEndOffset())
		err = p.log.TruncateFullyAndStartAt(do.Offset)
	case replica.DoAppend:
		return p.appendFetched(fx, records)
	}
	if err != nil {
		p.changeFailed(fx, err)
		return err
	}
	if next := q.follower.Truncated(); next.HWMoved || p.visible > p.log.LogEndOffset() {
		p.followVisible(fx)
	}
	return nil
}

// appendFetched appends what a leader's answer brought, offsets and epochs as they are.
func (p *partition) appendFetched(fx *effects, records []byte) error {
	epoch := p.epoch
	if !p.b.rules.FenceFetchByEpoch {
		epoch = math.MaxInt32 // nor does the follower look at the epochs that it is sent: its side of the same fence (B4)
	}
	a, err := p.log.Append(records, storage.AppendArgs{Replica: true, LeaderEpoch: epoch, Now: p.b.env.Wall().UnixMilli()})
	if err != nil {
		if _, refused := errors.AsType[*storage.ReplicaError](err); refused {
			p.reportRead("a fetch", err) // the leader answered garbage: nothing was written
		} else {
			p.changeFailed(fx, err)
		}
		return err
	}
	p.appendedBytes += int64(a.Bytes)
	p.markBytes()
	cfg := p.cfg.Load()
	p.sync.unflushed += a.LastOffset - a.BaseOffset + 1
	if a.Rolled || p.sync.unflushed >= cfg.Log.FlushMessages {
		p.flushLocked(fx)
	}
	p.startFlushTimer(cfg)
	if do := p.repl.follower.Appended(); do.HWMoved {
		p.followVisible(fx)
	}
	return nil
}

// followVisible shows consumers what the follower's high watermark allows; after a truncation that may be less.
func (p *partition) followVisible(fx *effects) {
	hw := min(p.repl.follower.HighWatermark(), p.log.LogEndOffset())
	if hw < p.visible {
		p.visible = hw
		p.repl.marks = p.repl.marks[:0]
		if o := p.b.observer; o != nil {
			o.HighWatermark(p.topic, p.index, hw, nil)
		}
		return
	}
	p.showVisible(fx)
}

// followLogStart drops what the leader has dropped.
func (p *partition) followLogStart(fx *effects, start int64) {
	if start <= p.log.LogStartOffset() || start > p.committed() {
		return
	}
	if err := p.log.AdvanceLogStart(start, p.committed()); err != nil {
		p.changeFailed(fx, err)
	}
}
