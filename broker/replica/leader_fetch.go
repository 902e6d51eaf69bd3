package replica

import (
	"fmt"
	"slices"
	"time"
)

// Fetch is a follower's fetch of one partition, with what the leader's log says to it.
type Fetch struct {
	From             BrokerID
	BrokerEpoch      BrokerEpoch // of From, as its request carries it (Fetch v15, KIP-903); -1: none
	LeaderEpoch      LeaderEpoch // in which the follower believes to be; -1: none
	Offset           Offset
	LastFetchedEpoch LeaderEpoch // of the record before Offset; -1: none, or not to be checked
	// EpochEnd is what the leader's log knows of LastFetchedEpoch, if that is not -1.
	EpochEnd EpochEnd
	LogStart Offset // of the leader's log
	Now      time.Duration
}

// Verdict says how to answer a fetch.
type Verdict int8

const (
	FetchOK         Verdict = iota
	FetchDiverging          // error 0, no records, and DivergingEpoch of FetchAnswer (KIP-595)
	FetchOutOfRange         // with the leader's log start offset
	FetchFenced             // the follower's leader epoch is older than the leader's
	FetchUnknown            // the follower's leader epoch is newer: the leader has yet to hear of it
	FetchNotLeader
	FetchNotReplica  // From is no replica that the leader knows
	FetchStaleBroker // an incarnation of From before the one that was seen
)

var verdicts = [...]struct {
	code int16
	name string
}{
	FetchOK:          {codeNone, "ok"},
	FetchDiverging:   {codeNone, "diverging"},
	FetchOutOfRange:  {codeOffsetOutOfRange, "OFFSET_OUT_OF_RANGE"},
	FetchFenced:      {codeFencedLeaderEpoch, "FENCED_LEADER_EPOCH"},
	FetchUnknown:     {codeUnknownLeaderEpoch, "UNKNOWN_LEADER_EPOCH"},
	FetchNotLeader:   {codeNotLeader, "NOT_LEADER_OR_FOLLOWER"},
	FetchNotReplica:  {codeNotLeader, "not-replica"},
	FetchStaleBroker: {codeStaleBrokerEpoch, "STALE_BROKER_EPOCH"},
}

// Code is the error code to answer with.
func (v Verdict) Code() int16 { return verdicts[v].code }

func (v Verdict) String() string { return verdicts[v].name }

// FetchAnswer is the verdict on a fetch. Diverging says where the logs part, if that is the verdict.
type FetchAnswer struct {
	Verdict   Verdict
	Diverging EpochEnd
}

// CheckEpoch holds the leader epoch that a follower believes in against the leader's:
// for fetches here, and for OffsetForLeaderEpoch requests of followers (B4).
func (l *Leader) CheckEpoch(epoch LeaderEpoch) Verdict {
	switch {
	case !l.leading:
		return FetchNotLeader
	case !l.rules.FenceFetchByEpoch:
		return FetchOK
	case epoch < l.epoch:
		return FetchFenced
	case epoch > l.epoch:
		return FetchUnknown
	}
	return FetchOK
}

// Fetched judges a follower's fetch and takes its offset for what the follower holds.
func (l *Leader) Fetched(f Fetch) (FetchAnswer, Effects) {
	l.begin()
	answer, p := l.judge(&f)
	counts := answer.Verdict == FetchOK || answer.Verdict == FetchDiverging && !l.rules.DivergingFetchNotCounted
	if counts && l.rules.HWCountsSameEpochOnly {
		counts = f.LeaderEpoch == l.epoch
	}
	if counts {
		l.count(p, &f)
		l.advance()
		l.maybeGrow(p)
	}
	return answer, l.done()
}

func (l *Leader) judge(f *Fetch) (FetchAnswer, *Position) {
	if v := l.CheckEpoch(f.LeaderEpoch); v != FetchOK {
		return FetchAnswer{Verdict: v}, nil
	}
	i, found := slices.BinarySearchFunc(l.others, f.From, func(p Position, id BrokerID) int { return int(p.ID) - int(id) })
	if !found || !l.others[i].Assigned {
		return FetchAnswer{Verdict: FetchNotReplica}, nil
	}
	p := &l.others[i]
	if f.BrokerEpoch >= 0 && f.BrokerEpoch < p.Epoch {
		return FetchAnswer{Verdict: FetchStaleBroker}, nil
	}
	if f.Offset < f.LogStart {
		return FetchAnswer{Verdict: FetchOutOfRange}, nil
	}
	if f.LastFetchedEpoch >= 0 && f.Offset == f.LogStart && (f.EpochEnd.Epoch < 0 || f.EpochEnd.End <= f.LogStart) {
		// Retention has left nothing here of the epoch that its last record is of: whether that was ever
		// committed, nobody can say. All that it has lies below the log start, so it begins anew there.
		return FetchAnswer{Verdict: FetchOutOfRange}, nil
	}
	if at, parted := divergence(f); parted {
		return FetchAnswer{FetchDiverging, at}, p
	}
	if f.Offset > l.leo {
		return FetchAnswer{Verdict: FetchOutOfRange}, nil
	}
	return FetchAnswer{Verdict: FetchOK}, p
}

// divergence says whether the follower's log, which ends at f.Offset with a record of
// LastFetchedEpoch, is not a prefix of the leader's, and where to look next.
func divergence(f *Fetch) (EpochEnd, bool) {
	switch {
	case f.LastFetchedEpoch < 0:
		return EpochEnd{}, false
	case f.EpochEnd.Epoch < 0:
		// All the leader has is newer: what the follower has above its log start cannot be the leader's.
		return EpochEnd{NoEpoch, f.LogStart}, f.Offset > f.LogStart
	case f.EpochEnd.Epoch < f.LastFetchedEpoch, f.EpochEnd.End < f.Offset:
		return f.EpochEnd, true
	}
	return EpochEnd{}, false
}

// count takes a fetch's offset, and the incarnation it came from, for the follower's.
func (l *Leader) count(p *Position, f *Fetch) {
	switch {
	case f.Offset >= l.leo:
		p.CaughtUpAt = max(p.CaughtUpAt, f.Now)
	case p.LEO != unknown && f.Offset >= p.leoThen:
		// It has all that there was when it last fetched: it keeps up with a busy leader.
		p.CaughtUpAt = max(p.CaughtUpAt, p.FetchedAt)
	}
	p.LEO, p.Epoch = f.Offset, f.BrokerEpoch
	p.FetchedAt, p.leoThen = f.Now, l.leo
}

// EpochEndAnswer is the leader's answer to "where does epoch asked end in your log",
// from what the log knows.
func (l *Leader) EpochEndAnswer(asked LeaderEpoch, log Epochs) EpochEnd {
	epoch, end := log.EndOffsetForEpoch(asked)
	if epoch >= 0 && !l.rules.EpochLookupLargest {
		epoch = asked // all that was said was where the next larger epoch starts (B3)
	}
	return EpochEnd{epoch, end}
}

// MayAppendAll says whether acks=all may append: otherwise NOT_ENOUGH_REPLICAS.
func (l *Leader) MayAppendAll() bool { return l.leading && len(l.isr) >= l.minISR() }

// Leading, and in which epoch.
func (l *Leader) Leading() bool                  { return l.leading }
func (l *Leader) LeaderEpoch() LeaderEpoch       { return l.epoch }
func (l *Leader) LogEndOffset() Offset           { return l.leo }
func (l *Leader) HighWatermark() Offset          { return l.hw }
func (l *Leader) EpochStartOffset() Offset       { return l.epochStart }
func (l *Leader) PartitionEpoch() PartitionEpoch { return l.partitionEpoch }
func (l *Leader) UnderMinISR() bool              { return len(l.isr) < l.minISR() }
func (l *Leader) Replicas() []BrokerID           { return l.replicas } // ascending; not to be changed, good until the next call
func (l *Leader) ISR() []BrokerID                { return l.isr }      // likewise
func (l *Leader) ELR() []BrokerID                { return l.elr }      // likewise
func (l *Leader) Others() []Position             { return l.others }   // likewise
func (l *Leader) String() string {
	return fmt.Sprintf("epoch=%d leo=%d hw=%d isr=%v", l.epoch, l.leo, l.hw, l.isr)
}

// AckOffset: acks=all of records below it may be answered.
func (l *Leader) AckOffset() Offset { return l.acked }

// LatestOffset is the end offset that clients may be told; ok is false while it might
// be less than an earlier leader told: then OFFSET_NOT_AVAILABLE (G4).
func (l *Leader) LatestOffset() (offset Offset, ok bool) {
	if !l.leading || l.rules.EndOffsetAfterEpochStart && l.hw < l.epochStart {
		return unknown, false
	}
	return l.hw, true
}
