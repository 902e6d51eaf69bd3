package broker_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestChangesOutliveLostConnections makes, grows, configures and deletes a topic through a broker that
// loses its connection to the coordination service again and again meanwhile: the
// client hears of the end, and of nothing else.
func TestChangesOutliveLostConnections(t *testing.T) {
	create := kmsg.NewPtrCreateTopicsRequest()
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = "t", 2, 2
	setting := kmsg.NewCreateTopicsRequestTopicConfig()
	setting.Name, setting.Value = "retention.ms", kmsg.StringPtr("100000")
	ct.Configs = append(ct.Configs, setting)
	create.Topics, create.TimeoutMillis = append(create.Topics, ct), 15_000

	grow := kmsg.NewPtrCreatePartitionsRequest()
	gt := kmsg.NewCreatePartitionsRequestTopic()
	gt.Topic, gt.Count = "t", 4
	grow.Topics = append(grow.Topics, gt)

	alter := kmsg.NewPtrAlterConfigsRequest()
	at := kmsg.NewAlterConfigsRequestResource()
	at.ResourceType, at.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
	alter.Resources = append(alter.Resources, at)

	remove := kmsg.NewPtrDeleteTopicsRequest()
	remove.TopicNames, remove.TimeoutMillis = []string{"t"}, 15_000

	for seed := range uint64(20) {
		c := newClusterOf(t, seed, 3)
		for i := 1; i < 400; i++ {
			c.loop.After(time.Duration(i*i)*50*time.Microsecond, func() { c.model.Drop("1") })
		}
		if r, _ := c.ask(1, create, 5, 20*time.Second).(*kmsg.CreateTopicsResponse); r == nil || r.Topics[0].ErrorCode != 0 {
			t.Fatalf("seed %d: create: %+v\n%s", seed, r, c.reports())
		}
		if r, _ := c.ask(1, grow, 3, 40*time.Second).(*kmsg.CreatePartitionsResponse); r == nil || r.Topics[0].ErrorCode != 0 {
			t.Fatalf("seed %d: grow: %+v\n%s", seed, r, c.reports())
		}
		if r, _ := c.ask(1, alter, 2, 40*time.Second).(*kmsg.AlterConfigsResponse); r == nil || r.Resources[0].ErrorCode != 0 {
			t.Fatalf("seed %d: alter: %+v\n%s", seed, r, c.reports())
		}
		if r, _ := c.ask(1, remove, 5, 20*time.Second).(*kmsg.DeleteTopicsResponse); r == nil || r.Topics[0].ErrorCode != 0 {
			t.Fatalf("seed %d: delete: %+v\n%s", seed, r, c.reports())
		}
	}
}
