package controller

import "slices"

// controlledShutdown moves a broker's leaderships away and takes it out of ISRs. It answers
// when all of that is written, with the partitions that nobody else can lead (C13).
func (c *Controller) controlledShutdown(in ControlledShutdown) {
	b := c.brokers[in.Broker]
	switch {
	case b == nil || !b.registered:
		c.answer(in.Request, codeBrokerIDNotRegistered, nil)
		return
	case b.reg.Epoch != in.Epoch && c.cfg.Rules.CommandBrokerEpoch:
		c.answer(in.Request, codeStaleBrokerEpoch, nil)
		return
	}
	b.shuttingDown = true
	ps := slices.Clone(b.partitions)
	c.await(ps, func() {
		var remaining []PartitionError
		for _, p := range ps {
			switch {
			case !p.known || p.topic.deleting:
			case p.state.Leader == b.id:
				remaining = append(remaining, PartitionError{p.name(), codeNone})
			case b.shuttingDown && slices.Contains(p.replicas, b.id):
				c.stop(b, p, false)
			}
		}
		c.answer(in.Request, codeNone, remaining)
	})
}

// electLeaders answers when what can be done is written.
func (c *Controller) electLeaders(in ElectLeaders) {
	names := in.Partitions
	if len(names) == 0 {
		for p := c.changes.first; p != nil; p = p.next {
			if p.known && !p.topic.deleting {
				names = append(names, p.name())
			}
		}
	}
	results := make([]PartitionError, len(names))
	var ps []*partition
	var at []int
	for i, tp := range names {
		p := c.find(tp)
		results[i] = PartitionError{tp, electionNeeded(p, in.Unclean)}
		if results[i].Code != codeNone {
			continue
		}
		p.preferred, p.anyLeader = p.preferred || !in.Unclean, p.anyLeader || in.Unclean
		ps, at = append(ps, p), append(at, i)
	}
	c.await(ps, func() {
		for j, p := range ps {
			switch {
			case in.Unclean && p.state.Leader == NoLeader:
				results[at[j]].Code = codeEligibleLeadersNotAvailable
			case !in.Unclean && (len(p.replicas) == 0 || p.state.Leader != p.preferredLeader()):
				results[at[j]].Code = codePreferredLeaderNotAvailable
			}
		}
		c.answer(in.Request, codeNone, results)
	})
}

func electionNeeded(p *partition, unclean bool) int16 {
	switch {
	case p == nil || !p.known || p.topic.deleting:
		return codeUnknownTopicOrPartition
	case unclean && p.state.Leader != NoLeader, !unclean && p.state.Leader == p.preferredLeader():
		return codeElectionNotNeeded
	}
	return codeNone
}

// tickPreferred gives leaderships back to preferred leaders that are in the ISR (C19: to no others, or every round tries again).
func (c *Controller) tickPreferred() {
	if c.cfg.PreferredCheck <= 0 || c.now < c.nextPreferred {
		return
	}
	c.nextPreferred = c.now + c.cfg.PreferredCheck
	for _, id := range c.brokerIDs {
		b := c.brokers[id]
		if !b.live || b.shuttingDown {
			continue
		}
		all := 0
		var elsewhere []*partition
		for _, p := range b.partitions {
			if !p.known || p.topic.deleting || p.preferredLeader() != id || len(p.adding)+len(p.removing) > 0 {
				continue
			}
			all++
			if p.state.Leader != id {
				elsewhere = append(elsewhere, p)
			}
		}
		if len(elsewhere)*100 <= all*c.cfg.ImbalancePercent {
			continue
		}
		for _, p := range elsewhere {
			if slices.Contains(p.state.ISR, id) {
				p.preferred = true
				c.decideLater(p)
			}
		}
	}
}
