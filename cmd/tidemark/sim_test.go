package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// simulate runs the sim command and gives what it printed.
func simulate(args ...string) (string, error) {
	cmd := simCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(context.Background())
	return out.String(), err
}

func TestACleanSweepSaysWhatItReached(t *testing.T) {
	out, err := simulate("sweep", "--seeds", "1-6", "--shard", "1/2")
	if err != nil || !strings.Contains(out, "3 seeds") || !strings.Contains(out, "events/s") || !strings.Contains(out, "no violation") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestASweepThatFindsAViolationFailsAndTellsHowToSeeItAgain(t *testing.T) {
	out, err := simulate("sweep", "--seeds", "1-50", "--plant", "directory-not-synced", "--violations-max", "1")
	if err == nil || !strings.Contains(out, "VIOLATION, seed ") || !strings.Contains(out, "again: tidemark sim run --seed ") || !strings.Contains(out, "--plant directory-not-synced") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSimRefusesBadArgumentsInOneLine(t *testing.T) {
	for _, args := range [][]string{
		{"sweep", "--seeds", "9-1"}, {"sweep", "--seeds", "x"}, {"sweep", "--shard", "2/2"}, {"sweep", "--shard", "1"},
		{"run", "--plant", "absent"}, {"sweep", "--plant", "absent"},
	} {
		if out, err := simulate(args...); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
}
