package ghost

// The invariants of logs: S1 to S3, S9, S23, S26.

// s1OneLeaderPerEpoch: at most one broker ever appends, acknowledges or moves the high watermark in a leader epoch.
func (p *partition) s1OneLeaderPerEpoch(id, epoch int32, does string) {
	if epoch < 0 {
		return
	}
	if other, seen := p.leaders[epoch]; seen && other != id {
		p.s.fail("S1 OneLeaderPerEpoch", "%v: broker %d %s in leader epoch %d, which broker %d led", p.tp, id, does, epoch, other)
		return
	}
	p.leaders[epoch] = id
}

// s2EpochAndOffsetOrder: in a log offsets rise, without a gap, and epochs never fall.
func (p *partition) s2EpochAndOffsetOrder(r *replica, e Entry) {
	n := len(r.log)
	switch {
	case e.Base != r.end && (n > 0 || r.end > r.start):
		p.s.fail("S2 EpochAndOffsetOrder", "%v on broker %d: the log ends at %d and %v is appended", p.tp, r.b.id, r.end, e)
	case n > 0 && e.Epoch < r.log[n-1].Epoch:
		p.s.fail("S2 EpochAndOffsetOrder", "%v on broker %d: %v is appended behind %v", p.tp, r.b.id, e, r.log[n-1])
	}
}

// s2KnownEpoch: the leader epoch that a broker knows never falls within its life.
func (p *partition) s2KnownEpoch(r *replica, epoch int32) {
	if epoch < r.epoch {
		p.s.fail("S2 EpochAndOffsetOrder", "%v on broker %d: goes from leader epoch %d back to %d", p.tp, r.b.id, r.epoch, epoch)
	}
}

// s2StateEpochs: nor does the one that the coordination service knows.
func (p *partition) s2StateEpochs(old, n StateNode) {
	if n.LeaderEpoch < old.LeaderEpoch {
		p.s.fail("S2 EpochAndOffsetOrder", "%v: the leader epoch in the coordination service goes from %d back to %d", p.tp, old.LeaderEpoch, n.LeaderEpoch)
	}
	if n.LeaderEpoch == old.LeaderEpoch && n.Leader != old.Leader {
		p.s.fail("S1 OneLeaderPerEpoch", "%v: the leader changes from %d to %d within leader epoch %d", p.tp, old.Leader, n.Leader, n.LeaderEpoch)
	}
}

// s3LogMatching: below its high watermark a replica holds what was committed. Any
// two replicas then agree below both of theirs.
func (p *partition) s3LogMatching(r *replica) {
	if r.agrees >= min(r.hw, p.end(), r.end) {
		return
	}
	i, _ := holding(r.log, max(r.agrees, r.start))
	j, _ := holding(p.truth, r.agrees)
	if i < len(r.log) && j < len(p.truth) {
		p.s.fail("S3 LogMatching", "%v on broker %d, high watermark %d: it holds %v where %v was committed", p.tp, r.b.id, r.hw, r.log[i], p.truth[j])
		return
	}
	p.s.fail("S3 LogMatching", "%v on broker %d, high watermark %d: its log [%d, %d) agrees with what was committed up to %d only", p.tp, r.b.id, r.hw, r.start, r.end, r.agrees)
}

// s3SamePlaceSamePrefix is its strong form: an offset and a leader epoch stand for
// one batch, and for everything before it.
func (p *partition) s3SamePlaceSamePrefix(r *replica, e Entry) {
	if e.chain == 0 {
		return
	}
	at := place{e.Base, e.Epoch}
	if other, seen := p.places[at]; seen && other != e.chain {
		p.s.fail("S3 LogMatching", "%v on broker %d: %v, or what lies before it, is not what another log has at that offset and epoch", p.tp, r.b.id, e)
		return
	}
	p.places[at] = e.chain
}

// s9HighWatermark: it lies within the log, and never falls in an epoch of a leader.
func (p *partition) s9HighWatermark(r *replica, to int64) {
	switch {
	case to > r.end || to < r.start:
		p.s.fail("S9 HW", "%v on broker %d: the high watermark is %d, the log [%d, %d)", p.tp, r.b.id, to, r.start, r.end)
	case r.leads && to < r.epochHW:
		p.s.fail("S9 HW", "%v on broker %d: the high watermark falls from %d to %d in leader epoch %d", p.tp, r.b.id, r.epochHW, to, r.epoch)
	}
}

// S9EndOffset: (b) end offsets answered to a client never fall, across leaders too. before
// is the largest answer that had come when the question was asked.
func (s *State) S9EndOffset(tp TP, before, answer int64, resetsThen int) {
	p := s.partition(tp)
	if answer < before && p.resets == resetsThen && p.unclean == 0 { // a leader of before may go on answering
		s.fail("S9 HW", "%v: the end offset %d is answered to a client that knows of %d", tp, answer, before)
	}
}

// s23RetentionSafe: only what lies below the high watermark is deleted, and only what a rule allows.
func (p *partition) s23RetentionSafe(r *replica, start, nowMs int64) {
	if r.leads && start > r.hw {
		p.s.fail("S23 RetentionSafe", "%v on broker %d: the log starts at %d, above its high watermark %d", p.tp, r.b.id, start, r.hw)
		return
	}
	if !r.leads || start <= p.deleted || p.s.rules.RetentionBytes >= 0 {
		return
	}
	for i, _ := holding(r.log, max(r.start, p.deleted)); i < len(r.log) && r.log[i].Next <= start; i++ {
		e := r.log[i]
		if p.s.rules.RetentionMs < 0 || nowMs-e.ID.Timestamp <= p.s.rules.RetentionMs {
			p.s.fail("S23 RetentionSafe", "%v on broker %d: the log starts at %d, and nothing allows to delete %v", p.tp, r.b.id, start, e)
			return
		}
	}
}

// s26RecoveryPoint: the checkpoint calls nothing durable that is not, or recovery would not look at it (H3).
func (p *partition) s26RecoveryPoint(r *replica, offset int64) {
	if offset > r.flushed {
		p.s.fail("S26 RecoveryFaithful", "%v on broker %d: the recovery point is %d, and durable is what lies below %d", p.tp, r.b.id, offset, r.flushed)
	}
}

// s26RecoveryFaithful: after a start the log is the longest valid beginning of what it
// was. A mere death of the process loses nothing, a power cut nothing that was flushed.
func (p *partition) s26RecoveryFaithful(r *replica, b Bounds, found []Entry) {
	end := b.Start
	if n := len(found); n > 0 {
		end = found[n-1].Next
	}
	switch {
	case end != b.End:
		p.s.fail("S26 RecoveryFaithful", "%v on broker %d: the log is said to end at %d, and its files end at %d", p.tp, r.b.id, b.End, end)
	case b.HighWatermark > b.End:
		p.s.fail("S26 RecoveryFaithful", "%v on broker %d: high watermark %d in the checkpoint, the log ends at %d", p.tp, r.b.id, b.HighWatermark, b.End)
	case !r.here:
		return
	case r.truncates >= 0 && b.End >= min(r.truncates, r.end): // it died in a truncation, whatever that had reached
	case !r.unsure && b.End < r.end:
		p.s.fail("S26 RecoveryFaithful", "%v on broker %d: the log ended at %d, and after the mere death of a process it ends at %d", p.tp, r.b.id, r.end, b.End)
	case b.End < r.flushed:
		p.s.fail("S26 RecoveryFaithful", "%v on broker %d: everything below %d was flushed, and after a power cut the log ends at %d", p.tp, r.b.id, r.flushed, b.End)
	}
	for _, e := range found {
		if have, ok := r.find(e.Base); ok && !have.same(e) {
			p.s.fail("S26 RecoveryFaithful", "%v on broker %d: %v stands on the disk where %v was written", p.tp, r.b.id, e, have)
			return
		}
	}
}
