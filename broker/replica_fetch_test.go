package broker_test

import (
	"testing"
	"time"
)

// TestAFollowerThatFlushesDoesNotWaitForOtherPartitions: a follower that has to flush what it got before it asks on asks for the leader's
// other partitions meanwhile. Nothing comes for them, so the leader would keep that fetch for replica.fetch.wait.max.ms, and with it
// the acknowledgement of what was flushed long ago.
func TestAFollowerThatFlushesDoesNotWaitForOtherPartitions(t *testing.T) {
	c := newCluster(t, 3, "min.insync.replicas=2", "log.flush.interval.messages=1", "replica.fetch.wait.max.ms=2000")
	c.create("t", 6, 3) // each broker leads two of them
	for i := range int32(6) {
		c.wantISR("t", i, 3)
	}
	for i := range 10 {
		began := c.loop.Now()
		if code := c.produce("t", 0, -1, "x"); code != 0 {
			t.Fatalf("produce: code %d\n%s", code, c.reports())
		}
		if took := c.loop.Now() - began; took > 100*time.Millisecond {
			t.Errorf("record %d was acknowledged after %v", i, took)
		}
	}
}
