package controller

import "slices"

// decideLater puts p on the list, unless it is there.
func (c *Controller) decideLater(p *partition) {
	if !p.queued && !p.topic.gone {
		p.queued = true
		c.todo = append(c.todo, p)
	}
}

// pumpDecisions decides partitions in turn until the writes in flight reach their bound.
func (c *Controller) pumpDecisions() {
	var writes []StateWrite
	n := 0
	for ; n < len(c.todo) && c.writesInFlight < c.cfg.WritesInFlightMax; n++ {
		p := c.todo[n]
		c.todo[n] = nil
		p.queued = false
		if p.doing != idle { // its outcome will put it here again
			p.again = true
			continue
		}
		if p.topic.gone {
			c.rest(p)
			continue
		}
		p.again = false
		if c.next(p, &writes) {
			c.writesInFlight++
		} else if p.stale {
			c.changed(p)
		}
		c.rest(p)
	}
	c.todo = c.todo[n:]
	if len(c.todo) == 0 {
		c.todo = nil
	}
	if len(writes) > 0 {
		c.emit(WriteStates{c.checkVersion(), writes})
	}
}

// next begins what p needs most, and says whether that is a write of its state.
func (c *Controller) next(p *partition, writes *[]StateWrite) bool {
	if p.topic.deleting {
		p.target = nil
		if p.topic.deleteSent || !p.known {
			return false
		}
		// Its state is still kept: a broker that is to delete its replica must not be
		// named in it, or it waits for that before it registers (A7), and the deletion for the broker.
	}
	if !p.known {
		if p.target != nil {
			c.wantTopic(p)
		} else if _, ok := c.firstState(p); ok {
			c.wantCreate(p)
		}
		return false
	}
	s, changed := c.decide(p)
	p.preferred, p.anyLeader = false, false
	if changed {
		p.doing, p.proposal = writing, s
		*writes = append(*writes, StateWrite{p.name(), p.version, s, c.joining(p, s.ISR)})
		return true
	}
	if !p.topic.deleting && (p.target != nil || c.canSwitch(p)) {
		c.wantTopic(p)
	}
	return false
}

// joining are the members of isr that are not in the ISR of p yet.
func (c *Controller) joining(p *partition, isr []int32) []BrokerEpoch {
	var join []BrokerEpoch
	if c.cfg.Rules.ISRBrokerEpoch {
		for _, id := range without(isr, p.state.ISR) {
			join = append(join, BrokerEpoch{id, c.lookup(p, id).reg.Epoch})
		}
	}
	p.joins = len(join) > 0
	return join
}

// checkVersion is what the driver checks /controller_epoch against with each write (C4).
func (c *Controller) checkVersion() int32 {
	if !c.cfg.Rules.ControllerEpochCheck {
		return -1
	}
	return c.epochVersion
}

func (c *Controller) statesWritten(results []StateWritten) {
	var again []TopicPartition
	joins := false
	for i := range results {
		r := &results[i]
		p := c.find(r.Partition)
		if p == nil || p.doing != writing {
			continue
		}
		c.writesInFlight--
		switch p.doing = idle; r.Outcome {
		case Accepted:
			c.accepted(p, p.proposal, r.Version)
		case Fenced:
			c.fenced()
			return
		default:
			p.doing = reading
			again = append(again, p.name())
			joins = joins || p.joins
		}
	}
	if joins { // perhaps it was not the state that had changed
		c.emit(ReadBrokers{})
	}
	if len(again) > 0 {
		c.emit(ReadStates{again})
	}
}

func (c *Controller) fenced() { c.resign("another controller was elected") }

// accepted: the store has s. The brokers hear of it, and p is looked at again: others may have
// come or gone meanwhile.
func (c *Controller) accepted(p *partition, s State, version int32) {
	if version > p.version || !p.known {
		c.adopt(p, s, version)
	}
	p.proposal = State{}
	c.tellReplicas(p)
	c.decideLater(p)
	c.maybeDelete(p.topic)
}

// statesRead takes states that were read after a conflict, an unknown outcome, or because
// their leader changed the ISR.
func (c *Controller) statesRead(states []StateRead) {
	var later []TopicPartition
	for i := range states {
		r := &states[i]
		p := c.find(r.Partition)
		if p == nil || p.doing == reReading { // it is read again after its topic
			continue
		}
		asked := p.doing == reading
		if r.Failed {
			if asked {
				later = append(later, r.Partition)
				p.damaged = true // brokers start and stop all the same: nobody is elected by it
				c.rest(p)
			}
			continue
		}
		p.damaged = false
		if asked {
			p.doing = idle
		}
		switch {
		case r.Found && (!p.known || r.Version > p.version):
			// Replicas are told what a controller wrote: perhaps this one, whose answer was lost. What their leader
			// did to the ISR they need not know.
			told := r.State.LeaderEpoch == p.state.LeaderEpoch && !(asked && equal(r.State, p.proposal))
			c.adopt(p, r.State, r.Version)
			if !told {
				c.tellReplicas(p)
			}
		case !r.Found && asked && p.known && !p.topic.deleting:
			// Somebody removed the node. It is made anew with what is known of it, in a new leader epoch.
			p.known, p.lost, p.version = false, true, -1
			p.state.LeaderEpoch++
		}
		c.decideLater(p)
		c.maybeDelete(p.topic)
	}
	if len(later) > 0 {
		c.retryLater(func() {
			later = slices.DeleteFunc(later, func(tp TopicPartition) bool { p := c.find(tp); return p == nil || p.doing != reading })
			if len(later) > 0 {
				c.emit(ReadStates{later})
			}
		})
	}
}

func (c *Controller) read(ps []*partition) {
	if len(ps) == 0 {
		return
	}
	names := make([]TopicPartition, len(ps))
	for i, p := range ps {
		p.doing = reading
		names[i] = p.name()
	}
	c.emit(ReadStates{names})
}

func equal(a, b State) bool {
	return a.Leader == b.Leader && a.LeaderEpoch == b.LeaderEpoch && a.ControllerEpoch == b.ControllerEpoch && slices.Equal(a.ISR, b.ISR) && slices.Equal(a.ELR, b.ELR) && slices.Equal(a.LastKnownELR, b.LastKnownELR)
}
