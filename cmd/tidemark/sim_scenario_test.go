package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/experiments"
)

func TestAScenarioIsToldBothWays(t *testing.T) {
	out, err := simulate("run", "b1")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"B1  Truncation to the high watermark", "With truncate-by-epoch off (seed 1):", "BROKEN  S5 CandidateCompleteness",
		"whoever may be elected holds everything", "kill broker 2", "PASSES", "witness: ISR down to one", "holds what it promises",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not told:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("colours without a terminal")
	}
	if strings.Index(out, "BROKEN") > strings.Index(out, "PASSES") {
		t.Error("the run that passes is told first")
	}
}

func TestOneWayAloneIsToldAlone(t *testing.T) {
	out, err := simulate("run", "B1", "--vector-only")
	if err != nil || !strings.Contains(out, "BROKEN") || strings.Contains(out, "PASSES") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = simulate("run", "B1", "--fixed-only", "--trace")
	if err != nil || strings.Contains(out, "BROKEN") || !strings.Contains(out, "PASSES") || strings.Count(out, "\n") < 200 || !strings.HasPrefix(out, "== with every rule on, seed 1 ==\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestAScenarioThatDoesNotHoldFails: a story that breaks nothing, one that hangs, and one whose witness never comes.
func TestAScenarioThatDoesNotHoldFails(t *testing.T) {
	text, err := os.ReadFile("../../experiments/scenarios/b1-truncate-to-high-watermark.toml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, says string }{
		{`rules_off = ["truncate-by-epoch"]`, `rules_off = ["elr"]`, "without its rules nothing breaks; it should be S4 or S5"},
		{`when   = "leader 3 and told 3"`, `when   = "leader 4"`, "with the rules on 1 of its 6 steps did not come about"},
		{`"ISR down to one"`, `"unclean election"`, "the witness does not occur: unclean election"},
	} {
		changed := strings.Replace(string(text), c.from, c.to, 1)
		if changed == string(text) {
			t.Fatalf("%q is not there", c.from)
		}
		file := filepath.Join(t.TempDir(), "story.toml")
		if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := simulate("run", file)
		if err == nil || !strings.Contains(err.Error()+out, c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v\n%s", c.says, err, out)
		}
	}
}

func TestAScenarioIsToldToPrograms(t *testing.T) {
	out, err := simulate("run", "G4", "--json")
	var told struct {
		Scenario, Entry, Broken string
		Problems                []string
		Vector, Fixed           struct {
			Violation string
			Steps     []struct{ Deed string }
		}
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &told)
	}
	if err != nil || told.Entry != "G4" || told.Broken != "S9" || len(told.Problems) != 0 || told.Vector.Violation == "" || told.Fixed.Violation != "" || len(told.Fixed.Steps) == 0 {
		t.Errorf("%v: %+v\n%s", err, told, out)
	}
}

func TestTheCatalogueListsEveryScenarioAndWhatCannotArise(t *testing.T) {
	out, err := simulate("catalogue")
	if err != nil {
		t.Fatal(err)
	}
	var list []catalogueJSON
	asJSON, err := simulate("catalogue", "--json")
	if err == nil {
		err = json.Unmarshal([]byte(asJSON), &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	played := 0
	for _, e := range list {
		if !strings.Contains(out, "\n"+e.ID+" ") || e.Title == "" {
			t.Errorf("%s is not in the table, or has no title", e.ID)
		}
		if e.Absent == "" {
			played++
			if len(e.Breaks) == 0 || e.Source == "" || len(e.Steps) == 0 || len(e.RulesOff)+len(e.Bug)+len(e.BugAcks) == 0 {
				t.Errorf("%+v says too little", e)
			}
			for _, id := range e.Breaks {
				if name, demands := experiments.Invariant(id); name == "" || demands == "" {
					t.Errorf("%s breaks %s, and nothing says what that is", e.ID, id)
				}
			}
		}
		one, err := simulate("catalogue", strings.ToLower(e.ID))
		if err != nil || !strings.Contains(one, e.Title) || e.Absent == "" && !strings.Contains(one, "tidemark sim run "+strings.TrimSuffix(filepath.Base(e.Scenario), ".toml")+"\n") {
			t.Errorf("%s: %v\n%s", e.ID, err, one)
		}
	}
	if played != len(experiments.ScenarioNames()) || played == len(list) {
		t.Errorf("%d of %d are played; there are %d scenarios", played, len(list), len(experiments.ScenarioNames()))
	}
	if i := slices.IndexFunc(list, func(e catalogueJSON) bool { return e.ID == "B9" }); list[0].ID != "A1" || list[i+1].ID != "B10" {
		t.Errorf("it begins with %s, and behind B9 comes %s", list[0].ID, list[i+1].ID)
	}
}
