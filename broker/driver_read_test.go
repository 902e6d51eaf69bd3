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
