package broker_test

import (
	"testing"
	"time"
)

const codeKafkaStorageError = 56

// TestAFullDiskOnTheOnlyInSyncReplica: the ISR is the leader alone, which min.insync.replicas=1 allows, and its disk is full. What was
// acknowledged is there alone: the broker acknowledges nothing more and nobody else leads, until there is
// room and it is started again.
func TestAFullDiskOnTheOnlyInSyncReplica(t *testing.T) {
	c := newCluster(t, 3, "min.insync.replicas=1")
	c.create("t", 1, 3)
	leader := c.wantISR("t", 0, 3).Leader
	produce := func(value string, want int16) {
		t.Helper()
		if code := c.produce("t", 0, -1, value); code != want {
			t.Fatalf("produce %s: code %d, want %d\n%s", value, code, want, c.reports())
		}
	}
	cut := func(is bool) {
		for id, n := range c.nodes {
			n.cut = is && id != leader
			n.ready = !n.cut // for anyone
		}
	}
	produce("a", 0)
	cut(true)
	produce("b", 0) // once the others are out of the ISR
	if st := stateOf(t, c, "t", 0); len(st.ISR) != 1 {
		t.Fatalf("the ISR is %v\n%s", st.ISR, c.reports())
	}
	c.nodes[leader].full = true
	produce("c", codeKafkaStorageError)
	produce("c", codeKafkaStorageError)
	cut(false)
	c.nodes[leader].ready = false
	for range 100 {
		c.advance(100 * time.Millisecond)
		if p := c.partition("t", 0); p.Leader >= 0 && p.Leader != leader {
			t.Fatalf("broker %d leads, without what was acknowledged\n%s", p.Leader, c.reports())
		}
	}
	if p := c.partition("t", 0); p.Leader >= 0 {
		t.Errorf("broker %d is still the leader\n%s", p.Leader, c.reports())
	}
	c.kill(leader)
	c.start(leader, c.nodes[leader].disk)
	if p := c.wantISR("t", 0, 3); p.Leader != leader {
		t.Errorf("broker %d leads\n%s", p.Leader, c.reports())
	}
	produce("d", 0)
	c.advance(time.Second)
	for id, n := range c.nodes {
		if s := n.broker.Status().Partitions; len(s) != 1 || s[0].LogEndOffset != 3 || s[0].HighWatermark != 3 {
			t.Errorf("broker %d: %+v\n%s", id, s, c.reports())
		}
	}
}
