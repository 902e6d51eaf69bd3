package sim

import (
	"strings"
	"testing"
)

// clusterSeeds is how many seeds of a cluster of three a test run plays. A sweep plays more.
const clusterSeeds = 8

func TestClusterSeedsAreClean(t *testing.T) {
	s := Sweep{From: 1, To: clusterSeeds, Options: Options{Brokers: 3}, TwiceEvery: 4, ViolationsMax: 1}
	sum := s.Run()
	for _, r := range sum.Violations {
		t.Errorf("seed %d: %s\nagain: tidemark sim run --brokers 3 --seed %d\n%s\n%s", r.Seed, r.Violation, r.Seed, r.Config, strings.Join(r.Tail, "\n"))
	}
	c := sum.Cluster
	t.Logf("%d runs, %d events, %v of virtual time, %+v", sum.Runs, sum.Events, sum.Virtual, c)
	if n := int64(sum.Runs); sum.Runs != clusterSeeds || c.Acked < 300*n || c.Faults < 3*n || c.Elections == 0 || c.ISRChanges == 0 {
		t.Errorf("the seeds do too little to show anything: %d runs, %+v", sum.Runs, c)
	}
	if len(sum.Short) > 0 || sum.Overtime == 0 {
		t.Errorf("seeds %v are worth too little (least %+v, %d with overtime)", sum.Short, sum.Least, sum.Overtime)
	}
}

// TestAPoorSeedGoesOn: what a seed lacks after its 60 s, records or faults, it gets in overtime.
func TestAPoorSeedGoesOn(t *testing.T) {
	none := 0
	for _, seed := range []uint64{84, 105} { // the first lacks records, the second faults
		if r := Run(seed, Options{Brokers: 3, Overtime: &none}); !r.Short() || r.Overtime != 0 {
			t.Errorf("seed %d lacks nothing without overtime: %+v", seed, *r.Cluster)
		}
		r := Run(seed, Options{Brokers: 3})
		if r.Short() || r.Overtime == 0 || r.Overtime == overtimeMax || r.Violation != "" {
			t.Errorf("seed %d after %d steps of overtime: %v, %+v, %q", seed, r.Overtime, r.Virtual, *r.Cluster, r.Violation)
		}
		s, err := Save(Options{Brokers: 3}, r)
		if err != nil {
			t.Fatal(err)
		}
		if _, same, why := s.Replay(nil); !same {
			t.Errorf("seed %d with overtime is not the same again: %s", seed, why)
		}
	}
}

// TestARuleThatIsOffIsFound: the checks see what each of these rules prevents, by the sweep alone.
func TestARuleThatIsOffIsFound(t *testing.T) {
	for _, f := range []struct{ rule, invariant string }{
		{"maximal-isr", "S6"},
		{"truncate-by-epoch", "S5"},
	} {
		t.Run(f.rule, func(t *testing.T) {
			s := Sweep{From: 1, To: 30, Options: Options{Brokers: 3, RulesOff: []string{f.rule}}, ViolationsMax: 0}
			s.Each = func(r Result) bool { return strings.HasPrefix(r.Violation, f.invariant+" ") }
			sum := s.Run()
			if n := len(sum.Violations); n == 0 || !strings.HasPrefix(sum.Violations[n-1].Violation, f.invariant+" ") {
				t.Errorf("no violation of %s in %d seeds", f.invariant, sum.Runs)
			}
		})
	}
}
