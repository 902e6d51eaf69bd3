package controller

import "slices"

// A reassignment (KIP-455) has two writes, each of the topic's node and the partition's state in one transaction:
//
//  1. start: replicas become the target and the old ones. Those to be added begin to fetch.
//  2. switch, once the target is in the ISR: replicas become the target; leader and ISR lie
//     in it. Then those that left are told to delete.
//
// Both raise the leader epoch. So the leader begins with fresh follower positions (C12), does not
// take one that left into the ISR by what it knew before (C14), and the StopReplica of one that left
// cannot reach it after it was added again (KIP-570).

// reassign answers when all starts are written.
func (c *Controller) reassign(in Reassign) {
	results := make([]PartitionError, len(in.Partitions))
	var ps []*partition
	for i, r := range in.Partitions {
		p := c.find(r.Partition)
		results[i] = PartitionError{r.Partition, c.checkReassignment(p, r)}
		if results[i].Code != codeNone {
			continue
		}
		p.target = slices.Clone(r.Replicas)
		if len(r.Replicas) == 0 { // cancel: back to what was
			p.target = without(p.replicas, p.adding)
		}
		ps = append(ps, p)
	}
	c.await(ps, func() { c.answer(in.Request, codeNone, results) })
}

func (c *Controller) answer(request uint64, code int16, results []PartitionError) {
	if request != 0 {
		c.emit(Answer{request, code, results})
	}
}

func (c *Controller) checkReassignment(p *partition, r Reassignment) int16 {
	if p == nil || p.topic.deleting {
		return codeUnknownTopicOrPartition
	}
	if len(r.Replicas) == 0 {
		if len(p.adding)+len(p.removing) == 0 && p.target == nil || len(without(p.replicas, p.adding)) == 0 {
			return codeNoReassignmentInProgress
		}
		return codeNone
	}
	for i, id := range r.Replicas {
		if slices.Contains(r.Replicas[:i], id) {
			return codeInvalidReplicaAssignment
		}
		if !slices.Contains(p.replicas, id) && (c.brokers[id] == nil || !c.brokers[id].live) {
			return codeInvalidReplicaAssignment
		}
	}
	return codeNone
}

// canSwitch: the target can take over without losing a copy. Either all of it is in sync; or
// a member of it is dead, but what is added is in sync, and what goes holds nothing that counts.
func (c *Controller) canSwitch(p *partition) bool {
	if len(p.adding)+len(p.removing) == 0 || p.state.Leader == NoLeader {
		return false
	}
	goal, isr := p.goal(), p.state.ISR
	if c.leaderIn(p, goal) == NoLeader {
		return false
	}
	if subset(goal, isr) {
		return true
	}
	in := 0
	for _, id := range goal {
		switch {
		case slices.Contains(isr, id):
			in++
		case slices.Contains(p.adding, id) || c.usable(p, id):
			return false
		}
	}
	counts := func(id int32) bool { return slices.Contains(isr, id) || slices.Contains(p.state.ELR, id) }
	return in >= min(max(p.topic.minISR, 1), len(goal)) && !slices.ContainsFunc(p.removing, counts)
}

// leaderIn is who may lead among goal: the leader if it is there, else the first in the ISR.
func (c *Controller) leaderIn(p *partition, goal []int32) int32 {
	if slices.Contains(goal, p.state.Leader) {
		return p.state.Leader
	}
	for _, id := range goal {
		if slices.Contains(p.state.ISR, id) && c.staying(p, id) {
			return id
		}
	}
	return NoLeader
}

// step is the next write of p's assignment, if there is one.
func (c *Controller) step(p *partition) (a Assignment, s State, ok bool) {
	s = p.state
	s.ControllerEpoch = c.epoch
	s.LeaderEpoch++
	if p.target != nil {
		origin := without(p.replicas, p.adding)
		a.Replicas = append(slices.Clone(p.target), without(p.replicas, p.target)...)
		a.Adding = nilIfEmpty(without(p.target, origin))
		a.Removing = nilIfEmpty(without(a.Replicas, p.target))
		if !p.known {
			a = Assignment{Replicas: p.target}
		}
		if slices.Equal(a.Replicas, p.replicas) && slices.Equal(a.Adding, p.adding) && slices.Equal(a.Removing, p.removing) {
			p.target = nil
		} else {
			return a, s, true
		}
	}
	if !p.known || !c.canSwitch(p) {
		return a, s, false
	}
	goal := slices.Clone(p.goal())
	s.Leader = c.leaderIn(p, goal)
	s.ISR = without(s.ISR, without(s.ISR, goal))
	s.ELR = nil // canSwitch: the ISR has min.insync.replicas
	return Assignment{Replicas: goal}, s, true
}

func nilIfEmpty(a []int32) []int32 {
	if len(a) == 0 {
		return nil
	}
	return a
}

// writeTopic writes the assignments of t that wait, many at a time: they share the topic's node.
func (c *Controller) writeTopic(t *topic) {
	if t.busy || len(t.wants) == 0 || c.writesInFlight >= c.cfg.WritesInFlightMax {
		return
	}
	var all []Assignment
	var states []StateWrite
	n := 0
	for ; n < len(t.wants) && len(t.written) < t.batchMax; n++ {
		p := t.wants[n]
		p.wanted = false
		if p.doing != idle {
			continue // its outcome brings it here again
		}
		a, s, ok := c.step(p)
		if !ok || t.deleting {
			c.decideLater(p) // for those who wait
			continue
		}
		if all == nil {
			all = t.assignments()
		}
		all[p.number] = a
		p.doing, p.proposal, p.proposed, p.paired = writing, s, a, p.known
		t.written = append(t.written, p)
		if p.known {
			states = append(states, StateWrite{Partition: p.name(), Version: p.version, State: s})
		}
	}
	if t.wants = t.wants[n:]; len(t.wants) == 0 {
		t.wants = nil
	}
	if len(t.written) == 0 {
		return
	}
	t.busy = true
	c.writesInFlight++
	c.emit(WriteTopic{c.checkVersion(), t.name, t.id, t.version, all, states})
}

func (t *topic) assignments() []Assignment {
	all := make([]Assignment, len(t.parts))
	for i, p := range t.parts {
		all[i] = Assignment{p.replicas, p.adding, p.removing}
	}
	return all
}

func (c *Controller) topicWritten(in TopicWritten) {
	t := c.topics[in.Topic]
	if t == nil || len(t.written) == 0 {
		return
	}
	written := t.written
	t.written = nil
	c.writesInFlight--
	switch in.Outcome {
	case Fenced:
		c.fenced()
	case Accepted:
		t.busy = false
		t.batchMax = min(2*t.batchMax, c.cfg.PartitionsPerTopicWrite)
		t.version = max(t.version, in.Version)
		states := in.States
		for _, p := range written {
			version := int32(-1)
			if p.paired {
				if len(states) == 0 {
					panic("BUG: controller: TopicWritten has too few versions of states")
				}
				version, states = states[0], states[1:]
			}
			c.stepped(p, version)
		}
		c.topicLater(t)
		c.maybeDelete(t)
	default:
		// Something changed under it, or nobody knows: read it all, and decide again. The topic first, so
		// that no command mixes a new state with old replicas.
		// Fewer at a time stand a better chance beside leaders that change their ISRs.
		t.batchMax = max(1, t.batchMax/2)
		t.reread = written
		for _, p := range written {
			p.doing = reReading
		}
		c.emit(ReadTopics{[]string{t.name}})
	}
}

// stepped: p's next assignment, and its state if version is not -1, were accepted.
func (c *Controller) stepped(p *partition, version int32) {
	p.doing = idle
	a := p.proposed
	p.proposed = Assignment{}
	if slices.Equal(p.target, without(a.Replicas, a.Removing)) {
		p.target = nil // else another was asked for meanwhile
	}
	s := p.proposal
	if version > p.version {
		c.adopt(p, s, version)
	}
	c.assign(p, a)
	if version >= 0 {
		c.accepted(p, s, version)
	}
	c.decideLater(p)
}
