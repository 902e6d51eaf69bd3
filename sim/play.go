package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-log/tidemark/experiments"
)

// Told is a scenario as it was told from one seed.
type Told struct {
	Scenario *experiments.Scenario `json:"-"`
	Name     string                `json:"scenario"`
	Entry    string                `json:"entry,omitempty"`
	Seed     uint64                `json:"seed"`
	Vector   *Result               `json:"vector,omitempty"` // without its rules: what it names must break
	Fixed    *Result               `json:"fixed,omitempty"`  // with the rules on: nothing may, and its witnesses must be reached
	Broken   string                `json:"broken,omitempty"` // the invariant that broke in Vector, by its id
	Problems []string              `json:"problems"`         // what the scenario promises and does not hold, in words
}

// Ways say how a scenario is told.
type Ways struct {
	Vector, Fixed bool
	Options       // Echo hears both, one after the other
}

// Tell plays a scenario: without its rules from the first seed of its search that breaks
// what it names, and with the rules on from the same seed.
func Tell(s *experiments.Scenario, w Ways) (*Told, error) {
	if err := checkScenario(s); err != nil {
		return nil, err
	}
	t := &Told{Scenario: s, Name: s.Name, Entry: s.Entry, Problems: []string{}}
	from, to, err := s.SearchSeeds()
	if err != nil {
		return nil, err
	}
	t.Seed = from
	w.Scenario = s
	if len(s.Breaks) == 0 {
		w.Vector = false
	}
	if w.Vector || w.Fixed && from != to {
		t.tellVector(from, to, w)
	}
	if w.Fixed {
		w.Bug = false
		r := w.play(t.Seed)
		t.Fixed = &r
		t.judgeFixed()
	}
	return t, nil
}

// tellVector finds the seed. Where only the seed is wanted it keeps nothing else.
func (t *Told) tellVector(from, to uint64, w Ways) {
	w.Bug = true
	if !w.Vector {
		w.Echo = nil
	}
	var r Result
	for seed := from; seed <= to; seed++ {
		r = w.play(seed)
		if slices.Contains(t.Scenario.Breaks, r.Invariant()) {
			t.Seed = seed
			break
		}
	}
	if !w.Vector {
		return
	}
	t.Vector, t.Broken = &r, r.Invariant()
	switch {
	case slices.Contains(t.Scenario.Breaks, t.Broken):
	case r.Violation != "":
		t.problem("without its rules %s breaks, and not %s", t.Broken, strings.Join(t.Scenario.Breaks, " or "))
	default:
		t.problem("without its rules nothing breaks; it should be %s%s", strings.Join(t.Scenario.Breaks, " or "), stepsLeft(r))
	}
}

// play runs one seed, with a line before it for whoever watches.
func (w Ways) play(seed uint64) Result {
	if w.Echo != nil {
		way := "with every rule on"
		if w.Bug {
			way = "without its rules"
		}
		w.Echo(fmt.Sprintf("== %s, seed %d ==", way, seed))
	}
	return Run(seed, w.Options)
}

func stepsLeft(r Result) string {
	if r.StepsLeft == 0 {
		return ""
	}
	return fmt.Sprintf(", and %d of its steps did not come about", r.StepsLeft)
}

func (t *Told) judgeFixed() {
	r := t.Fixed
	if r.Violation != "" {
		t.problem("with the rules on there is a violation: %s", r.Violation)
	}
	if r.StepsLeft > 0 {
		t.problem("with the rules on %d of its %d steps did not come about", r.StepsLeft, len(t.Scenario.Steps))
	}
	for _, w := range t.Scenario.Witness {
		if r.Probes[w] == 0 {
			t.problem("with the rules on the witness does not occur: %s", w)
		}
	}
}

func (t *Told) problem(format string, args ...any) {
	t.Problems = append(t.Problems, fmt.Sprintf(format, args...))
}

// Invariant is the id of what was violated, as S5 or L4; "" where nothing was.
func (r *Result) Invariant() string { return invariantOf(r.Violation) }

// StepTold is a step of a scenario that has happened.
type StepTold struct {
	Number int     `json:"step"`
	At     int64   `json:"at_ns"`
	Deed   string  `json:"deed"`
	Whom   []int32 `json:"brokers,omitempty"` // the brokers in its target's role, then
}

// noteStep keeps what a step does, and to whom, before it is done.
func (c *Cluster) noteStep(f *experiments.Fault) {
	told := StepTold{Number: c.story.next, At: int64(c.now), Deed: f.Deed()}
	target, _ := f.Targets()
	switch target.Role {
	case experiments.RoleLeader, experiments.RoleFollower, experiments.RoleLagging, experiments.RoleController:
		for _, n := range c.nodesOf(target) {
			told.Whom = append(told.Whom, n.id)
		}
	}
	c.story.done = append(c.story.done, told)
}
