package main

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestFollowersCopyOnlyToReceiveAndWrite counts the bytes that cross between kernel and user space for each byte that is
// replicated: a follower receives it and writes it; its leader, beside the same for the producer's, sends it with sendfile.
func TestFollowersCopyOnlyToReceiveAndWrite(t *testing.T) {
	const batches, size = 400, 64 << 10
	c := startCluster(t, 3, "")
	c.create("copies", 1)
	c.awaitISR("copies", 3)
	leader := c.find("leader", "copies", 0)
	p := client(t, c, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RequiredAcks(kgo.AllISRAcks()))
	produce(t, p, "copies", 1, size) // connections, and what is opened at first use
	before := map[int]struct{ in, out, kernel int64 }{}
	for id := 1; id <= 3; id++ {
		s := c.counters(id)
		before[id] = struct{ in, out, kernel int64 }{s.ToUser, s.ToKernel, s.InKernel}
	}
	for range batches {
		produce(t, p, "copies", 1, size)
	}
	const replicated = float64(batches * size)
	for id := 1; id <= 3; id++ {
		s, b := c.counters(id), before[id]
		in, out, kernel := float64(s.ToUser-b.in)/replicated, float64(s.ToKernel-b.out)/replicated, float64(s.InKernel-b.kernel)/replicated
		t.Logf("broker %d (leads: %v): %.3f bytes received or read, %.3f written or sent, %.3f moved in the kernel, for each byte", id, id == leader, in, out, kernel)
		wantKernel := 0.0
		if id == leader {
			wantKernel = 2 // to two followers
		}
		for _, x := range []struct {
			what      string
			got, want float64
		}{{"copied to user space", in, 1}, {"copied to the kernel", out, 1}, {"moved in the kernel", kernel, wantKernel}} {
			if x.got < x.want-0.05 || x.got > x.want+0.1 {
				t.Errorf("broker %d (leads: %v): %.3f bytes %s for each byte, want %v", id, id == leader, x.got, x.what, x.want)
			}
		}
	}
}
