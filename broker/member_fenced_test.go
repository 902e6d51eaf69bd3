package broker_test

import (
	"slices"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// TestAStartIsProvenSinceTheIncarnationThatWasDealtWith: (1) everybody dies, a leader by a power cut, and whoever is the controller
// then does nothing. (2) The leader starts, takes a broker epoch, waits to be fenced, and is killed: it never
// registered, so no controller hears of that incarnation, and the state names the one before it. (3) It starts
// once more. That nothing was lost since (2) is proven, and proves nothing: it still has to wait.
func TestAStartIsProvenSinceTheIncarnationThatWasDealtWith(t *testing.T) {
	c, leader, idle := idleController(t)
	c.nodes[leader].disk.Crash(c.rng)
	for _, start := range []string{"after the power cut", "after the kill"} {
		took := epochNode(t, c, leader)
		c.start(leader, c.nodes[leader].disk)
		c.advance(3 * time.Second)
		if epochNode(t, c, leader) != took+1 {
			t.Fatalf("%s it has not come to take a broker epoch\n%s", start, c.reports())
		}
		if registered(c, leader) {
			t.Fatalf("%s it registers, and the state counts on it: %v\n%s", start, countsOn(t, c, "t", 0, leader), c.reports())
		}
		if start == "after the power cut" {
			c.kill(leader)
		}
	}
	idle.Close(func(error) {}) // the next controller fences it
	for i := 0; !registered(c, leader); i++ {
		c.advance(time.Millisecond)
		if i == 30_000 {
			t.Fatalf("it does not register once there is a controller\n%s", c.reports())
		}
	}
	if countsOn(t, c, "t", 0, leader) {
		t.Errorf("it has registered, and the state counts on it\n%s", c.reports())
	}
}

// TestWhoLostNothingNeedNotWaitToBeFenced is the same without the power cut.
func TestWhoLostNothingNeedNotWaitToBeFenced(t *testing.T) {
	c, leader, _ := idleController(t)
	c.start(leader, c.nodes[leader].disk)
	c.advance(3 * time.Second)
	if !registered(c, leader) {
		t.Errorf("it waits\n%s", c.reports())
	}
}

// idleController gives a cluster whose brokers were all killed, who led t-0 then, and the session of a
// controller that does nothing.
func idleController(t *testing.T) (c *cluster, leader int32, idle *coord.ModelClient) {
	c = newCluster(t, 3, "min.insync.replicas=2")
	c.create("t", 1, 3)
	leader = c.wantISR("t", 0, 3).Leader
	if code := c.produce("t", 0, -1, "x"); code != 0 {
		t.Fatalf("produce: code %d", code)
	}
	for id := range int32(3) {
		c.kill(id + 1)
	}
	c.advance(10 * time.Second)
	idle = c.model.Open(scheduler{c.loop, nil}, "idle", 6*time.Second, func(coord.SessionState) {})
	c.advance(100 * time.Millisecond)
	idle.Create(coord.ControllerPath, coord.Controller{Broker: 9}.Encode(), coord.Ephemeral, func(_ string, _ coord.Stat, err error) {
		if err != nil {
			t.Error(err)
		}
	})
	c.advance(100 * time.Millisecond)
	if !countsOn(t, c, "t", 0, leader) || registered(c, leader) {
		t.Fatal("the state does not count on a broker that is gone")
	}
	return c, leader, idle
}

// epochNode is the broker epoch that a broker took last.
func epochNode(t *testing.T, c *cluster, id int32) int32 {
	st, err := c.model.Tree().Exists(coord.BrokerEpochPath(id))
	if err != nil {
		t.Fatal(err)
	}
	return st.Version
}

func registered(c *cluster, id int32) bool {
	_, err := c.model.Tree().Exists(coord.BrokerIDPath(id))
	return err == nil
}

// countsOn says whether a partition's state names a broker as its leader or in its ISR.
func countsOn(t *testing.T, c *cluster, topic string, index, id int32) bool {
	st := stateOf(t, c, topic, index)
	return st.Leader == id || slices.Contains(st.ISR, id)
}

// stateOf is a partition's state in the coordination service.
func stateOf(t *testing.T, c *cluster, topic string, index int32) coord.PartitionState {
	t.Helper()
	data, _, err := c.model.Tree().Get(coord.PartitionStatePath(topic, index))
	if err != nil {
		t.Fatal(err)
	}
	st, err := coord.DecodePartitionState(data)
	if err != nil {
		t.Fatal(err)
	}
	return st
}
