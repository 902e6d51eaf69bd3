package sim

import (
	"testing"

	"github.com/tidemark-log/tidemark/experiments"
)

func scenarioOf(t *testing.T, id string) *experiments.Scenario {
	t.Helper()
	e, err := experiments.FindEntry(id)
	if err != nil || e[0].Scenario == nil {
		t.Fatalf("entry %s: %v, %v", id, err, e)
	}
	return e[0].Scenario
}

// TestAVectorTakesNoScheduleAlong: an entry's rules, counts and settings come from its file; times,
// clients and faults stay as the seed has drawn them.
func TestAVectorTakesNoScheduleAlong(t *testing.T) {
	s := scenarioOf(t, "A2")
	drawn := newCluster(5, Options{Brokers: s.Brokers}).cfg
	bug := newCluster(5, Options{Entry: s, Brokers: s.Brokers, Bug: true}).cfg
	fixed := newCluster(5, Options{Entry: s, Brokers: s.Brokers}).cfg
	if bug.broker.MinISR != 1 || fixed.broker.MinISR != 2 || bug.rules.MinISR != 2 {
		t.Errorf("min.insync.replicas %d and %d, promised %d: want 1 and 2, promised 2", bug.broker.MinISR, fixed.broker.MinISR, bug.rules.MinISR)
	}
	if len(bug.broker.RulesOff) != len(s.RulesOff) || len(fixed.broker.RulesOff) != 0 {
		t.Errorf("rules off: %v and %v", bug.broker.RulesOff, fixed.broker.RulesOff)
	}
	if bug.broker.ReplicaLagMax != drawn.broker.ReplicaLagMax || bug.faults != drawn.faults || len(bug.producers) != len(drawn.producers) {
		t.Errorf("lag %v, faults %+v, %d producers: want them as drawn: %v, %+v, %d", bug.broker.ReplicaLagMax, bug.faults, len(bug.producers), drawn.broker.ReplicaLagMax, drawn.faults, len(drawn.producers))
	}
}

// TestTheSweepFindsWhatAnEntryNames: given the vector alone, within a few seeds. How many each
// entry needs stands in experiments/scenarios/README.md.
func TestTheSweepFindsWhatAnEntryNames(t *testing.T) {
	for _, id := range []string{"A1", "A2", "B1", "G3"} {
		t.Run(id, func(t *testing.T) {
			h := Hunt{Entry: scenarioOf(t, id), From: 1, To: 12}
			got := h.Run()
			if len(got.Hits) != 1 {
				t.Fatalf("none of %v broke in %d seeds; others: %v", got.Breaks, got.Runs, got.Others)
			}
			fixed := h
			fixed.From, fixed.To, fixed.Fixed = got.Hits[0].Seed, got.Hits[0].Seed, true
			if again := fixed.Run(); len(again.Hits)+len(again.Others) > 0 {
				t.Errorf("with the rules on seed %d breaks too: %+v %v", fixed.From, again.Hits, again.Others)
			}
		})
	}
}
