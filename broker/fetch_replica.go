package broker

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/replica"
)

// follower is the broker whose fetch it is.
type follower struct {
	id    int32
	epoch int64 // its broker epoch; -1: it does not say
}

func (op *fetchOp) isFollower() bool { return op.follower != nil }

// ofFollower notes whether a fetch is a follower's: its field until version 14, its tag from 15 on (KIP-903).
func (op *fetchOp) ofFollower(req *kmsg.FetchRequest) int16 {
	id, epoch := req.ReplicaID, int64(-1)
	if req.Version >= 15 {
		id, epoch = req.ReplicaState.ID, req.ReplicaState.Epoch
	}
	if id >= 0 {
		if !op.b.replicated() {
			return codeInvalidRequest
		}
		op.follower = &follower{id, epoch}
		op.maxBytes = max(int(req.MaxBytes), 0)
	}
	op.rack = req.Rack
	return codeNone
}

// waitedBytes counts what a fetch waits for: a consumer what it may see, a follower what is there.
func (p *partition) waitedBytes(op *fetchOp) int64 {
	if op.isFollower() {
		return p.appendedBytes
	}
	return p.visibleBytes
}

// replicaFetchLocked answers one part of a fetch where partitions are replicated.
func (p *partition) replicaFetchLocked(fx *effects, f *fetchPart, left int, first bool) {
	if f.op.isFollower() {
		p.fetchOfFollower(fx, f, left, first)
		return
	}
	f.hw, f.start = p.visible, p.log.LogStartOffset()
	if f.code = p.checkEpoch(f.epoch); f.code != codeNone {
		return
	}
	if !p.leads() {
		if f.code = p.followerServes(f); f.code == codeNone {
			p.readLocked(f, p.readLimit(f.offset), left, first)
		}
		return
	}
	switch {
	case f.offset < f.start || f.offset > p.log.LogEndOffset():
		f.code = codeOffsetOutOfRange
	default:
		if f.preferred = p.preferredReader(f); f.preferred == noBroker {
			p.readLocked(f, p.readLimit(f.offset), left, first)
		}
	}
}

// readLimit is where a consumer's read ends: taken once, with the answer's high watermark.
// Without rule G3 it is looked at twice: is there anything to read, and, when the read is
// under way, how long is the file by now (KAFKA-727).
func (p *partition) readLimit(offset int64) int64 {
	if offset < p.visible && !p.b.rules.ReadLimitSnapshot {
		return p.log.LogEndOffset()
	}
	return p.visible
}

// followerServes says whether this follower may answer a consumer (KIP-392).
func (p *partition) followerServes(f *fetchPart) int16 {
	if p.cfg.Load().ReadFrom != ReadFollower || !p.repl.told {
		return codeNotLeaderOrFollower
	}
	return p.repl.follower.ConsumerOffset(f.offset)
}

// preferredReader is the in-sync replica in the consumer's rack, if it has another and
// such a replica has what the consumer is to read (KIP-392; G6: in the ISR, and alive).
func (p *partition) preferredReader(f *fetchPart) int32 {
	if p.cfg.Load().ReadFrom != ReadFollower || f.op.rack == "" || f.op.rack == p.b.static.Rack || f.op.version < 11 {
		return noBroker
	}
	nodes := p.b.meta.Load().nodes
	for _, other := range p.repl.leader.Others() {
		if !other.InISR || other.LEO < f.offset {
			continue
		}
		i, found := slices.BinarySearchFunc(nodes, other.ID, func(n node, id int32) int { return int(n.id) - int(id) })
		if found && nodes[i].rack == f.op.rack {
			return other.ID
		}
	}
	return noBroker
}

// fetchOfFollower judges a follower's fetch, which acknowledges all below its offset,
// and gives it what it lacks, committed or not.
func (p *partition) fetchOfFollower(fx *effects, f *fetchPart, left int, first bool) {
	l := p.repl.leader
	f.start, f.diverging = p.log.LogStartOffset(), replica.NoEpochEnd
	asked := replica.Fetch{
		From: f.op.follower.id, BrokerEpoch: f.op.follower.epoch, LeaderEpoch: f.epoch, Offset: f.offset,
		LastFetchedEpoch: f.lastFetched, EpochEnd: replica.NoEpochEnd, LogStart: f.start, Now: p.b.env.Now(),
	}
	if f.lastFetched >= 0 {
		asked.EpochEnd.Epoch, asked.EpochEnd.End = p.log.EndOffsetForEpoch(f.lastFetched)
	}
	verdict, e := l.Fetched(asked)
	p.led(fx, e)
	f.hw = l.HighWatermark()
	f.code = verdict.Verdict.Code()
	switch verdict.Verdict {
	case replica.FetchDiverging:
		f.diverging = verdict.Diverging
	case replica.FetchOK:
		p.readLocked(f, p.log.LogEndOffset(), left, first)
	}
}
