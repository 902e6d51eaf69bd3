package broker_test

import (
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// TestAnOlderListOfBrokersTakesNobodyForDead: (1) a broker dies, and the controller reads the list without it; the registration of one
// that is in the list is answered late. (2) The broker is back, and the controller has read the list with it. (3) The late answer
// comes, and with it the list of (1): no watch tells that it is wrong.
func TestAnOlderListOfBrokersTakesNobodyForDead(t *testing.T) {
	c := newCluster(t, 3, "min.insync.replicas=2")
	c.create("t", 1, 3)
	c.wantISR("t", 0, 3)
	boss := controllerOf(t, c)
	away := boss%3 + 1
	late := c.takeNext(boss, "get", coord.BrokerIDPath(boss))
	c.kill(away)
	c.awaitTaken(late)
	c.start(away, c.nodes[away].disk)
	c.advance(3 * time.Second)
	c.wantISR("t", 0, 3)
	late.give()
	for range 100 {
		c.advance(100 * time.Millisecond)
		if p := c.partition("t", 0); len(p.ISR) != 3 || len(p.OfflineReplicas) != 0 {
			t.Fatalf("broker %d lives, and the partition has the ISR %v, and %v offline\n%s", away, p.ISR, p.OfflineReplicas, c.reports())
		}
	}
}

// TestAStateThatChangesAgainIsReadOnce: (1) a leader tells of an ISR that it changed, and the controller reads the state, which takes a while.
// (2) The ISR changes twice more. (3) One read tells the controller both.
func TestAStateThatChangesAgainIsReadOnce(t *testing.T) {
	c := newCluster(t, 3, "min.insync.replicas=1", "replica.lag.time.max.ms=1000")
	c.create("t", 1, 3)
	c.wantISR("t", 0, 3)
	boss := controllerOf(t, c)
	lag := c.partition("t", 0).Leader
	for lag == boss || lag == c.partition("t", 0).Leader {
		lag = lag%3 + 1
	}
	var first answered
	reads := 0
	c.nodes[boss].meddle = func(a answered) bool {
		if a.call != "get" || a.path != coord.PartitionStatePath("t", 0) {
			return false
		}
		if reads++; reads == 1 {
			first = a
		}
		return reads == 1
	}
	for _, members := range []int{2, 3, 2} {
		c.nodes[lag].cut = members == 2
		c.nodes[lag].ready = members != 2 // for anyone
		if code := c.produce("t", 0, 1, "x"); code != 0 {
			t.Fatalf("produce: code %d", code)
		}
		for i := 0; len(stateOf(t, c, "t", 0).ISR) != members; i++ {
			c.advance(10 * time.Millisecond)
			if i == 2000 {
				t.Fatalf("the ISR is %v\n%s", stateOf(t, c, "t", 0).ISR, c.reports())
			}
		}
		c.advance(3 * time.Second)
	}
	if first.give == nil || reads != 1 {
		t.Fatalf("%d reads while the first is under way", reads)
	}
	first.give()
	c.advance(3 * time.Second)
	if reads != 2 {
		t.Errorf("%d reads, want one more for both changes", reads)
	}
	c.wantISR("t", 0, 2)
}
