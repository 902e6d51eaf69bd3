package server

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestASmallRequestBehindALargeOneIsHeard: while a large one is read the poller is told
// of much alone; a connection that stayed so would never answer what is small.
func TestASmallRequestBehindALargeOneIsHeard(t *testing.T) {
	w := start(t, Options{}, echo)
	c := w.dial(t)
	large := kmsg.NewPtrProduceRequest()
	large.Topics = []kmsg.ProduceRequestTopic{{Partitions: []kmsg.ProduceRequestTopicPartition{{Records: make([]byte, 10*busyReadBytes)}}}}
	for id := int32(0); id < 20; id += 2 {
		c.send(large, id)
		if got, _ := c.receive(); got != id {
			t.Fatalf("correlation id %d, want %d", got, id)
		}
		small := encode(kmsg.NewPtrMetadataRequest(), id+1)
		for _, piece := range [][]byte{small[:1], small[1:7], small[7:]} {
			c.Write(piece)
		}
		if got, _ := c.receive(); got != id+1 {
			t.Fatalf("correlation id %d, want %d", got, id+1)
		}
	}
}
