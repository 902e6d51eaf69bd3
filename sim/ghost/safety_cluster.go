package ghost

import "slices"

// The invariants of who leads and who may be elected: S4 to S8, S27, S28.

// s4LeaderCompleteness: the running leader of the present epoch holds everything that
// was committed, and every value acknowledged under acks=all at its offset.
func (p *partition) s4LeaderCompleteness() {
	if !p.stateSeen || p.state.Leader < 0 {
		return
	}
	r := p.replica(p.state.Leader)
	if !r.leads || r.epoch != p.state.LeaderEpoch || !r.b.running {
		return
	}
	if r.agrees < p.end() {
		i, _ := holding(p.truth, r.agrees)
		p.s.fail("S4 LeaderCompleteness", "%v: broker %d leads in epoch %d with the log [%d, %d) and lacks %v; committed is everything below %d",
			p.tp, r.b.id, r.epoch, r.start, r.end, p.truth[i], p.end())
		return
	}
	for _, e := range p.acked {
		if !r.holds(e) {
			p.s.fail("S4 LeaderCompleteness", "%v: broker %d leads in epoch %d without %v, which was acknowledged under acks=all", p.tp, r.b.id, r.epoch, e)
			return
		}
	}
}

// s5CandidateCompleteness: so does every running member of ISR and ELR. One in the ELR
// that a lossy restart has damaged is the controller's to take out before it elects: S4 sees if it does not.
func (p *partition) s5CandidateCompleteness() {
	if !p.stateSeen {
		return
	}
	for _, r := range p.replicas {
		inISR := slices.Contains(p.state.ISR, r.b.id)
		if !inISR && (!slices.Contains(p.state.ELR, r.b.id) || r.lossy) {
			continue
		}
		if r.fit() && r.agrees < p.end() {
			i, _ := holding(p.truth, r.agrees)
			p.s.fail("S5 CandidateCompleteness", "%v: broker %d is in ISR %v or ELR %v with the log [%d, %d) and lacks %v; committed is everything below %d",
				p.tp, r.b.id, p.state.ISR, p.state.ELR, r.start, r.end, p.truth[i], p.end())
			return
		}
	}
}

// s6QuorumSuperset: what the present leader counts contains ISR and ELR of the coordination service.
func (p *partition) s6QuorumSuperset(r *replica, counting []int32) {
	if !p.stateSeen || counting == nil || r.b.id != p.state.Leader || r.epoch != p.state.LeaderEpoch {
		return
	}
	for _, id := range slices.Concat(p.state.ISR, p.state.ELR) {
		if !slices.Contains(counting, id) {
			p.s.fail("S6 QuorumSuperset", "%v: the leader, broker %d, moves the high watermark to %d by counting %v; the ISR is %v, the ELR %v",
				p.tp, r.b.id, r.hw, counting, p.state.ISR, p.state.ELR)
			return
		}
	}
}

// s6ValidElr: ISR and ELR are disjoint, and there is no ELR once the ISR is large enough (KIP-966).
func (p *partition) s6ValidElr() {
	if len(p.state.ELR) > 0 && len(p.state.ISR) >= p.s.rules.MinISR {
		p.s.fail("S6 QuorumSuperset", "%v: ISR %v has min.insync.replicas members, and there is an ELR %v", p.tp, p.state.ISR, p.state.ELR)
	}
	for _, id := range p.state.ELR {
		if slices.Contains(p.state.ISR, id) {
			p.s.fail("S6 QuorumSuperset", "%v: broker %d is both in ISR %v and in ELR %v", p.tp, id, p.state.ISR, p.state.ELR)
			return
		}
	}
}

// s7NoGlobalLoss: every value acknowledged under acks=all is on some replica's log, running or not.
func (p *partition) s7NoGlobalLoss() {
	var best int64
	for _, r := range p.replicas {
		if r.here {
			best = max(best, r.agrees)
		}
	}
	if best < p.ackedEnd && best < p.end() {
		i, _ := holding(p.truth, best)
		p.s.fail("S7 NoGlobalLoss", "%v: %v was committed, and no replica holds it any more, running or not", p.tp, p.truth[i])
	}
	for _, e := range p.acked {
		if !slices.ContainsFunc(p.replicas, func(r *replica) bool { return r.holds(e) }) {
			p.s.fail("S7 NoGlobalLoss", "%v: %v was acknowledged under acks=all, and no replica holds it any more, running or not", p.tp, e)
			return
		}
	}
}

// AckLeaves: a broker acknowledges at base what a producer sent. It is told when the answer is
// given, before it travels.
func (s *State) AckLeaves(id int32, tp TP, acks int16, base int64, batch BatchID) {
	p := s.partition(tp)
	r := p.replica(id)
	e, ok := r.find(base)
	if r.leads {
		p.s1OneLeaderPerEpoch(id, r.epoch, "acknowledges")
	}
	if acks != -1 && !(acks == 1 && s.rules.WeakCounts) || p.doomed(r) {
		return
	}
	switch {
	case base < p.end():
		if i, found := at(p.truth, base); !found || !p.truth[i].ID.sentAs(batch) {
			s.fail("S12 OffsetUnique", "%v: broker %d acknowledges a batch (crc %08x) at offset %d, where another was committed", tp, id, batch.CRC, base)
			return
		} else if !ok {
			e, ok = p.truth[i], true
		}
	case !ok || !e.ID.sentAs(batch):
		s.fail("S8 AckMeansCopies", "%v: broker %d acknowledges a batch (crc %08x) at offset %d, which it does not hold", tp, id, batch.CRC, base)
		return
	}
	if acks == -1 {
		p.s8AckMeansCopies(e)
	}
	p.ackedEnd = max(p.ackedEnd, e.Next)
	if e.Base >= p.end() {
		p.acked = append(p.acked, e)
	}
}

// s8AckMeansCopies: at the moment of a success under acks=all min.insync.replicas
// copies are there, flushed where the policy promises that. A copy that a lossy fault took
// after its follower had fetched it counts: the envelope bounds those.
func (p *partition) s8AckMeansCopies(e Entry) {
	copies := 0
	for _, r := range p.replicas {
		if r.holds(e) && (!p.s.rules.FlushBeforeAck || r.flushed >= e.Next) || max(r.had, r.told) >= e.Next {
			copies++
		}
	}
	if copies < p.s.rules.MinISR {
		p.s.fail("S8 AckMeansCopies", "%v: %v is acknowledged with %d of %d copies (flushed: %v)", p.tp, e, copies, p.s.rules.MinISR, p.s.rules.FlushBeforeAck)
	}
}

// settleAcked drops from the list of what was acknowledged too early what is committed
// by now, and sees whether it is the same.
func (p *partition) settleAcked() {
	p.acked = slices.DeleteFunc(p.acked, func(e Entry) bool {
		if e.Base >= p.end() {
			return false
		}
		if i, found := at(p.truth, e.Base); !found || p.truth[i].ID != e.ID {
			p.s.fail("S4 LeaderCompleteness", "%v: %v was acknowledged under acks=all, and something else was committed there", p.tp, e)
		}
		return true
	})
}

// s27ControllerFence: a write of partition state carries the controller epoch of its time; an ISR change of the leader leaves it as it was.
func (p *partition) s27ControllerFence(old, n StateNode, controllerEpoch int32) {
	elects := n.Leader != old.Leader || n.LeaderEpoch != old.LeaderEpoch
	switch {
	case elects && n.ControllerEpoch != controllerEpoch:
		p.s.fail("S27 ControllerFence", "%v: a controller of epoch %d makes broker %d leader in epoch %d, and the controller epoch is %d", p.tp, n.ControllerEpoch, n.Leader, n.LeaderEpoch, controllerEpoch)
	case n.ControllerEpoch < old.ControllerEpoch:
		p.s.fail("S27 ControllerFence", "%v: the state's controller epoch goes from %d back to %d", p.tp, old.ControllerEpoch, n.ControllerEpoch)
	}
}

// s28UncleanExclusion: after a lossy restart a replica neither leads nor is in the ISR
// until it has reached TRUEHW again. In the ELR it may stand until the controller
// has seen it: S4 sees if it is elected from there.
func (p *partition) s28UncleanExclusion() {
	if !p.stateSeen {
		return
	}
	for _, r := range p.replicas {
		if r.lossy && r.agrees < p.end() && r.fit() && (r.b.id == p.state.Leader || slices.Contains(p.state.ISR, r.b.id)) {
			p.s.fail("S28 UncleanExclusion", "%v: broker %d has lost records in its last life and not got them again (it has them up to %d of %d), and it is leader %d or in ISR %v",
				p.tp, r.b.id, r.agrees, p.end(), p.state.Leader, p.state.ISR)
			return
		}
	}
}
