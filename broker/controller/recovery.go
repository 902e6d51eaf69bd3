package controller

import (
	"cmp"
	"slices"
	"time"
)

// When every member of ISR and ELR has come back unclean, none is known to have
// everything that was committed, and yet one may: it lost nothing, or it had flushed. KIP-966 calls
// what follows unclean recovery, of the balanced kind: it waits for all who were there last, asks them how
// far their logs reach, and elects the longest. Brokers tell that in their answer to
// the LeaderAndISR which says that there is no leader.
//
// Who was there last is waited for without a bound, live or dead: it may be the only one that has what was committed, and
// only an unclean election does without. Who lives and was not there last is asked too, since its log may be longer than what
// the others have left, but whatever was committed since it left is not in it: one that never answers (its process
// stands still, and its session does not end) must not keep the partition from its clients. So once those that were there last
// have told theirs, it has Config.LogsWait.

// replicaLog is what a broker said of its replica.
type replicaLog struct {
	broker      int32
	incarnation int // it has no meaning for another
	ReplicaLog
}

// logsTold takes what a broker says of its logs.
func (c *Controller) logsTold(b *broker, logs []ReplicaLog) {
	for _, l := range logs {
		p := c.find(l.Partition)
		if p == nil || !slices.Contains(p.replicas, b.id) || p.state.Leader != NoLeader || l.LeaderEpoch != p.state.LeaderEpoch {
			continue
		}
		p.logs = slices.DeleteFunc(p.logs, func(o replicaLog) bool { return o.broker == b.id })
		p.logs = append(p.logs, replicaLog{b.id, b.incarnation, l})
		if len(p.state.ISR)+len(p.state.ELR) == 0 {
			c.decideLater(p)
		}
	}
}

// logOf is what is known of a replica's log now.
func (c *Controller) logOf(p *partition, id int32) (ReplicaLog, bool) {
	b := c.lookup(p, id)
	for _, l := range p.logs {
		if l.broker == id && b != nil && l.incarnation == b.incarnation && l.LeaderEpoch == p.state.LeaderEpoch {
			return l.ReplicaLog, true
		}
	}
	return ReplicaLog{}, false
}

// recovered is who leads when nobody is in ISR or ELR: the replica with the longest log, once the last
// known members and, for a while, all who live have told theirs; NoLeader until then. Replicas
// of equal logs come in their order, those first that were there last.
func (c *Controller) recovered(p *partition) int32 {
	if !c.cfg.Rules.CompareLogs {
		if last := p.state.LastLeader; slices.Contains(p.replicas, last) && c.staying(p, last) {
			return last
		}
		return NoLeader
	}
	// By the accepted state: who is leaving the ELR only now comes to be waited for by that.
	if p.state.Leader != NoLeader || len(p.state.ISR)+len(p.state.ELR) > 0 {
		return NoLeader
	}
	last := p.state.LastKnownELR
	if len(last) == 0 { // written without the rule, or by a version that had no such field
		if last = p.replicas; slices.Contains(p.replicas, p.state.LastLeader) {
			last = []int32{p.state.LastLeader}
		}
	}
	wasLast := func(id int32) bool { return slices.Contains(last, id) }
	best, longest, silent := NoLeader, ReplicaLog{}, false
	committed := c.committedFloor(p)
	for _, id := range p.replicas {
		l, told := c.logOf(p, id)
		switch {
		case c.staying(p, id) && told && l.End < committed:
		case c.staying(p, id) && told:
			switch d := compareLogs(l, longest); {
			case best == NoLeader || d > 0, d == 0 && wasLast(id) && !wasLast(best):
				best, longest = id, l
			}
		case wasLast(id):
			return NoLeader
		case c.staying(p, id):
			silent = true
		}
	}
	if silent && c.waitsForLogs(p) {
		return NoLeader
	}
	return best
}

// committedFloor is the highest log start offset of those who live and have told theirs. What was deleted for its age was committed,
// so a log that ends below lacks some of that, whatever its last epoch. The one that deleted may not know a late epoch: its
// log is empty, or began anew where its leader's started.
func (c *Controller) committedFloor(p *partition) (floor int64) {
	for _, id := range p.replicas {
		if l, told := c.logOf(p, id); told && c.staying(p, id) {
			floor = max(floor, l.Start)
		}
	}
	return floor
}

// logsWait is a partition whose silent replicas are waited for until then.
type logsWait struct {
	at time.Duration
	p  *partition
}

// waitsForLogs is true for Config.LogsWait from the first call on, until there is a leader again.
func (c *Controller) waitsForLogs(p *partition) bool {
	if p.logsUntil == 0 {
		p.logsUntil = c.now + c.cfg.LogsWait
		c.logsWaits = append(c.logsWaits, logsWait{p.logsUntil, p})
	}
	return c.now < p.logsUntil
}

func (c *Controller) tickLogs() {
	n := 0
	for ; n < len(c.logsWaits) && c.logsWaits[n].at <= c.now; n++ {
		c.decideLater(c.logsWaits[n].p)
	}
	c.logsWaits = slices.Delete(c.logsWaits, 0, n)
}

// uncleanLeader is who leads where records may be lost for that: of all who live the longest log, if they
// have told theirs; who led last, if not; the first of them at last.
func (c *Controller) uncleanLeader(p *partition) int32 {
	first, best, longest := NoLeader, NoLeader, ReplicaLog{}
	known, committed := c.cfg.Rules.CompareLogs, c.committedFloor(p)
	for _, id := range p.replicas {
		if !c.staying(p, id) {
			continue
		}
		if first == NoLeader {
			first = id
		}
		l, told := c.logOf(p, id)
		known = known && told
		if l.End < committed {
			continue
		}
		if best == NoLeader || compareLogs(l, longest) > 0 {
			best, longest = id, l
		}
	}
	switch last := p.state.LastLeader; {
	case known:
		return best
	case c.cfg.Rules.CompareLogs && slices.Contains(p.replicas, last) && c.staying(p, last):
		return last
	}
	return first
}

// compareLogs is positive when a reaches further than b.
func compareLogs(a, b ReplicaLog) int {
	return cmp.Or(cmp.Compare(a.LastEpoch, b.LastEpoch), cmp.Compare(a.End, b.End))
}

// lastKnown is LastKnownELR beside the new state s: while the high watermark stands, who was in ISR or
// ELR and is in neither now.
func (c *Controller) lastKnown(p *partition, s *State, unclean bool) []int32 {
	if unclean || len(s.ISR) >= p.minISR() || !c.cfg.Rules.ELR || !c.cfg.Rules.CompareLogs {
		return nil
	}
	var known []int32
	for _, ids := range [][]int32{p.state.LastKnownELR, p.state.ISR, p.state.ELR} {
		for _, id := range ids {
			if slices.Contains(p.replicas, id) && !slices.Contains(s.ISR, id) && !slices.Contains(s.ELR, id) && !slices.Contains(known, id) {
				known = append(known, id)
			}
		}
	}
	return known
}
