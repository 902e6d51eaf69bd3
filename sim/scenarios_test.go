package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/experiments"
)

// TestEveryScenarioBreaksWithoutItsRulesAndPassesWithThem plays the catalogue.
func TestEveryScenarioBreaksWithoutItsRulesAndPassesWithThem(t *testing.T) {
	for _, name := range experiments.ScenarioNames() {
		t.Run(name, func(t *testing.T) {
			s, err := experiments.LoadScenario(name)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Breaks) == 0 || len(s.Witness) == 0 || s.Entry == "" {
				t.Fatal("it names no entry, no invariant that breaks, or no witness")
			}
			seed := breaksAt(t, s)
			fixed := Run(seed, Options{Scenario: s})
			if fixed.Violation != "" || fixed.StepsLeft > 0 {
				t.Errorf("with the rules on: %q, %d steps left\n%s", fixed.Violation, fixed.StepsLeft, strings.Join(fixed.Tail, "\n"))
			}
			for _, w := range s.Witness {
				if fixed.Probes[w] == 0 {
					t.Errorf("with the rules on the story does not come to %q", w)
				}
			}
		})
	}
}

// breaksAt gives the first seed at which a story, told without its rules, breaks what it names.
func breaksAt(t *testing.T, s *experiments.Scenario) uint64 {
	from, to := seedsOf(t, s)
	said := ""
	for seed := from; seed <= to; seed++ {
		bug := Run(seed, Options{Scenario: s, Bug: true})
		name := bug.Invariant()
		if slices.Contains(s.Breaks, name) {
			t.Logf("seed %d: %s", seed, bug.Violation)
			return seed
		}
		said = fmt.Sprintf("%q, %d steps left", bug.Violation, bug.StepsLeft)
	}
	t.Fatalf("without the rules none of %v breaks: %s", s.Breaks, said)
	return 0
}

func seedsOf(t *testing.T, s *experiments.Scenario) (from, to uint64) {
	from, to, err := s.SearchSeeds()
	if err != nil {
		t.Fatal(err)
	}
	return from, to
}

// notNeeded are rules of a vector that its story breaks without anyhow; their files say why they are in it.
var notNeeded = map[string]string{"a2-min-isr-1": "hw-requires-min-isr"}

// TestEachRuleOfAVectorIsNeeded: with one of them back on nothing that a story names breaks.
// So it is the rule that prevents the failure, or one that hides it (section 2 of the catalogue).
func TestEachRuleOfAVectorIsNeeded(t *testing.T) {
	for _, name := range experiments.ScenarioNames() {
		s, err := experiments.LoadScenario(name)
		if err != nil {
			t.Fatal(err)
		}
		seed, _ := seedsOf(t, s)
		for i, rule := range s.RulesOff {
			if notNeeded[name] == rule {
				continue
			}
			but := *s
			but.RulesOff = slices.Delete(slices.Clone(s.RulesOff), i, i+1)
			r := Run(seed, Options{Scenario: &but, Bug: true})
			if slices.Contains(s.Breaks, r.Invariant()) {
				t.Errorf("%s breaks with %s on too: %s", name, rule, r.Violation)
			}
		}
	}
}

// TestAStoryThatCannotBePlayedIsRefused: a step that would wait for ever for what nobody knows is an error.
func TestAStoryThatCannotBePlayedIsRefused(t *testing.T) {
	for _, when := range []string{"told", "told x", "told 1 2", "end 1 3", "hw 1 ! 3", "elr a", "in sync and nonsense 1", "acked 0"} {
		s := &experiments.Scenario{Name: "x", Steps: []experiments.Fault{{Kind: experiments.FaultHeal, When: when}}}
		if checkScenario(s) == nil {
			t.Errorf("when = %q is taken for a condition", when)
		}
	}
	for _, when := range []string{"told 1", "gone 2", "registered 1", "acked 5", "end 1 = 0", "hw 3 < 2", "elr 1,2", "in sync and leader 2 and end 1 > 4"} {
		s := &experiments.Scenario{Name: "x", Steps: []experiments.Fault{{Kind: experiments.FaultHeal, When: when}}}
		if err := checkScenario(s); err != nil {
			t.Errorf("when = %q: %v", when, err)
		}
	}
}

// TestAStoryThatHangsIsToldOf: steps that did not come about are counted.
func TestAStoryThatHangsIsToldOf(t *testing.T) {
	text := `
entry  = "A1"
breaks = ["S4"]
[[steps]]
fault = "heal"
when  = "end 1 = 77777"
`
	s, err := experiments.ParseScenario("hangs", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s.Scripted = true
	if r := Run(1, Options{Scenario: s}); r.StepsLeft != 1 || r.Violation != "" {
		t.Errorf("%d steps left of 1, violation %q", r.StepsLeft, r.Violation)
	}
}

// TestAnISRChangeIsWrittenOnce: what a leader writes is what the controller wants, so
// that does not write it again, and tell all replicas.
func TestAnISRChangeIsWrittenOnce(t *testing.T) {
	s, err := experiments.LoadScenario("c1-pending-expansion")
	if err != nil {
		t.Fatal(err)
	}
	r := Run(1, Options{Scenario: s})
	if n := r.Probes["state written as it was"]; r.Cluster.ISRChanges < 3 || n > 0 {
		t.Errorf("%d changes of the ISR, and %d writes of what was there", r.Cluster.ISRChanges, n)
	}
}

// TestChaosPasses plays what has no vector with the rules on.
func TestChaosPasses(t *testing.T) {
	for _, name := range experiments.ChaosNames() {
		s, err := experiments.LoadScenario(name)
		if err != nil {
			t.Fatal(err)
		}
		told, err := Tell(s, Ways{Vector: true, Fixed: true})
		if err != nil || len(told.Problems) > 0 || told.Vector != nil || told.Fixed.Cluster.Acked < 500 {
			t.Errorf("%s: %v, %+v", name, err, told)
		}
	}
}
