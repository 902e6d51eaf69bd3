package main

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestALeaderOfAThousandPartitionsIsReplaced kills (-9) a broker that leads a third of 3,000
// partitions and is the controller, and logs how long it takes until others lead them all, as another broker tells it.
func TestALeaderOfAThousandPartitionsIsReplaced(t *testing.T) {
	const partitions = 3000
	c := startCluster(t, 3, "")
	c.create("orders", partitions)
	c.awaitISR("orders", 3)
	id := c.find("controller", "", 0)
	led := ledBy(c.await(id, "it leads", func(m *kmsg.MetadataResponse) bool { return ledBy(m, "orders", int32(id)) > 0 }), "orders", int32(id))
	c.Brokers[id-1].Kill()
	began := time.Now()
	c.await(id%3+1, "others lead", func(m *kmsg.MetadataResponse) bool {
		return ledBy(m, "orders", int32(id)) == 0 && ledBy(m, "orders", -1) == 0
	})
	t.Logf("the controller, leader of %d partitions: all have new leaders %v after the kill; its session timed out after 4 s, on a tick of 2 s", led, time.Since(began).Round(10*time.Millisecond))
	began = time.Now()
	c.restart(id)
	c.awaitISR("orders", 3)
	t.Logf("back in all ISRs %v after its start", time.Since(began).Round(10*time.Millisecond))
}
