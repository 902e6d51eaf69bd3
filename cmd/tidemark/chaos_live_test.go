package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/harness/chaos"
)

const briefChaos = `
title      = "Two deaths"
says       = "The leader dies and comes back; a follower is away for less than anybody notices."
witness    = ["kill", "controller elected"]
partitions = 2
settings   = { "min.insync.replicas" = "2", "replica.lag.time.max.ms" = "3000", "zookeeper.session.timeout.ms" = "4000" }
acks       = [-1, 1]

[[steps]]
fault  = "kill"
target = "leader of t/0"
when   = "in sync and acked 50"

[[steps]]
fault  = "heal"
when   = "out of sync"

[[steps]]
fault  = "bounce"
target = "follower of t/1"
when   = "in sync"
`

// allDisks takes every copy away, which nothing survives.
const allDisks = `
title    = "Every disk is empty"
envelope = "E1"
settings = { "unclean.leader.election.enable" = "true", "replica.lag.time.max.ms" = "3000", "zookeeper.session.timeout.ms" = "4000" }

[[steps]]
fault  = "disk-swap"
target = "brokers"
when   = "in sync and acked 200"

[[steps]]
fault  = "heal"
`

// playLive runs the chaos command on the scenario and gives what it printed.
func playLive(t *testing.T, scenario string, args ...string) (string, error) {
	t.Helper()
	t.Setenv(asMain, "1")
	cmd := chaosCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(append([]string{scenario, "--dir", t.TempDir()}, args...))
	err := cmd.ExecuteContext(context.WithoutCancel(t.Context()))
	return out.String(), err
}

func scenarioFileOf(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "story.toml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestAScenarioIsPlayedInTheSimulatorAndOnLiveProcesses: one file, two worlds, the same verdict.
func TestAScenarioIsPlayedInTheSimulatorAndOnLiveProcesses(t *testing.T) {
	file := scenarioFileOf(t, briefChaos)
	if out, err := simulate("run", file); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	out, err := playLive(t, file, "--json")
	var r chaos.Report
	if err == nil {
		err = json.Unmarshal([]byte(out), &r)
	}
	if err != nil || r.Violation != "" || r.Faults != 3 || r.Rounds != 1 || r.Brokers != 3 || r.Compared == 0 || r.Acked < 50 || r.AckedWeak == 0 || r.Read < r.Acked {
		t.Errorf("%v: %+v\n%s", err, r, out)
	}
}

// TestALiveRunThatLosesWhatWasAcknowledgedIsBroken plants the loss: all disks are emptied.
func TestALiveRunThatLosesWhatWasAcknowledgedIsBroken(t *testing.T) {
	out, err := playLive(t, scenarioFileOf(t, allDisks))
	if err == nil || !strings.Contains(out, "BROKEN") || !strings.Contains(err.Error(), "broke a promise") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func TestWhatLiveProcessesCannotPlayIsOneLineAndStatusTwo(t *testing.T) {
	for _, c := range []struct{ scenario, says string }{
		{"B1", "steps 2, 3, 4 (partition: the network of one machine cannot be cut)"},
		{"C1", "hold: messages cannot be held"},
		{"a5-power-loss-of-all", "power-off: the page cache outlives a process, so nothing is lost"},
	} {
		_, err := playLive(t, c.scenario)
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "tidemark sim run ") || exitStatus(err) != 2 {
			t.Errorf("%s: %v", c.scenario, err)
		}
	}
	if exitStatus(errors.New("any other")) != 1 {
		t.Error("every failure has status 2")
	}
	if _, err := playLive(t, "chaos-kills", "--brokers", "2"); err == nil || !strings.Contains(err.Error(), "2 brokers cannot hold 3 replicas") {
		t.Errorf("%v", err)
	}
}
