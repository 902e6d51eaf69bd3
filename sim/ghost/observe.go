package ghost

import "slices"

// What follows is how the world tells the ghost what happened. Each method takes
// the change in and then checks what it touched.

// Bounds are a log's, as its broker gave them.
type Bounds struct {
	Start, End, Flushed int64
	HighWatermark       int64 // when opened: of the checkpoint
}

// Started: a new process of the broker runs. It holds what its last life left.
func (s *State) Started(id int32) {
	b := s.broker(id)
	b.running, b.registered, b.controller = true, false, -1
	b.lossy, b.lost = b.lost, false
	for _, p := range s.sorted {
		if r := p.replica(id); r.here {
			r.leads, r.epoch, r.open = false, -1, false
			b.lossy = b.lossy || r.unsure // the life before died while it started
		}
	}
	for _, p := range s.sorted {
		if r := p.replica(id); b.lossy && (r.here || slices.Contains(p.state.Replicas, id)) {
			r.unmended = true
		}
	}
}

// Stopped: the process is gone. lossy: with a power cut, so what was not synced may be.
func (s *State) Stopped(id int32, lossy bool) {
	b := s.broker(id)
	b.running, b.registered = false, false
	b.lost = b.lost || lossy
	for _, p := range s.sorted {
		r := p.replica(id)
		r.leads = false
		r.unsure = r.unsure || lossy
		if lossy {
			r.loses(s.rules.FlushBeforeAck)
		}
	}
}

// RecoveryPoint: when a broker's life ends its checkpoint says that everything below offset is durable.
func (s *State) RecoveryPoint(id int32, tp TP, offset int64) {
	p := s.partition(tp)
	if r := p.replica(id); r.here && r.open && !r.removes { // what a clean stop flushed last is told when the log opens
		p.s26RecoveryPoint(r, offset)
	}
}

// DiskSwapped: the broker's disk was replaced by an empty one while it was down.
func (s *State) DiskSwapped(id int32) {
	s.broker(id).lost = true
	for _, p := range s.sorted {
		r := p.replica(id)
		if r.here {
			r.loses(s.rules.FlushBeforeAck)
			r.empty(0)
			r.here, r.agrees, r.lossy = false, 0, p.end() > 0
			p.checkLoss()
		}
	}
}

// Registered: the coordination service knows this incarnation of the broker now, or none (on false).
func (s *State) Registered(id int32, on bool) {
	b := s.broker(id)
	if b.registered = on && b.running; !b.registered {
		return
	}
	for _, p := range s.sorted {
		p.checkCandidates()
	}
}

// LogOpened: a broker has recovered or made a log. found is what lies on its disk, from where the first segment begins.
func (s *State) LogOpened(id int32, tp TP, b Bounds, found []Entry) {
	p := s.partition(tp)
	r := p.replica(id)
	if r.removes && len(found) == 0 { // it died in the deletion, which was done
		p.removed(r)
	}
	r.removes = false
	p.s26RecoveryFaithful(r, b, found)
	if !r.here {
		r.here = true
		r.empty(b.Start)
		r.agrees = min(b.Start, p.start)
	}
	was := r.end
	if b.End < r.end {
		r.cut(b.End)
	}
	for _, e := range found {
		if e.Base >= r.end { // written, but not told of: the process died in it
			p.noteAppend(r, e)
		}
	}
	// What was flushed stays so, though the new process may not know of it.
	r.start, r.end, r.flushed, r.hw = b.Start, b.End, min(max(r.flushed, b.Flushed), b.End), min(b.HighWatermark, b.End)
	r.leads, r.epoch, r.truncates = false, -1, -1
	p.expired(r)
	p.advance(r)
	r.unsure, r.open = false, true
	if r.b.lossy && (r.agrees < p.end() || was > b.End) {
		r.lossy = true
		s.probe("lossy restart that lost committed records", 1)
	}
	if was > b.End {
		p.checkLoss()
	}
}

// LogAppended: batches lie in a broker's log now. replica: it fetched them from a leader.
func (s *State) LogAppended(id int32, tp TP, batches []Entry, replica bool) {
	p := s.partition(tp)
	r := p.replica(id)
	for _, e := range batches {
		if !replica {
			p.s1OneLeaderPerEpoch(id, e.Epoch, "appends")
		}
		p.noteAppend(r, e)
	}
	r.had, r.told = 0, max(r.told, min(r.had, p.end())) // who fetches has told its leader how far it reaches
	if r.epoch >= p.unclean {
		r.reconciled = p.unclean
	}
	p.advance(r)
}

func (p *partition) noteAppend(r *replica, e Entry) {
	p.s2EpochAndOffsetOrder(r, e)
	p.append(r, e)
	p.s3SamePlaceSamePrefix(r, r.log[len(r.log)-1])
}

// LogChanged: a log was truncated, or its start moved, or more of it became durable. nowMs is the broker's wall clock.
func (s *State) LogChanged(id int32, tp TP, b Bounds, nowMs int64) {
	p := s.partition(tp)
	r := p.replica(id)
	r.truncates = -1
	r.flushed = max(r.flushed, b.Flushed)
	if b.Start > r.start || b.End < b.Start {
		if len(r.log) > 0 && b.Start <= r.end {
			p.s23RetentionSafe(r, b.Start, nowMs)
		}
		r.start = b.Start
		if r.leads || p.state.Leader == id { // elected, and not told yet: its log is the partition's already
			p.start = max(p.start, b.Start)
		}
		p.expired(r)
	}
	if b.End != r.end {
		r.had = min(r.had, b.End)
	}
	switch {
	case b.Start == b.End && b.End != r.end: // emptied, to begin elsewhere
		if r.agrees > b.End || r.end > b.End {
			s.probe("truncation that dropped records", 1)
		}
		agrees := min(b.Start, p.start)
		if b.End <= r.start { // it held nothing there: truncation changes nothing of what it has
			agrees = max(agrees, min(r.agrees, b.Start))
		}
		r.empty(b.Start)
		r.agrees = agrees
		p.advance(r)
		p.checkLoss()
		p.checkCandidates()
	case b.End < r.end:
		s.probe("truncation that dropped records", 1)
		r.cut(b.End)
		p.checkLoss()
		p.s4LeaderCompleteness()
		p.checkCandidates()
	}
}

// expired: what a replica lacked or had wrong before its log start is gone, as all had to go by a leader's.
func (p *partition) expired(r *replica) {
	if r.agrees < r.start && r.start <= p.start {
		i, _ := at(r.log, r.start)
		r.log, r.agrees = r.log[i:], r.start
		p.advance(r)
	}
}

// LogTruncates: a truncation begins.
func (s *State) LogTruncates(id int32, tp TP, to int64) { s.partition(tp).replica(id).truncates = to }

// LogRemoves: the deletion of a replica begins.
func (s *State) LogRemoves(id int32, tp TP) { s.partition(tp).replica(id).removes = true }

// LogRemoved: the broker deleted its replica.
func (s *State) LogRemoved(id int32, tp TP) {
	p := s.partition(tp)
	p.removed(p.replica(id))
}

func (p *partition) removed(r *replica) {
	r.empty(0)
	r.here, r.removes, r.leads, r.epoch, r.agrees, r.lossy = false, false, false, -1, 0, false
	p.checkLoss()
}

// BecameLeader: a broker leads the partition in this epoch.
func (s *State) BecameLeader(id int32, tp TP, epoch int32) {
	p := s.partition(tp)
	r := p.replica(id)
	p.s2KnownEpoch(r, epoch)
	p.s1OneLeaderPerEpoch(id, epoch, "leads")
	if !r.leads || r.epoch != epoch {
		r.epochHW = -1
	}
	r.leads, r.epoch = true, epoch
	p.start = max(p.start, r.start) // its log may begin later than its predecessor's did
	p.maybeMended(r)
	if epoch >= p.unclean {
		r.reconciled = p.unclean
	}
	if p.unclean > 0 && epoch == p.unclean {
		p.reset(r)
	}
	if p.unclean > 0 && r.hw > p.end() && !p.doomed(r) { // an earlier unclean election gave up what is its again now, below its high watermark
		p.commit(r, r.hw)
	}
	p.s4LeaderCompleteness()
}

// BecameFollower: a broker follows in this epoch.
func (s *State) BecameFollower(id int32, tp TP, epoch int32) {
	p := s.partition(tp)
	r := p.replica(id)
	p.s2KnownEpoch(r, epoch)
	r.leads, r.epoch = false, epoch
	p.maybeMended(r)
}

// HighWatermark: a replica's moved. counting are the replicas that the leader takes
// the minimum over; nil as a follower.
func (s *State) HighWatermark(id int32, tp TP, to int64, counting []int32) {
	p := s.partition(tp)
	r := p.replica(id)
	p.s9HighWatermark(r, to)
	r.hw = to
	if p.doomed(r) {
		return
	}
	if !r.leads {
		p.s3LogMatching(r)
		return
	}
	r.epochHW = max(r.epochHW, to)
	p.s1OneLeaderPerEpoch(id, r.epoch, "moves the high watermark")
	p.s6QuorumSuperset(r, counting)
	if to <= p.end() {
		p.s3LogMatching(r)
		return
	}
	p.commit(r, to)
}

// commit makes what lies below to in the leader's log part of the truth.
func (p *partition) commit(r *replica, to int64) {
	p.s3LogMatching(r)
	if r.agrees < p.end() {
		return // told by S3
	}
	before := p.end()
	i, found := at(r.log, before)
	if !found && len(p.truth) == 0 && len(r.log) > 0 && r.log[0].Base >= before {
		i, found = 0, true // what was before is gone by retention, and nobody saw it committed
	}
	for ; found && i < len(r.log) && r.log[i].Next <= to; i++ {
		p.truth = append(p.truth, r.log[i])
		p.checkSession(r.log[i])
	}
	if p.end() > before {
		for _, o := range p.replicas {
			p.advance(o)
		}
		p.settleAcked()
		p.s4LeaderCompleteness()
		p.checkCandidates()
	}
}

// StateWritten: the coordination service holds this state of the partition now. controllerEpoch is that in the service.
func (s *State) StateWritten(tp TP, n StateNode, controllerEpoch int32) {
	p := s.partition(tp)
	old, seen := p.state, p.stateSeen
	p.state, p.stateSeen = n, true
	s.epoch = max(s.epoch, controllerEpoch)
	if !seen {
		p.checkCandidates()
		return
	}
	if n.Leader == old.Leader && n.LeaderEpoch == old.LeaderEpoch && slices.Equal(n.ISR, old.ISR) && slices.Equal(n.ELR, old.ELR) && slices.Equal(n.Replicas, old.Replicas) {
		s.probe("state written as it was", 1)
	}
	p.s2StateEpochs(old, n)
	p.s27ControllerFence(old, n, controllerEpoch)
	if n.LeaderEpoch != old.LeaderEpoch {
		s.Elections++
		if n.Leader >= 0 { // its log may begin later than its predecessor's did
			p.start = max(p.start, p.replica(n.Leader).start)
		}
		if n.Leader >= 0 && len(old.ISR)+len(old.ELR) == 0 && !s.rules.Unclean {
			s.probe("election of the longest log", 1)
		} else if n.Leader >= 0 && !slices.Contains(old.ISR, n.Leader) && !slices.Contains(old.ELR, n.Leader) {
			s.Unclean++
			s.probe("unclean election", 1)
			if s.rules.Unclean {
				p.unclean = n.LeaderEpoch
				for _, r := range p.replicas {
					r.told = 0
				}
				p.reset(p.replica(n.Leader))
			}
		} else if n.Leader >= 0 && !slices.Contains(old.ISR, n.Leader) {
			s.probe("election from the ELR", 1)
		}
	}
	for _, id := range n.ISR {
		if r := p.replica(id); r.fit() {
			r.unmended = false
		}
	}
	if !slices.Equal(n.ISR, old.ISR) {
		s.ISRChanges++
		switch {
		case len(n.ISR) == 0:
			s.probe("ISR empty", 1)
		case len(n.ISR) == 1 && len(n.Replicas) > 1:
			s.probe("ISR down to one", 1)
		}
		if len(n.ISR) > len(old.ISR) {
			s.probe("ISR grew", 1)
		}
	}
	p.s6ValidElr()
	p.s4LeaderCompleteness()
	p.checkCandidates()
}

// Assigned: these brokers shall hold the partition.
func (s *State) Assigned(tp TP, replicas []int32) { s.partition(tp).state.Replicas = replicas }

// ControllerElected: a broker acts as controller in this epoch.
func (s *State) ControllerElected(id, epoch int32) {
	if other, seen := s.controllers[epoch]; seen && other != id {
		s.fail("S1 OneLeaderPerEpoch", "brokers %d and %d are both controller in epoch %d", other, id, epoch)
	}
	s.controllers[epoch] = id
}

// CommandApplied: a broker obeyed a controller of this epoch.
func (s *State) CommandApplied(id, epoch int32) {
	b := s.broker(id)
	if epoch < b.controller {
		s.fail("S27 ControllerFence", "broker %d obeyed a controller of epoch %d after one of epoch %d", id, epoch, b.controller)
	}
	b.controller = max(b.controller, epoch)
}

// Deletes: a client asks for the records below offset to be deleted.
func (s *State) Deletes(tp TP, offset int64) {
	p := s.partition(tp)
	p.deleted = max(p.deleted, offset)
}

// checkCandidates checks what a change of candidates, or of what they hold, can break.
func (p *partition) checkCandidates() {
	p.s28UncleanExclusion()
	p.s5CandidateCompleteness()
}

// checkLoss checks what the loss of a copy can break.
func (p *partition) checkLoss() { p.s7NoGlobalLoss() }

// doomed says that a replica acts in an epoch before an unclean election, or follows
// in a later one and has not yet taken anything from its leader: it truncates step by step.
func (p *partition) doomed(r *replica) bool { return r.epoch < p.unclean || r.reconciled < p.unclean }

// reset begins the ghost state of the partition anew after an election from
// outside ISR and ELR that was allowed: what the new leader lacks is legally gone.
func (p *partition) reset(r *replica) {
	if r.agrees >= p.end() {
		return
	}
	p.resets++
	p.s.probe("unclean election that lost records", 1)
	i, _ := holding(p.truth, r.agrees)
	p.truth = p.truth[:i]
	p.acked, p.ackedEnd = nil, min(p.ackedEnd, p.end())
	for _, o := range p.replicas {
		o.agrees = min(o.agrees, p.end())
	}
	p.sessions = map[session]progress{}
	for _, e := range p.truth {
		p.sessions[sessionOf(e)] = progressAfter(e)
	}
}
