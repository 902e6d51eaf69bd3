package sim

import "slices"

// Shrink looks for a smaller run that violates the same invariant: fewer faults, by delta
// debugging over their list, and less work of clients, by halving. A fault that is left out
// shifts no draw of another, so what is left happens when it happened.
type Shrink struct {
	Saved   *Saved
	RunsMax int // a bound on the search
	// Each hears of every run, and of the smallest so far; stop ends the search.
	Each func(runs int, smallest *Saved) (stop bool)

	runs    int
	stopped bool
}

// Run gives the smallest found, which is written down anew, and how many runs that took. It is
// the one begun with where nothing smaller violates the same; nil where that itself does not.
func (s *Shrink) Run() (smallest *Saved, runs int) {
	begin := *s.Saved
	if s.Saved.Invariant() == "" || !s.breaks(&begin) {
		return nil, s.runs
	}
	s.Saved = &begin
	for before := -1; before != s.size() && !s.over(); {
		before = s.size()
		s.dropIdle()
		s.dropFaults()
		s.halveWork()
	}
	return s.Saved, s.runs
}

// size is what becomes smaller.
func (s *Shrink) size() int {
	n := len(s.Saved.Faults)
	for _, b := range s.Saved.Batches {
		n += b
	}
	return n
}

func (s *Shrink) over() bool { return s.stopped || s.runs >= s.RunsMax }

// breaks plays a candidate, and writes down how it went if the same invariant broke.
func (s *Shrink) breaks(c *Saved) bool {
	if s.over() {
		return false
	}
	s.runs++
	r := Run(c.Seed, c.Options())
	same := r.Invariant() == s.Saved.Invariant()
	if same {
		c.takes(r) // without the faults that it did not come to
	}
	if s.Each != nil {
		smallest := s.Saved
		if same {
			smallest = c
		}
		s.stopped = s.Each(s.runs, smallest)
	}
	return same
}

// try takes a candidate for the smallest if it breaks.
func (s *Shrink) try(faults []Drawn, batches []int) bool {
	c := *s.Saved
	c.Faults, c.Batches = faults, batches
	if !s.breaks(&c) {
		return false
	}
	s.Saved = &c
	return true
}

// dropIdle leaves out what came to nothing.
func (s *Shrink) dropIdle() {
	left := slices.DeleteFunc(slices.Clone(s.Saved.Faults), func(f Drawn) bool { return f.Idle })
	if len(left) < len(s.Saved.Faults) {
		s.try(left, s.Saved.Batches)
	}
}

// dropFaults leaves out half of the faults, then quarters, and so on down to single ones.
func (s *Shrink) dropFaults() {
	for chunk := len(s.Saved.Faults); chunk >= 1; chunk = (chunk + 1) / 2 {
		for from := 0; from < len(s.Saved.Faults) && !s.over(); {
			to := min(from+chunk, len(s.Saved.Faults))
			if !s.try(slices.Delete(slices.Clone(s.Saved.Faults), from, to), s.Saved.Batches) {
				from = to
			}
		}
		if chunk == 1 {
			return
		}
	}
}

// halveWork lets each producer send less, or nothing.
func (s *Shrink) halveWork() {
	for i := range s.Saved.Batches {
		with := func(n int) []int {
			batches := slices.Clone(s.Saved.Batches)
			batches[i] = n
			return batches
		}
		if s.Saved.Batches[i] == 0 || s.try(s.Saved.Faults, with(0)) {
			continue
		}
		for n := s.Saved.Batches[i] / 2; n > 0 && s.try(s.Saved.Faults, with(n)); n /= 2 {
			continue
		}
	}
}
