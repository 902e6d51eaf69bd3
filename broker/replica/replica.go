// Package replica holds the rules by which one partition is replicated: as its
// leader (Leader: in-sync replicas and high watermark), as one of its followers
// (Follower: where to truncate, what to fetch next), and for the fetcher that asks
// one leader broker for many partitions (Fetcher).
//
// It decides and never acts. A driver calls a method for what happened, under the
// partition's lock, and carries out the effects that it returns: the broker with
// real I/O, the simulator with faults. Time is an argument, what the log holds too.
//
// What must hold before what:
//
//  1. A fetch at offset n says "I hold everything below n, durably where acks promise
//     that", so it also acknowledges: a follower syncs first (AskFlush), and only a
//     fetch in the leader's own epoch that does not diverge counts (B4, B7, B8).
//  2. A record is committed once everyone who may be elected has it: the ISR as the
//     coordination service has it and every ISR that was proposed and may still be
//     accepted (C1). Leaders change the ISR by conditional writes (C5), which count when accepted.
//  3. While the ISR is below min.insync.replicas nothing is committed, so what drops out of it
//     then still has everything that is (A2) and stays eligible in the ELR (A6).
//  4. A follower truncates to where its log and the leader's part before it fetches in a
//     new leader epoch (B1, B5), and takes a high watermark only with what it has (G1).
//
// Every rule (package rules) is asked in one place here; the other branch does what
// was done before the fix.
package replica

import "slices"

// The words of this package. Aliases: they tell which number is meant, and need no conversion.
type (
	BrokerID       = int32
	LeaderEpoch    = int32 // -1: none
	BrokerEpoch    = int64 // -1: none
	PartitionEpoch = int32 // version of the partition's state
	Offset         = int64
)

// NoEpoch stands where no leader epoch is known.
const NoEpoch LeaderEpoch = -1

// unknown is the position of a follower that has not fetched in this leader epoch.
const unknown Offset = -1

// State is what the coordination service holds of a partition, as far as its leader cares.
type State struct {
	Leader         BrokerID
	LeaderEpoch    LeaderEpoch
	ISR, ELR       []BrokerID // any order
	PartitionEpoch PartitionEpoch
}

// EpochEnd is what a log knows of a leader epoch: the largest epoch that is not above
// the one asked for, and the offset at which it ends; -1, -1 if there is none.
type EpochEnd struct {
	Epoch LeaderEpoch
	End   Offset
}

// NoEpochEnd: the log has no such epoch, nor a smaller one.
var NoEpochEnd = EpochEnd{NoEpoch, unknown}

// Epochs is a log's knowledge of its leader epochs; storage.Log has it.
type Epochs interface {
	EndOffsetForEpoch(asked LeaderEpoch) (LeaderEpoch, Offset)
	LogStartOffset() Offset
	LogEndOffset() Offset
}

// Codes of Kafka's protocol by which leader and follower talk.
const (
	codeNone               = 0
	codeOffsetOutOfRange   = 1
	codeNotLeader          = 6
	codeFencedLeaderEpoch  = 74
	codeUnknownLeaderEpoch = 75
	codeStaleBrokerEpoch   = 77
	codeOffsetNotAvailable = 78
)

// ascending is a sorted copy without repetitions, in the memory of dst.
func ascending(dst, ids []BrokerID) []BrokerID {
	dst = append(dst[:0], ids...)
	slices.Sort(dst)
	return slices.Compact(dst)
}

// sameSet compares two lists as sets; both are short.
func sameSet(a, b []BrokerID) bool {
	return contains(a, b) && contains(b, a)
}

func contains(a, b []BrokerID) bool {
	for _, x := range b {
		if !slices.Contains(a, x) {
			return false
		}
	}
	return true
}
