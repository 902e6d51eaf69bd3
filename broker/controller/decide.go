package controller

import "slices"

// decide says what the state of p should be, seen from its accepted state and
// the brokers as they are. changed is false when it is so already.
//
// Order of election: a live member of the ISR; one of the ELR, which has everything committed
// too (A6); when neither set has anybody, the longest log, see recovered; at last any live
// replica, if unclean elections are allowed (A3).
func (c *Controller) decide(p *partition) (s State, changed bool) {
	s = p.state
	old := &p.state
	s.ISR = c.remaining(p)
	s.Leader = c.keptLeader(p, s.ISR)
	unclean := false
	if s.Leader == NoLeader {
		s.Leader, unclean = c.elect(p, &s)
	}
	if s.Leader != NoLeader {
		s.ISR = c.withoutLeaving(p, s.ISR, s.Leader)
	} else if !c.cfg.Rules.ELR && len(s.ISR) == 0 {
		s.ISR = old.ISR // as before KIP-966: the last members stay, and are elected when they come back
	}
	s.ELR = c.elr(p, s.ISR, unclean)
	s.LastLeader = NoLeader
	if s.Leader == NoLeader && c.cfg.Rules.ELR {
		if s.LastLeader = old.LastLeader; old.Leader != NoLeader {
			s.LastLeader = old.Leader
		}
	}
	s.LastKnownELR = c.lastKnown(p, &s, unclean)
	if s.Leader != old.Leader || unclean {
		s.LeaderEpoch++
	}
	if s.Leader == old.Leader && s.LastLeader == old.LastLeader && slices.Equal(s.LastKnownELR, old.LastKnownELR) && slices.Equal(s.ISR, old.ISR) && slices.Equal(s.ELR, old.ELR) && s.LeaderEpoch == old.LeaderEpoch {
		return *old, false
	}
	s.ControllerEpoch = c.epoch
	return s, true
}

// remaining are the members of the ISR whose brokers can be in it. Without rule C14 only replicas are looked at.
func (c *Controller) remaining(p *partition) []int32 {
	stays := func(id int32) bool {
		if !c.cfg.Rules.TolerateForeignISR && !slices.Contains(p.replicas, id) {
			return true
		}
		return c.usable(p, id)
	}
	isr := p.state.ISR
	for i, id := range isr {
		if stays(id) {
			continue
		}
		kept := append(make([]int32, 0, len(isr)), isr[:i]...)
		for _, id := range isr[i+1:] {
			if stays(id) {
				kept = append(kept, id)
			}
		}
		return kept
	}
	return isr
}

// keptLeader is the leader if it may go on, else NoLeader.
func (c *Controller) keptLeader(p *partition, isr []int32) int32 {
	leader := p.state.Leader
	if leader == NoLeader || !slices.Contains(isr, leader) || !c.usable(p, leader) {
		return NoLeader
	}
	if !c.staying(p, leader) {
		// C13: it may go only if somebody else in the ISR takes over.
		if other := slices.ContainsFunc(isr, func(id int32) bool { return c.staying(p, id) }); other || !c.cfg.Rules.ShutdownNeedsOtherISR {
			return NoLeader
		}
		return leader
	}
	// C19: the preferred leader only if it is in the ISR already.
	if first := p.preferredLeader(); p.preferred && leader != first && slices.Contains(isr, first) && c.staying(p, first) {
		return NoLeader
	}
	return leader
}

// elect finds a leader and makes s.ISR fit it.
func (c *Controller) elect(p *partition, s *State) (leader int32, unclean bool) {
	for _, id := range p.replicas {
		if slices.Contains(s.ISR, id) && c.staying(p, id) {
			return id, false
		}
	}
	for _, id := range s.ISR { // no replica, but in sync (C14)
		if c.staying(p, id) {
			return id, false
		}
	}
	if len(s.ISR) > 0 && c.cfg.Rules.ShutdownNeedsOtherISR {
		for _, id := range s.ISR { // all are about to stop: one leads until it does
			if c.usable(p, id) {
				return id, false
			}
		}
	}
	elr := c.elr(p, nil, false)
	if c.cfg.Rules.ELR {
		for _, id := range p.replicas {
			if slices.Contains(elr, id) && c.staying(p, id) {
				s.ISR = []int32{id}
				return id, false
			}
		}
		if id := c.recovered(p); len(elr) == 0 && id != NoLeader {
			s.ISR = []int32{id}
			return id, false
		}
	}
	if p.topic.unclean || p.anyLeader {
		if id := c.uncleanLeader(p); id != NoLeader {
			s.ISR = []int32{id}
			return id, true
		}
	}
	s.ISR = nil
	return NoLeader, false
}

// withoutLeaving drops from the ISR, beside the leader, those that are about to stop (C2):
// their leaders must not wait for them.
func (c *Controller) withoutLeaving(p *partition, isr []int32, leader int32) []int32 {
	for _, id := range isr {
		if id != leader && c.usable(p, id) && !c.staying(p, id) {
			var kept []int32
			for _, id := range isr {
				if id == leader || !c.usable(p, id) || c.staying(p, id) {
					kept = append(kept, id)
				}
			}
			return kept
		}
	}
	return isr
}

// elr is the ELR beside a new ISR (KIP-966). While the ISR has less than
// min.insync.replicas the high watermark stands, so who left it then, or was in the ELR before,
// still has everything that is committed; an unclean restart ends that.
func (c *Controller) elr(p *partition, isr []int32, unclean bool) []int32 {
	if !c.cfg.Rules.ELR || unclean || len(isr) >= p.minISR() {
		return nil
	}
	var elr []int32
	add := func(ids []int32) {
		for _, id := range ids {
			if slices.Contains(isr, id) || slices.Contains(elr, id) || !slices.Contains(p.replicas, id) {
				continue
			}
			if b := c.lookup(p, id); b != nil && b.starting && b.unclean {
				continue
			}
			elr = append(elr, id)
		}
	}
	add(p.state.ELR)
	add(p.state.ISR)
	return elr
}
