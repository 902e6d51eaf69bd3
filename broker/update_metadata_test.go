package broker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestALateUpdateMetadataTakesNothingBack: a connection breaks, the controller tells what is new on another one, and
// what was under way on the first comes after it (sweep, seed 236).
func TestALateUpdateMetadataTakesNothingBack(t *testing.T) {
	c := newCluster(t, 3, "min.insync.replicas=2")
	c.create("t", 1, 3)
	now := c.wantISR("t", 0, 3)
	tell := func(leader, leaderEpoch, partitionEpoch int32) {
		req := kmsg.NewPtrUpdateMetadataRequest()
		req.ControllerID, req.ControllerEpoch, req.BrokerEpoch = controllerOf(t, c), 1, -1
		for id := range int32(3) {
			endpoint := kmsg.UpdateMetadataRequestLiveBrokerEndpoint{Host: fmt.Sprintf("b%d", id+1), Port: 9092}
			req.LiveBrokers = append(req.LiveBrokers, kmsg.UpdateMetadataRequestLiveBroker{ID: id + 1, Endpoints: []kmsg.UpdateMetadataRequestLiveBrokerEndpoint{endpoint}})
		}
		req.TopicStates = []kmsg.UpdateMetadataRequestTopicState{{Topic: "t", PartitionStates: []kmsg.UpdateMetadataRequestTopicPartition{{
			Leader: leader, LeaderEpoch: leaderEpoch, ZKVersion: partitionEpoch, ISR: now.ISR, Replicas: now.Replicas,
		}}}}
		r, _ := c.ask(c.anyone(), req, 7, time.Second).(*kmsg.UpdateMetadataResponse)
		if r == nil || r.ErrorCode != 0 {
			t.Fatalf("%+v", r)
		}
	}
	for _, step := range []struct{ leader, leaderEpoch, partitionEpoch, want int32 }{
		{1, 5, 7, 1},
		{2, 4, 6, 1}, // of the leader epoch before
		{3, 5, 6, 1}, // of before a change of the ISR
		{2, 6, 0, 2}, // somebody removed the state, and it was made anew
	} {
		tell(step.leader, step.leaderEpoch, step.partitionEpoch)
		if p := c.partition("t", 0); p.Leader != step.want {
			t.Errorf("after %+v broker %d leads", step, p.Leader)
		}
	}
}
