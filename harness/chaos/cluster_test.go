package chaos

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/sut"
)

// standIn makes a cluster of n processes that say they are brokers, and then do as the script says.
func standIn(t *testing.T, n int, script string) *cluster {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "broker")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\necho tidemark broker ready listener=127.0.0.1:1\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	started := &sut.Cluster{}
	c := &cluster{}
	t.Cleanup(func() { c.close() })
	for i := range n {
		b, err := sut.StartBroker(t.Context(), sut.BrokerSpec{Binary: binary, Dir: filepath.Join(dir, string(rune('1'+i)))})
		if err != nil {
			t.Fatal(err)
		}
		started.Brokers = append(started.Brokers, b)
	}
	c = newCluster(context.Background(), started)
	return c
}

const sleeps = "exec sleep 1000"

// TestABrokerThatDiesByItselfIsAViolation: a kill that came later would hide it, and the restart would heal it.
func TestABrokerThatDiesByItselfIsAViolation(t *testing.T) {
	c := standIn(t, 2, sleeps)
	if err := c.failed(); err != nil {
		t.Fatal(err)
	}
	c.Brokers[0].Kill() // not of ours: nothing says that it was to be
	for _, kind := range []experiments.FaultKind{experiments.FaultKill, experiments.FaultBounce, experiments.FaultStop, experiments.FaultPause, experiments.FaultDiskSwap} {
		if c.actOn(1, &experiments.Fault{Kind: kind}) {
			t.Errorf("%s: it is done to what is dead", kind)
		}
		if broken := (*violationError)(nil); !errors.As(c.failed(), &broken) || !strings.HasPrefix(broken.text, "L3: broker 1 has ended by itself") {
			t.Errorf("%s: %v", kind, c.failed())
		}
	}
	if c.actOn(2, &experiments.Fault{Kind: experiments.FaultKill}); !c.Brokers[1].Process().HasExited() {
		t.Error("broker 2 lives")
	}
}

// TestWhatStandsStillCanBeKilled, as in the simulator; and the end of the pause is none of the next process's.
func TestWhatStandsStillCanBeKilled(t *testing.T) {
	c := standIn(t, 1, sleeps)
	pause, kill := &experiments.Fault{Kind: experiments.FaultPause, For: time.Minute}, &experiments.Fault{Kind: experiments.FaultKill}
	for _, want := range []struct {
		fault *experiments.Fault
		done  bool
	}{{pause, true}, {pause, false}, {kill, true}, {kill, false}, {pause, false}} {
		if done := c.actOn(1, want.fault); done != want.done {
			t.Errorf("%s: done is %v", want.fault.Kind, done)
		}
	}
	if !c.Brokers[0].Process().HasExited() {
		t.Error("it lives")
	}
	if len(c.later) > 0 {
		t.Errorf("%v is to come", c.later)
	}
	if err := c.failed(); err != nil {
		t.Error(err)
	}
}

// TestAFaultThatHitsNobodyIsNotCounted, and none is said to have been.
func TestAFaultThatHitsNobodyIsNotCounted(t *testing.T) {
	said := ""
	r := &run{cluster: standIn(t, 1, sleeps), report: &Report{}, o: Options{Say: func(_ time.Duration, what string) { said = what }}}
	r.cluster.away = true
	if err := r.act(t.Context(), &experiments.Fault{Kind: experiments.FaultAway}); err != nil || r.report.Faults != 0 || !strings.HasPrefix(said, "nothing to be done: ") {
		t.Errorf("%v, %d faults, %q", err, r.report.Faults, said)
	}
}

// TestNothingIsStartedBehindTheEnd: a broker that was to come back is not there when the run is over.
func TestNothingIsStartedBehindTheEnd(t *testing.T) {
	c := standIn(t, 1, sleeps)
	c.actOn(1, &experiments.Fault{Kind: experiments.FaultBounce})
	c.close()
	if p := c.Brokers[0].Process(); p == nil || !p.HasExited() {
		t.Error("it lives, or nobody knows of it")
	}
}

func answer(controller, leader, epoch int32, isr ...int32) *kmsg.MetadataResponse {
	m := metadataOf(controller, leader, isr...)
	m.Topics[0].Partitions[0].LeaderEpoch = epoch
	return m
}

// TestABrokerThatStoodStillIsNotBelieved: it names itself leader and controller for as long as nobody has told it.
func TestABrokerThatStoodStillIsNotBelieved(t *testing.T) {
	stale, fresh := answer(1, 1, 4, 1, 2, 3), answer(2, 2, 5, 2, 3)
	for name, c := range map[string]struct {
		answers []*kmsg.MetadataResponse
		holds   string
	}{
		"first of three":       {[]*kmsg.MetadataResponse{stale, fresh, fresh}, "leader 2 and controller 2 and out of sync"},
		"of two that are left": {[]*kmsg.MetadataResponse{stale, nil, fresh}, "leader 2 and controller 2 and out of sync"},
		"the leader knows":     {[]*kmsg.MetadataResponse{answer(2, 2, 5, 1, 2, 3), fresh, fresh}, "ISR 2,3"},
		"alone":                {[]*kmsg.MetadataResponse{stale, nil, nil}, "leader 1 and controller 1 and in sync"},
	} {
		if m := newest(c.answers); !holds(m, c.holds, 0) {
			t.Errorf("%s: not so that %s: %+v", name, c.holds, m)
		}
	}
	if m := newest(make([]*kmsg.MetadataResponse, 3)); holds(m, "led", 0) || holds(m, "no leader", 0) {
		t.Errorf("nobody said %+v", m)
	}
}

// TestAllAreInSyncWhenEverybodySaysSo.
func TestAllAreInSyncWhenEverybodySaysSo(t *testing.T) {
	whole, part := answer(1, 1, 4, 1, 2, 3), answer(1, 1, 4, 1, 2)
	for _, c := range []struct {
		answers []*kmsg.MetadataResponse
		want    bool
	}{
		{[]*kmsg.MetadataResponse{whole, whole, whole}, true},
		{[]*kmsg.MetadataResponse{whole, whole, part}, false},
		{[]*kmsg.MetadataResponse{whole, nil, whole}, false},
	} {
		if got := allSayInSync(c.answers); got != c.want {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}

// TestADemandIsBrokenByTimeAlone: what could not be done is no violation.
func TestADemandIsBrokenByTimeAlone(t *testing.T) {
	r := &run{cluster: standIn(t, 1, sleeps), report: &Report{}}
	demand := &experiments.Fault{Kind: experiments.FaultDemand, When: "led", For: time.Millisecond, Message: "L1"}
	if broken := (*violationError)(nil); !errors.As(r.step(t.Context(), demand), &broken) || !strings.HasPrefix(broken.text, "L1: ") {
		t.Error("nobody leads, and it is not said")
	}
	r.cluster.err = errors.New("no room")
	if err := r.step(t.Context(), demand); err == nil || err.Error() != "no room" {
		t.Error(err)
	}
}
