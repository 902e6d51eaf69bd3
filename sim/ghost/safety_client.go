package ghost

// The invariants of what clients see: S10 to S12, S14 to S16, S20, S22, S25.

// session is an idempotent producer's, in one epoch of its id.
type session struct {
	producer int64
	epoch    int16
}

// progress is how far a session has come.
type progress struct {
	next int32 // expected sequence
	last Entry
}

func sessionOf(e Entry) session { return session{e.ID.Producer, e.ID.ProducerEpoch} }

func progressAfter(e Entry) progress {
	return progress{int32((int64(e.ID.Sequence) + int64(e.ID.Records)) & 0x7fffffff), e}
}

// checkSession checks a newly committed batch of an idempotent producer against what
// its session has committed before.
func (p *partition) checkSession(e Entry) {
	if e.ID.Producer < 0 {
		return
	}
	before, seen := p.sessions[sessionOf(e)]
	if v := sessionOrder(before, seen, e); v != "" {
		p.s.fail(v, "%v: %v was committed where sequence %d of its session follows, last was %v", p.tp, e, before.next, before.last)
	}
	p.sessions[sessionOf(e)] = progressAfter(e)
}

// sessionOrder names the broken invariant, or "".
func sessionOrder(before progress, seen bool, e Entry) string {
	switch {
	case s15NoDuplicate(before, seen, e):
		return "S15 NoDuplicate"
	case s14ProducerOrder(before, seen, e):
		return "S14 ProducerOrder"
	case s16NoSessionGap(before, e):
		return "S16 NoSessionGap"
	}
	return ""
}

// s15NoDuplicate: with idempotence a batch is stored once.
func s15NoDuplicate(before progress, seen bool, e Entry) bool {
	return seen && before.last.ID.Sequence == e.ID.Sequence
}

// s14ProducerOrder: within a session the order of sends is the order of offsets.
func s14ProducerOrder(before progress, seen bool, e Entry) bool {
	return seen && e.ID.Sequence < before.next && before.next-e.ID.Sequence < 1<<30
}

// s16NoSessionGap: no batch of a session is missing before one that is there.
func s16NoSessionGap(before progress, e Entry) bool { return e.ID.Sequence != before.next }

// Delivered: a consumer whose position was at got these batches, and how many bytes are not told. It gives the next position.
func (s *State) Delivered(tp TP, position int64, batches []Entry) (next int64) {
	p := s.partition(tp)
	for i, e := range batches {
		p.s25IndexFaithful(position, i == 0, e)
		p.s22PollContiguity(position, i == 0, e)
		p.s10CommittedReadsOnly(e)
		position = max(position, e.Next)
	}
	return position
}

// s25IndexFaithful: a look-up finds the batch that holds the offset, and none before it.
func (p *partition) s25IndexFaithful(position int64, first bool, e Entry) {
	if first && e.Next <= position {
		p.s.fail("S25 IndexFaithful", "%v: a fetch at %d is answered with %v", p.tp, position, e)
	}
}

// s22PollContiguity: what is delivered neither skips nor goes back.
func (p *partition) s22PollContiguity(position int64, first bool, e Entry) {
	if e.Base > position || !first && e.Base != position {
		p.s.fail("S22 PollContiguity", "%v: at position %d comes %v", p.tp, position, e)
	}
}

// s10CommittedReadsOnly: what is delivered was committed. s11RepeatableRead: and it is
// what was committed there, as every earlier and later read has it.
func (p *partition) s10CommittedReadsOnly(e Entry) {
	if p.unclean > 0 {
		return // a leader of before may go on serving what is lost
	}
	if e.Base >= p.end() {
		p.s.fail("S10 CommittedReadsOnly", "%v: %v is delivered, and committed is what lies below %d", p.tp, e, p.end())
		return
	}
	if i, found := holding(p.truth, e.Base); found {
		p.s11RepeatableRead(p.truth[i], e)
	}
}

func (p *partition) s11RepeatableRead(committed, e Entry) {
	if committed.ID != e.ID || committed.Base != e.Base {
		p.s.fail("S11 RepeatableRead", "%v: %v is delivered where %v was committed", p.tp, e, committed)
	}
}

// S20AtLeastOnce: a consumer's position jumps from one offset to another, and what
// lies between it will not see: retention, or a deliberate unclean election, must have taken it.
func (s *State) S20AtLeastOnce(tp TP, from, to int64, resetsThen int) {
	p := s.partition(tp)
	if to <= from || to <= p.start || p.resets != resetsThen {
		if to > from {
			s.probe("records expired before they were read", 1)
		}
		return
	}
	if i, found := holding(p.truth, max(from, p.start)); found && p.truth[i].Base < to {
		s.fail("S20 AtLeastOnce", "%v: a consumer goes on at %d instead of %d, past %v, which is there", tp, to, from, p.truth[i])
	}
}
