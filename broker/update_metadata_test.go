package broker_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestALateUpdateMetadataTakesNothingBack: a connection breaks, the controller tells what is new on another one, and
// what was under way on the first comes after it.
func TestALateUpdateMetadataTakesNothingBack(t *testing.T) {
	c := newCluster(t, 3, "min.insync.replicas=2")
	c.create("t", 1, 3)
	now := c.wantISR("t", 0, 3)
	const seqTag, deleted = 10_004, -2
	tell := func(controllerEpoch int32, seq uint64, leader int32, brokers ...int32) {
		req := kmsg.NewPtrUpdateMetadataRequest()
		req.ControllerID, req.ControllerEpoch, req.BrokerEpoch = controllerOf(t, c), controllerEpoch, -1
		req.UnknownTags.Set(seqTag, binary.BigEndian.AppendUint64(nil, seq))
		for _, id := range brokers {
			endpoint := kmsg.UpdateMetadataRequestLiveBrokerEndpoint{Host: fmt.Sprintf("b%d", id), Port: 9092}
			req.LiveBrokers = append(req.LiveBrokers, kmsg.UpdateMetadataRequestLiveBroker{ID: id, Endpoints: []kmsg.UpdateMetadataRequestLiveBrokerEndpoint{endpoint}})
		}
		req.TopicStates = []kmsg.UpdateMetadataRequestTopicState{{Topic: "u", TopicID: [16]byte{1}, PartitionStates: []kmsg.UpdateMetadataRequestTopicPartition{{
			Leader: leader, ISR: now.ISR, Replicas: now.Replicas,
		}}}}
		r, _ := c.ask(c.anyone(), req, 7, time.Second).(*kmsg.UpdateMetadataResponse)
		if r == nil || r.ErrorCode != 0 {
			t.Fatalf("%+v", r)
		}
	}
	for _, step := range []struct {
		controllerEpoch int32
		seq             uint64
		leader          int32
		brokers         []int32
		wantLeader      int32 // 0: no such topic
		wantBrokers     []int32
	}{
		{1, 1_000_001, 1, []int32{1, 2, 3}, 1, []int32{1, 2, 3}},
		{1, 1_000_003, 2, []int32{1, 2}, 2, []int32{1, 2}},
		{1, 1_000_002, 3, []int32{1, 2, 3}, 2, []int32{1, 2}}, // late: an older leader, and a broker that is gone
		{1, 1_000_005, deleted, []int32{1, 2}, 0, []int32{1, 2}},
		{1, 1_000_004, 2, []int32{1, 2}, 0, []int32{1, 2}}, // late: the topic is deleted
		{2, 1, 3, []int32{1, 2, 3}, 3, []int32{1, 2, 3}},   // the next controller counts anew
	} {
		tell(step.controllerEpoch, step.seq, step.leader, step.brokers...)
		req := kmsg.NewPtrMetadataRequest()
		r, _ := c.ask(c.anyone(), req, 9, time.Second).(*kmsg.MetadataResponse)
		if r == nil {
			t.Fatal("no metadata")
		}
		var brokers []int32
		for _, b := range r.Brokers {
			brokers = append(brokers, b.NodeID)
		}
		var leader int32
		for _, topic := range r.Topics {
			if *topic.Topic == "u" {
				leader = topic.Partitions[0].Leader
			}
		}
		if leader != step.wantLeader || !slices.Equal(brokers, step.wantBrokers) {
			t.Errorf("after %+v broker %d leads, and %v live", step, leader, brokers)
		}
	}
}
