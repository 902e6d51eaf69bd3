// Package rules names the historic fixes of Kafka-style replication, so that each
// can be switched off and the failure it prevents be seen again.
//
// It is data: a rule is consulted by the package that keeps it, in one place there,
// whose off branch does what was done before the fix. Some rules hide the failure of
// another: the failure catalogue gives the vector of rules to switch off for each entry.
package rules

import (
	"fmt"
	"slices"
	"strings"
)

// Rules are the fixes in force. Each field says what happens without it, and
// names its catalogue entry and where the failure was reported.
type Rules struct {
	// TruncateByEpoch: a new follower asks its leader where its last epoch ends, and cuts
	// there. Without it, it cuts at its own high watermark, which lags behind the leader's:
	// committed records go, and are lost when it is elected next (B1, B2; KIP-101, KAFKA-1211).
	TruncateByEpoch bool

	// EpochLookupLargest: asked for an epoch it does not have, a leader answers with the
	// largest smaller one and its end. Without it, it answers with the start of the next
	// larger one alone, and two logs differ below it after fast failovers (B3; KIP-279, KAFKA-6361).
	EpochLookupLargest bool

	// FenceFetchByEpoch: a leader refuses followers that are in another leader epoch.
	// Without it, a follower that missed two elections goes on fetching from its old leader
	// and joins two histories in its log (B4; KIP-320, KAFKA-6880).
	FenceFetchByEpoch bool

	// TruncateOnEveryEpochChange: a follower truncates whenever the leader epoch changes.
	// Without it, it does so only when the leader's id changes, and misses an election
	// there and back (B5; KAFKA-7164).
	TruncateOnEveryEpochChange bool

	// ISRJoinAtEpochStart: a follower joins the ISR at the start of the leader's epoch, not
	// before. Without it, the high watermark is enough, which a new leader knows only from
	// before: a follower that lacks committed records joins (B6; KAFKA-7128).
	ISRJoinAtEpochStart bool

	// DivergingFetchNotCounted: a fetch that is answered with "diverging" says nothing of
	// what the follower holds. Without it, its offset counts, and the high watermark passes
	// records that the follower lacks (B7; KAFKA-13141).
	DivergingFetchNotCounted bool

	// HWCountsSameEpochOnly: the high watermark counts what followers fetched in the leader's
	// own epoch. Without it, a follower counts whose tail matches, though an epoch between may
	// still make it truncate (B8; KIP-320, first attempt).
	HWCountsSameEpochOnly bool

	// HWCheckpointComplete: the high watermark checkpoint holds every partition and is replaced
	// as a whole. Without it, a restart finds 0 for some, and followers truncate to it (B9;
	// KAFKA-769, KAFKA-1647).
	HWCheckpointComplete bool

	// MatchReplyEpoch: a follower drops an answer to a question of an earlier leader epoch.
	// Without it, a late answer truncates records that were accepted since (B10; KAFKA-7040, KAFKA-7786).
	MatchReplyEpoch bool

	// TruncateOnFetch: a fetch names the epoch of the last record fetched, and the leader
	// answers with where the logs part. Without it, nothing notices that truncation went
	// wrong (B2 to B5, which it hides; KAFKA-10554).
	TruncateOnFetch bool

	// MaximalISR: while an ISR change is proposed, the high watermark waits for the members of
	// both sets. Without it, records are committed without a replica that may already be in
	// the ISR and may be elected (C1; KIP-497).
	MaximalISR bool

	// ISRBrokerEpoch: a replica joins the ISR as the incarnation that was seen to be caught
	// up. Without it, it may have come back empty before the change arrives (C3; KIP-903, KAFKA-14139).
	ISRBrokerEpoch bool

	// ControllerEpochCheck: a controller writes only while its epoch is the newest. Without it,
	// one that was paused past its session undoes what its successor did (C4; KAFKA-6082).
	ControllerEpochCheck bool

	// ConditionalISRWrite: a leader writes the ISR on the condition of the version it knows.
	// Without it, a deposed leader writes over its successor's state, and both ack (C5; KIP-497, KAFKA-1483).
	ConditionalISRWrite bool

	// CommandBrokerEpoch: a broker refuses commands that were meant for its earlier incarnation.
	// Without it, an old StopReplica takes a new replica offline (C6; KIP-380, KAFKA-7235).
	CommandBrokerEpoch bool

	// EqualStateIsSuccess: a refused ISR change is held against the state itself; what is wanted
	// and already there is done. Without it, a leader whose answer was lost retries with an old
	// version for ever (C7; KAFKA-14144, KAFKA-1382).
	EqualStateIsSuccess bool

	// ResetFollowerState: a new leader epoch begins with followers of unknown position. Without
	// it, a replica that was removed and added again is judged by what it once held (C12; KAFKA-1097).
	ResetFollowerState bool

	// ShutdownNeedsOtherISR: a broker that is the only in-sync replica is not let go. Without it,
	// a graceful stop takes a partition offline (C13; KAFKA-340).
	ShutdownNeedsOtherISR bool

	// TolerateForeignISR: an id in the ISR that is no replica is removed like one that lags.
	// Without it, the task that removes those that lag fails each round, and the high
	// watermark stays (C14; KAFKA-9672).
	TolerateForeignISR bool

	// CreateChecksFenced: a new partition's ISR holds live brokers only. Without it, the high
	// watermark waits for one that is not there (C15; KAFKA-13083).
	CreateChecksFenced bool

	// ELR: replicas that leave the ISR when it falls below min.insync.replicas stay eligible, and
	// an unclean restart ends that. Without it, the last one standing leads again after it lost
	// its tail (A6; KIP-966, KAFKA-15581).
	ELR bool

	// CompareLogs: when nobody is left in ISR and ELR, because all came back unclean, the one with the
	// longest log leads, once all who were there last have said what they hold. Without
	// it, who led last leads again, though its disk may be another and empty (A6; KIP-966, unclean recovery).
	CompareLogs bool

	// FenceBeforeReregister: a broker comes back only when its old incarnation is out of leadership
	// and ISR. Without it, one that restarts faster than its session expires keeps its place
	// without its unflushed records (A7; KIP-380, KAFKA-1120).
	FenceBeforeReregister bool

	// AckAllMaximalISR: acks=all is answered when every replica that may be elected has the record.
	// Without it, any min.insync.replicas copies do, and the one without is elected (A8; KAFKA-1555).
	AckAllMaximalISR bool

	// TellLogDirFailure: a broker whose log directory failed tells the controller. Without it, it lives on
	// as the leader of partitions that it can neither write nor read, though others have them (H9; KIP-112).
	TellLogDirFailure bool

	// HWNotBeforeTruncation: a follower takes no high watermark from an answer that tells it to
	// truncate. Without it, it serves records as committed that it is about to drop (G1; KAFKA-14704).
	HWNotBeforeTruncation bool

	// FollowerOutOfRange: a follower that is behind a consumer tells it to try again. Without it,
	// the consumer hears "out of range" and resets (G2; KIP-392).
	FollowerOutOfRange bool

	// ReadLimitSnapshot: a read takes its end limit once. Without it, an append between two looks
	// at it shows records above the high watermark (G3; KAFKA-727, KAFKA-9835).
	ReadLimitSnapshot bool

	// EndOffsetAfterEpochStart: a new leader tells its end offset once its high watermark reached
	// its epoch. Without it, end offsets go back after an election (G4; KIP-207, KAFKA-2334).
	EndOffsetAfterEpochStart bool

	// HWRequiresMinISR: the high watermark stands while the ISR is below min.insync.replicas.
	// Without it, records are committed on one copy (A2; KAFKA-1555, KIP-966).
	HWRequiresMinISR bool
}

// rule is one line of the list that everything here follows.
type rule struct {
	name  string
	entry string // of the failure catalogue
	field func(*Rules) *bool
}

var list = []rule{
	{"truncate-by-epoch", "B1", func(r *Rules) *bool { return &r.TruncateByEpoch }},
	{"epoch-lookup-largest", "B3", func(r *Rules) *bool { return &r.EpochLookupLargest }},
	{"fence-fetch-by-epoch", "B4", func(r *Rules) *bool { return &r.FenceFetchByEpoch }},
	{"truncate-on-every-epoch-change", "B5", func(r *Rules) *bool { return &r.TruncateOnEveryEpochChange }},
	{"isr-join-at-epoch-start", "B6", func(r *Rules) *bool { return &r.ISRJoinAtEpochStart }},
	{"diverging-fetch-not-counted", "B7", func(r *Rules) *bool { return &r.DivergingFetchNotCounted }},
	{"hw-counts-same-epoch-only", "B8", func(r *Rules) *bool { return &r.HWCountsSameEpochOnly }},
	{"hw-checkpoint-complete", "B9", func(r *Rules) *bool { return &r.HWCheckpointComplete }},
	{"match-reply-epoch", "B10", func(r *Rules) *bool { return &r.MatchReplyEpoch }},
	{"truncate-on-fetch", "B2", func(r *Rules) *bool { return &r.TruncateOnFetch }},
	{"maximal-isr", "C1", func(r *Rules) *bool { return &r.MaximalISR }},
	{"isr-broker-epoch", "C3", func(r *Rules) *bool { return &r.ISRBrokerEpoch }},
	{"controller-epoch-check", "C4", func(r *Rules) *bool { return &r.ControllerEpochCheck }},
	{"conditional-isr-write", "C5", func(r *Rules) *bool { return &r.ConditionalISRWrite }},
	{"command-broker-epoch", "C6", func(r *Rules) *bool { return &r.CommandBrokerEpoch }},
	{"equal-state-is-success", "C7", func(r *Rules) *bool { return &r.EqualStateIsSuccess }},
	{"reset-follower-state", "C12", func(r *Rules) *bool { return &r.ResetFollowerState }},
	{"shutdown-needs-other-isr", "C13", func(r *Rules) *bool { return &r.ShutdownNeedsOtherISR }},
	{"tolerate-foreign-isr", "C14", func(r *Rules) *bool { return &r.TolerateForeignISR }},
	{"create-checks-fenced", "C15", func(r *Rules) *bool { return &r.CreateChecksFenced }},
	{"elr", "A6", func(r *Rules) *bool { return &r.ELR }},
	{"compare-logs", "A6", func(r *Rules) *bool { return &r.CompareLogs }},
	{"fence-before-reregister", "A7", func(r *Rules) *bool { return &r.FenceBeforeReregister }},
	{"ack-all-maximal-isr", "A8", func(r *Rules) *bool { return &r.AckAllMaximalISR }},
	{"tell-log-dir-failure", "H9", func(r *Rules) *bool { return &r.TellLogDirFailure }},
	{"hw-not-before-truncation", "G1", func(r *Rules) *bool { return &r.HWNotBeforeTruncation }},
	{"follower-out-of-range", "G2", func(r *Rules) *bool { return &r.FollowerOutOfRange }},
	{"read-limit-snapshot", "G3", func(r *Rules) *bool { return &r.ReadLimitSnapshot }},
	{"end-offset-after-epoch-start", "G4", func(r *Rules) *bool { return &r.EndOffsetAfterEpochStart }},
	{"hw-requires-min-isr", "A2", func(r *Rules) *bool { return &r.HWRequiresMinISR }},
}

// All are all rules, on.
func All() Rules {
	var r Rules
	for _, x := range list {
		*x.field(&r) = true
	}
	return r
}

// Parse gives all rules but those named, as lab.rules.off names them.
func Parse(off []string) (Rules, error) {
	r := All()
	for _, name := range off {
		i := slices.IndexFunc(list, func(x rule) bool { return x.name == name })
		if i < 0 {
			return Rules{}, fmt.Errorf("no rule is called %q; there are %s", name, strings.Join(Names(), ", "))
		}
		*list[i].field(&r) = false
	}
	return r, nil
}

// Names are the names of all rules, in the order of the fields.
func Names() []string {
	names := make([]string, len(list))
	for i, x := range list {
		names[i] = x.name
	}
	return names
}

// Entry is the catalogue entry whose failure the named rule prevents, "" for no such rule.
func Entry(name string) string {
	for _, x := range list {
		if x.name == name {
			return x.entry
		}
	}
	return ""
}

// Off are the names of the rules that are switched off, in the order of Names.
func (r Rules) Off() []string {
	var off []string
	for _, x := range list {
		if !*x.field(&r) {
			off = append(off, x.name)
		}
	}
	return off
}
