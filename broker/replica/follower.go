package replica

import (
	"fmt"
	"math"
	"time"

	"github.com/tidemark-log/tidemark/broker/rules"
)

// Phase is what a follower is about.
type Phase int8

const (
	Stopped    Phase = iota // no leader is known, or this broker leads
	Truncating              // asks the leader where the logs part; nothing is fetched before it knows
	Fetching
	Resetting // a fetch was out of range: asks the leader for its log end offset
)

func (p Phase) String() string {
	return [...]string{"stopped", "truncating", "fetching", "resetting"}[p]
}

// Retries wait from backoffMin, doubled up to backoffMax.
const (
	backoffMin = 50 * time.Millisecond
	backoffMax = 1 * time.Second
)

// Follower is one partition's follower.
//
// Invariant: HighWatermark <= LEO of its log. It may fall, by truncation.
type Follower struct {
	rules   rules.Rules
	log     Epochs
	durable bool // acks promise durability: what is fetched is synced before the next fetch acknowledges it

	phase    Phase
	leader   BrokerID
	epoch    LeaderEpoch
	hw       Offset
	flushed  Offset
	leaderHW Offset // of the response whose records are being appended

	asked    LeaderEpoch // last epoch asked for by OffsetForLeaderEpoch
	rounds   int         // of truncation in this leader epoch
	failures int         // in a row
	notUntil time.Duration
}

// AskKind is what a follower wants next.
type AskKind int8

const (
	AskNothing  AskKind = iota // until NotBefore, or until something happens
	AskEpochEnd                // OffsetForLeaderEpoch of EndOf; the reply goes to EpochEnd
	AskFetch                   // the reply goes to Fetched
	AskFlush                   // sync the log, tell Flushed, and ask again
)

// Ask is the next question to the leader. What comes back is told with the LeaderEpoch of the question.
type Ask struct {
	Kind        AskKind
	Leader      BrokerID
	LeaderEpoch LeaderEpoch   // current leader epoch, to be sent along
	EndOf       LeaderEpoch   // AskEpochEnd
	Offset      Offset        // AskFetch
	LastFetched LeaderEpoch   // AskFetch: last fetched epoch to send; -1: none
	NotBefore   time.Duration // AskNothing: 0 if only an input changes it
}

// Action is what to do with the log after a call.
type Action int8

const (
	DoNothing Action = iota
	// DoTruncate: log.Truncate(Offset), also where that is the log end: an epoch that
	// began there without a record has to go. Then tell Truncated.
	DoTruncate
	// DoRestart: empty the log and start it at Offset. Then tell Truncated.
	DoRestart
	// DoAppend the records of the response, as the leader's. Then tell Appended, or Failed.
	DoAppend
)

// Do is what to do, in the order of the fields.
type Do struct {
	HWMoved bool // HighWatermark is another: tell the log and the consumers who read here
	Action  Action
	Offset  Offset // of DoTruncate and DoRestart
	BelowHW bool   // the truncation drops what was committed: an unclean election, or a broken rule. To be reported.
	Stale   bool   // the reply was not for the present: dropped
}

// NewFollower is a partition's follower before its first Become.
func NewFollower(r rules.Rules, log Epochs, durableBeforeAck bool) *Follower {
	return &Follower{rules: r, log: log, durable: durableBeforeAck, leader: -1, epoch: NoEpoch}
}

// BecomeFollower is a LeaderAndIsr command that makes this broker follow.
type BecomeFollower struct {
	Leader      BrokerID // -1: nobody leads
	LeaderEpoch LeaderEpoch
	HW          Offset
	Flushed     Offset
}

// Become begins to follow in a leader epoch. One that is not newer is an error.
func (f *Follower) Become(in BecomeFollower) (Do, error) {
	if in.LeaderEpoch <= f.epoch {
		return Do{}, fmt.Errorf("replica: told to follow in epoch %d after epoch %d", in.LeaderEpoch, f.epoch)
	}
	was := f.leader
	f.leader, f.epoch = in.Leader, in.LeaderEpoch
	f.hw, f.flushed = min(in.HW, f.log.LogEndOffset()), in.Flushed
	f.rounds, f.failures, f.notUntil = 0, 0, 0
	if f.leader < 0 {
		f.phase = Stopped
		return Do{}, nil
	}
	f.phase = Truncating
	if was == f.leader && !f.rules.TruncateOnEveryEpochChange {
		f.phase = Fetching // the same leader as before, so the same log, it was thought (B5)
		return Do{}, nil
	}
	if !f.rules.TruncateByEpoch || f.lastEpoch() == NoEpoch {
		f.phase = Fetching
		return f.truncateTo(f.hw), nil // all that is known to be the leader's too; with the rule off: thought to be all that was committed (B1)
	}
	return Do{}, nil
}

// Stop ends following: this broker leads now, has been deposed, or gave the partition up. hw is what it knows to be
// committed. The next Become truncates.
func (f *Follower) Stop(epoch LeaderEpoch, hw Offset) {
	f.phase, f.leader, f.epoch, f.hw = Stopped, -1, max(f.epoch, epoch), hw
}

// lastEpoch is the epoch of the last record. An epoch that began at the log end and
// has no record yet (this broker led and wrote nothing) is not it.
func (f *Follower) lastEpoch() LeaderEpoch {
	if f.log.LogEndOffset() <= f.log.LogStartOffset() {
		return NoEpoch
	}
	epoch, _ := f.log.EndOffsetForEpoch(math.MaxInt32)
	for epoch >= 0 {
		smaller, end := f.log.EndOffsetForEpoch(epoch - 1)
		if smaller < 0 || end < f.log.LogEndOffset() {
			break
		}
		epoch = smaller
	}
	return epoch
}

// Next is what to ask the leader now.
func (f *Follower) Next(now time.Duration) Ask {
	ask := Ask{Leader: f.leader, LeaderEpoch: f.epoch}
	switch {
	case f.phase == Stopped:
	case now < f.notUntil:
		ask.NotBefore = f.notUntil
	case f.phase == Truncating:
		if f.asked = f.lastEpoch(); f.asked == NoEpoch { // truncated to nothing
			f.phase = Fetching
			return f.Next(now)
		}
		ask.Kind, ask.EndOf = AskEpochEnd, f.asked
	case f.phase == Resetting:
		f.asked = f.epoch
		ask.Kind, ask.EndOf = AskEpochEnd, f.asked
	case f.durable && f.flushed < f.log.LogEndOffset():
		ask.Kind = AskFlush
	default:
		ask.Kind, ask.Offset, ask.LastFetched = AskFetch, f.log.LogEndOffset(), NoEpoch
		if f.rules.TruncateOnFetch {
			ask.LastFetched = f.lastEpoch()
		}
	}
	return ask
}

// current says whether a reply answers a question of this leader epoch and phase (B10).
func (f *Follower) current(asked LeaderEpoch, phase bool) bool {
	return f.phase != Stopped && (asked == f.epoch && phase || !f.rules.MatchReplyEpoch)
}

// EpochEndReply answers AskEpochEnd.
type EpochEndReply struct {
	LeaderEpoch LeaderEpoch // of the question
	EndOf       LeaderEpoch // asked for
	Code        int16       // not 0: an error, of which the rest knows nothing
	EpochEnd                // -1, -1: the leader has no epoch that small
	Now         time.Duration
}

// EpochEnd takes the leader's answer and says where to truncate.
func (f *Follower) EpochEnd(r EpochEndReply) Do {
	asking := (f.phase == Truncating || f.phase == Resetting) && r.EndOf == f.asked
	if !f.current(r.LeaderEpoch, asking) {
		return Do{Stale: true}
	}
	if r.Code != codeNone {
		f.Failed(r.Now)
		return Do{}
	}
	f.failures = 0
	if f.phase == Resetting {
		return f.reset(r)
	}
	to, found := f.partsAt(r.EpochEnd)
	if f.rounds++; found || f.rounds >= maxRounds {
		f.phase = Fetching
	}
	return f.truncateTo(to)
}

// maxRounds of truncation in one leader epoch. Each goes to a smaller epoch, of which
// a log has few; the fetch itself is checked too, so giving up loses nothing.
const maxRounds = 1000

// partsAt is where to truncate, given the end of the leader's largest epoch that is not
// above one of ours. If that epoch is not ours, the answer is where our next smaller
// one ends, and has to be asked about again (KIP-279).
func (f *Follower) partsAt(at EpochEnd) (to Offset, found bool) {
	leo := f.log.LogEndOffset()
	if at.End < 0 {
		return min(f.hw, leo), true // all that the leader has is newer than all that is here
	}
	if at.Epoch < 0 {
		return min(at.End, leo), true
	}
	own, end := f.log.EndOffsetForEpoch(at.Epoch)
	switch {
	case own < 0:
		// All that is here is of epochs that the leader does not have. (Kafka keeps
		// what lies below at.End, and then finds no way out of the divergence.)
		return min(at.End, f.log.LogStartOffset()), true
	case own != at.Epoch:
		return min(end, leo), false
	}
	return min(end, at.End, leo), true
}

// reset follows an out-of-range fetch: the reply's End is the leader's log end offset.
// A leader that ends below what is here was elected uncleanly, or this log has a tail that never was committed.
func (f *Follower) reset(r EpochEndReply) Do {
	f.phase = Fetching
	if r.End >= 0 && r.End < f.log.LogEndOffset() {
		return f.truncateTo(r.End)
	}
	f.Failed(r.Now) // in range by now, or something else is wrong: not at once again
	return Do{}
}

func (f *Follower) truncateTo(to Offset) Do {
	d := Do{Action: DoTruncate, Offset: to, BelowHW: to < f.hw}
	f.flushed = min(f.flushed, to)
	return d
}

// FetchReply answers AskFetch.
type FetchReply struct {
	LeaderEpoch LeaderEpoch // of the question
	Offset      Offset      // of the question
	Code        int16
	LogStart    Offset // the leader's, also with OFFSET_OUT_OF_RANGE; -1: not told
	HW          Offset // the leader's
	Diverging   EpochEnd
	IsDiverging bool
	HasRecords  bool
	Now         time.Duration
}

// Fetched takes the leader's answer to a fetch.
func (f *Follower) Fetched(r FetchReply) Do {
	if !f.current(r.LeaderEpoch, f.phase == Fetching) || r.Offset != f.log.LogEndOffset() {
		return Do{Stale: true}
	}
	switch {
	case r.Code == codeOffsetOutOfRange:
		return f.outOfRange(r)
	case r.Code != codeNone:
		f.Failed(r.Now)
		return Do{}
	}
	f.leaderHW = r.HW
	if r.HasRecords && !r.IsDiverging {
		return Do{Action: DoAppend} // only what can be appended ends the failures: a leader may answer garbage again and again
	}
	f.failures = 0
	if r.IsDiverging {
		var d Do
		if !f.rules.HWNotBeforeTruncation {
			d.HWMoved = f.follow() // of records that are about to go (G1)
		}
		to, _ := f.partsAt(r.Diverging)
		if to >= f.log.LogEndOffset() { // a leader that cannot be satisfied: not a loop without end
			f.Failed(r.Now)
			return d
		}
		t := f.truncateTo(to)
		t.HWMoved = d.HWMoved
		return t
	}
	return Do{HWMoved: f.follow()}
}

func (f *Follower) outOfRange(r FetchReply) Do {
	leo := f.log.LogEndOffset()
	if r.LogStart > leo || r.LogStart == leo && leo > f.log.LogStartOffset() {
		f.hw, f.flushed = min(f.hw, leo), r.LogStart
		return Do{Action: DoRestart, Offset: r.LogStart}
	}
	f.phase = Resetting
	return Do{}
}

// follow takes the leader's high watermark as far as the own log goes.
func (f *Follower) follow() bool {
	to := min(f.leaderHW, f.log.LogEndOffset())
	if to <= f.hw {
		return false // a new leader's may be behind; what was committed stays committed
	}
	f.hw = to
	return true
}

// Appended tells that the records of a response are in the log.
func (f *Follower) Appended() Do {
	f.failures = 0
	return Do{HWMoved: f.follow()}
}

// SetDurable takes over whether acks promise durability. A fetch that is under way acknowledges what it did.
func (f *Follower) SetDurable(beforeAck bool) { f.durable = beforeAck }

// Flushed tells up to where the log is synced.
func (f *Follower) Flushed(to Offset) { f.flushed = max(f.flushed, min(to, f.log.LogEndOffset())) }

// Truncated tells that the log is cut, to where it ends now.
func (f *Follower) Truncated() Do {
	start, leo := f.log.LogStartOffset(), f.log.LogEndOffset()
	f.flushed = min(f.flushed, leo)
	hw := max(min(f.hw, leo), start)
	moved := hw != f.hw
	f.hw = hw
	return Do{HWMoved: moved}
}

// Failed tells that a question got no answer, or one that could not be used, or that
// the log could not be changed. The next waits, longer each time.
func (f *Follower) Failed(now time.Duration) {
	f.notUntil = now + min(backoffMin<<min(f.failures, 10), backoffMax)
	f.failures++
}

// Phase, Leader, LeaderEpoch and HighWatermark for whoever shows them.
func (f *Follower) Phase() Phase             { return f.phase }
func (f *Follower) Leader() BrokerID         { return f.leader }
func (f *Follower) LeaderEpoch() LeaderEpoch { return f.epoch }
func (f *Follower) HighWatermark() Offset    { return f.hw }

// ConsumerOffset judges a consumer's fetch at a follower (KIP-392): the code to answer
// with, 0 if it can be served. One that is ahead of this replica tries again, here or at the
// leader; only one below the log start is out of range (G2).
func (f *Follower) ConsumerOffset(offset Offset) int16 {
	switch {
	case f.phase == Stopped:
		return codeNotLeader
	case offset < f.log.LogStartOffset():
		return codeOffsetOutOfRange
	case offset <= f.hw:
		return codeNone
	case f.rules.FollowerOutOfRange:
		return codeOffsetNotAvailable
	}
	return codeOffsetOutOfRange
}
