package sim

import (
	"slices"
	"strings"
	"testing"
)

// found gives a run of a cluster without a rule in which something breaks, written down.
func found(t *testing.T) (*Saved, Result) {
	t.Helper()
	o := Options{Brokers: 3, RulesOff: []string{"truncate-by-epoch"}}
	for seed := uint64(1); seed <= 60; seed++ {
		if r := Run(seed, o); r.Invariant() == "S5" && len(r.Faults) >= 5 {
			s, err := Save(o, r)
			if err != nil {
				t.Fatal(err)
			}
			return s, r
		}
	}
	t.Fatal("no seed of 60 breaks S5 after five faults")
	return nil, Result{}
}

// TestASavedRunIsTheSameAgain: from the file, with the faults by their numbers, the trace hash is that of the seed.
func TestASavedRunIsTheSameAgain(t *testing.T) {
	o := Options{Brokers: 3}
	clean := Run(2, o)
	cleanSaved, err := Save(o, clean)
	if err != nil {
		t.Fatal(err)
	}
	broken, r := found(t)
	for _, c := range []struct {
		saved *Saved
		r     Result
	}{{cleanSaved, clean}, {broken, r}} {
		text, err := c.saved.Encode()
		if err != nil {
			t.Fatal(err)
		}
		read, err := DecodeSaved(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		again, same, why := read.Replay(nil)
		if !same || again.Hash != c.r.Hash || again.Violation != c.r.Violation || !slices.Equal(again.Faults, c.r.Faults) {
			t.Errorf("seed %d: %s; %q, and %q before\n%s", c.r.Seed, why, again.Violation, c.r.Violation, text)
		}
		// One fault less is another history, and that is said.
		at := slices.IndexFunc(read.Faults, func(f Drawn) bool { return !f.Idle })
		read.Faults = slices.Delete(read.Faults, at, at+1)
		if _, same, why := read.Replay(nil); same || !strings.Contains(why, "list of faults") {
			t.Errorf("seed %d without its first fault: same %v, %q", c.r.Seed, same, why)
		}
	}
}

// TestShrinkLeavesOutWhatIsNotNeeded: what remains breaks the same, and without any of its faults it does not.
func TestShrinkLeavesOutWhatIsNotNeeded(t *testing.T) {
	saved, _ := found(t)
	runs := 0
	s := Shrink{Saved: saved, RunsMax: 300, Each: func(n int, smallest *Saved) bool { runs = n; return false }}
	smallest, n := s.Run()
	if smallest == nil || n != runs || n > 300 || len(smallest.Faults) >= len(saved.Faults) {
		t.Fatalf("%d runs (%d heard of): %+v", n, runs, smallest)
	}
	if r, same, why := smallest.Replay(nil); !same || r.Invariant() != "S5" {
		t.Errorf("the smallest is not the same again: %s; %q", why, r.Violation)
	}
	for i := range smallest.Faults {
		less := *smallest
		less.Faults = slices.Delete(slices.Clone(smallest.Faults), i, i+1)
		if r, _, _ := less.Replay(nil); r.Invariant() == "S5" {
			t.Errorf("fault %+v is not needed", smallest.Faults[i])
		}
	}
	t.Logf("from %d faults to %d in %d runs: %+v", len(saved.Faults), len(smallest.Faults), n, smallest.Faults)
}

func TestShrinkIsBoundedAndNeedsSomethingThatBreaks(t *testing.T) {
	saved, _ := found(t)
	if smallest, runs := (&Shrink{Saved: saved, RunsMax: 3}).Run(); runs != 3 || smallest == nil {
		t.Errorf("%d runs of 3, %+v", runs, smallest)
	}
	stopped := &Shrink{Saved: saved, RunsMax: 300, Each: func(n int, _ *Saved) bool { return n == 2 }}
	if _, runs := stopped.Run(); runs != 2 {
		t.Errorf("%d runs, and it was stopped after 2", runs)
	}
	other := *saved
	other.RulesOff = nil
	if smallest, _ := (&Shrink{Saved: &other, RunsMax: 300}).Run(); smallest != nil {
		t.Errorf("with every rule on it breaks too: %+v", smallest)
	}
}

func TestASavedRunThatIsDamagedIsOneLine(t *testing.T) {
	good := "format = 1\nseed = 1\nbrokers = 3\nhash = '0'\nviolation = ''\nworld = ''\n[[faults]]\nnumber = 1\nat = '1s'\nkind = 'kill'\nbroker = 1\n"
	if _, err := DecodeSaved([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, says string }{
		{"format = 1", "", "it is no trace: the line format = 1 is missing"},
		{"format = 1", "format = 7", "format 7, and this version reads format 1"},
		{"seed = 1", "seed", "line 2"},
		{"seed = 1", "sead = 1", "line 2: unknown key sead"},
		{"seed = 1", "seed = 'x'", "line 2"},
		{"brokers = 3", "brokers = 1000000", "brokers = 1000000: want 1 to"},
		{"brokers = 3", "brokers = 3\nbatches = [-1]", "batches = -1 of a producer: want 0 to 1000"},
		{"brokers = 3", "brokers = 3\nbatches = [10, 1001]", "batches = 1001 of a producer: want 0 to 1000"},
		{"brokers = 3", "brokers = 3\nbatches = [" + strings.Repeat("1,", 17) + "]", "batches of 17 producers: want 16 at most"},
		{"brokers = 3", "brokers = 3\nrules_off = ['none']", `no rule is called "none"`},
		{"'1s'", "'soon'", `fault 1 at "soon"`},
		{"number = 1", "number = 0", "want a number from 1"},
	} {
		_, err := DecodeSaved([]byte(strings.Replace(good, c.from, c.to, 1)))
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q for %q: %v", c.to, c.from, err)
		}
	}
	if _, err := Save(Options{}, Result{}); err == nil {
		t.Error("the run of a broker alone is written down")
	}
}
