package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestASweepOfAnEntryTellsTheSeedAndHowToSeeItAgain(t *testing.T) {
	for entry, head := range map[string]string{
		"B1":                       "entry B1: truncate-by-epoch; one of S4, S5 must break",
		"a6-last-replica-standing": "entry A6: elr, fence-before-reregister; one of S4, S28 must break", // the second of its entry
	} {
		out, err := simulate("sweep", "--entry", entry, "--seeds", "1-20")
		if err != nil || !strings.Contains(out, head) || !strings.Contains(out, "again: tidemark sim run --seed ") {
			t.Fatalf("%v\n%s", err, out)
		}
		_, again, _ := strings.Cut(out, "again: tidemark sim ")
		again, _, _ = strings.Cut(again, " --trace")
		out, err = simulate(strings.Fields(again)...)
		if err == nil || !strings.Contains(out, "VIOLATION, seed ") || !strings.Contains(out, again) {
			t.Errorf("%s: %v\n%s", again, err, out)
		}
	}
}

func TestASweepOfEntriesThatFindsNotAllFails(t *testing.T) {
	out, err := simulate("sweep", "--entry", "A2,C13", "--seeds", "1-3", "--json")
	if err == nil || !strings.Contains(err.Error(), "C13") {
		t.Errorf("%v\n%s", err, out)
	}
	var got []entrySweep
	if _, list, ok := strings.Cut(out, "["); ok {
		out = "[" + list
	}
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&got); err != nil || len(got) != 2 || got[1].Runs != 3 {
		t.Errorf("%v: %+v", err, got)
	}
}

func TestASweepOfAnEntryRefusesWhatTheEntrySaysItself(t *testing.T) {
	for _, args := range [][]string{
		{"sweep", "--entry", "Z9"}, {"sweep", "--entry", "C14"}, {"sweep", "--entry", "B1", "--brokers", "3"}, {"sweep", "--entry", "B1", "--rules-off", "elr"},
		{"sweep", "--entry", "B1", "--shard", "0/2"}, {"sweep", "--entry", "B1", "--hits", "0"}, {"run", "--seed", "1", "--entry", "Z9"}, {"run", "--seed", "1", "--fixed-only"}, {"run", "--entry", "B1", "--brokers", "3"},
	} {
		if out, err := simulate(args...); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
}
