package workload

import (
	"strings"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/harness/load"
	"github.com/tidemark-log/tidemark/harness/sut"
)

func TestABrokerThatEndedIsToldByWhatItEnded(t *testing.T) {
	broker, err := sut.StartBroker(t.Context(), sut.BrokerSpec{Binary: binary, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{cluster: &sut.Cluster{Brokers: []*sut.Broker{broker}}}
	if err := b.ended(); err != nil {
		t.Errorf("it runs: %v", err)
	}
	broker.Process().Kill()
	if err := b.ended(); err == nil || !strings.Contains(err.Error(), "broker 1 has ended: signal: killed") {
		t.Error(err)
	}
}

// What was acknowledged and is gone, what is there twice, and the longest silence after the kill must all be seen.
func TestTheAccountOfAKillMissesNothing(t *testing.T) {
	start := time.Unix(1e9, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	k := &killProducer{
		start: start, sent: 5, failed: 1, acked: []bool{true, true, false, true, true}, latency: load.NewHistogram(),
		acks: []time.Time{at(0.1), at(3.9), at(4.5), at(9), at(9.4)}, // the silence before the kill is longer, and says nothing
	}
	p := DefaultParams()
	p.Measure = 10 * time.Second
	r := newResult()
	b := &bed{c: &Cell{Broker: map[string]string{"zookeeper.session.timeout.ms": "4000"}}, p: &p, r: &r}
	k.account(b, map[int64]int{0: 1, 2: 1, 3: 3, 4: 1}, &killEvents{killed: at(4), restarted: at(6), inSync: at(7.5)})
	for name, want := range map[string]float64{
		"acked-records": 4, "lost-acked-records": 1, "duplicated-records": 2, "failed-records": 1, "unavailable-sec": 4.5, "unavailable/bound": 4.5 / 6.5,
		"in-sync-again-sec": 1.5, "under-replicated-sec": 3.5,
	} {
		if got := r.Metrics[name]; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if r.Checks["no-acked-record-lost"] == "" {
		t.Error("a lost record passed the check")
	}
	// A silence that nothing ended lasts until the last record was due, at least: it is no outage of nothing.
	for want, acks := range map[float64][]time.Time{5.5: {at(0.1), at(3.9), at(4.4)}, 5.9: {at(0.1), at(3.9)}} {
		k := &killProducer{start: start, acks: acks, due: at(9.9)}
		if got := k.unavailable(at(4)).Seconds(); got != want {
			t.Errorf("nothing was acknowledged any more: unavailable for %v s, want %v", got, want)
		}
	}
	steps := r.Timeline.Values["acked-records/s"]
	if len(steps) != 100 || steps[1] != 10 || steps[45] != 10 || steps[60] != 0 || len(r.Timeline.Marks) != 3 {
		t.Errorf("timeline: %v", r.Timeline)
	}
}
