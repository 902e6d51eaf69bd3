package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestARunIsSavedPlayedAgainAndMadeSmaller goes the way that a violation's message shows.
func TestARunIsSavedPlayedAgainAndMadeSmaller(t *testing.T) {
	file := filepath.Join(t.TempDir(), "found.toml")
	out, err := simulate("sweep", "--brokers", "3", "--seeds", "1-40", "--rules-off", "truncate-by-epoch", "--violations-max", "1")
	_, again, found := strings.Cut(out, "\nsmaller: tidemark sim ")
	if err == nil || !found {
		t.Fatalf("%v\n%s", err, out)
	}
	run, _, _ := strings.Cut(again, " --save ")
	out, err = simulate(append(strings.Fields(run), "--save", file)...)
	if err == nil || !strings.Contains(out, "tidemark sim shrink "+file) {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err = simulate("replay", file); err != nil || !strings.Contains(out, "the same as in the file") || !strings.Contains(out, "BROKEN") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = simulate("shrink", file)
	small := filepath.Join(filepath.Dir(file), "found.small.toml")
	if err != nil || !strings.Contains(out, "tidemark sim replay "+small) {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err = simulate("replay", small, "--json")
	var r struct {
		Same      bool
		Violation string
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &r)
	}
	if err != nil || !r.Same || r.Violation == "" {
		t.Errorf("%v\n%s", err, out)
	}

	text, err := os.ReadFile(small)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(small, []byte(strings.Replace(string(text), "hash = '", "hash = 'f", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err = simulate("replay", small); err == nil || !strings.Contains(err.Error(), "in the file: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("another hash in the file: %v", err)
	}
}
