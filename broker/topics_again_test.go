package broker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// TestDeletionIsNotMadeTwice loses the answer to a deletion. Before the broker that waits for it is heard again, the
// topic is gone and another of its name is there: that one stays.
func TestDeletionIsNotMadeTwice(t *testing.T) {
	for seed := range uint64(8) {
		c := newClusterOf(t, seed, 3)
		c.create("t", 1, 2)
		had := assignmentOf(t, c, "t")
		asked := notController(t, c)
		remove := kmsg.NewPtrDeleteTopicsRequest()
		remove.TopicNames, remove.TimeoutMillis = []string{"t"}, 30_000
		remove.SetVersion(5)
		var answer kmsg.Response
		c.send(nil, asked, remove, 40*time.Second, func(r kmsg.Response, _ error) { answer = r })
		for marked := false; !marked; c.advance(100 * time.Microsecond) {
			_, err := c.model.Tree().Exists(coord.DeleteTopicPath("t"))
			marked = err == nil
		}
		away := true
		var drop func()
		drop = func() {
			if away {
				c.model.Drop(fmt.Sprint(asked))
				c.loop.After(time.Millisecond, drop)
			}
		}
		drop()
		for i, marked := 0, true; marked; i++ {
			c.advance(time.Millisecond)
			_, err := c.model.Tree().Exists(coord.DeleteTopicPath("t"))
			marked = err == nil
			if i == 10_000 {
				t.Fatalf("seed %d: the topic stays\n%s", seed, c.reports())
			}
		}
		c.create("t", 1, 2)
		away = false
		c.advance(20 * time.Second)
		now := assignmentOf(t, c, "t")
		if now == nil {
			t.Fatalf("seed %d: the new topic was deleted too", seed)
		}
		if now.TopicID == had.TopicID {
			t.Fatalf("seed %d: it is the old topic", seed)
		}
		if r, _ := answer.(*kmsg.DeleteTopicsResponse); r == nil || r.Topics[0].ErrorCode != 0 {
			t.Fatalf("seed %d: %+v\n%s", seed, answer, c.reports())
		}
	}
}

// TestATopicMadeRightAfterItsNamesakeIsServed makes a topic at the moment at which the node of the one before it
// goes; in every other run the controller does not hear that it went.
func TestATopicMadeRightAfterItsNamesakeIsServed(t *testing.T) {
	for seed := range uint64(16) {
		c := newClusterOf(t, seed, 3)
		c.create("t", 1, 2)
		had := assignmentOf(t, c, "t")
		remove := kmsg.NewPtrDeleteTopicsRequest()
		remove.TopicNames, remove.TimeoutMillis = []string{"t"}, 30_000
		remove.SetVersion(5)
		c.send(nil, 1, remove, 40*time.Second, func(kmsg.Response, error) {})
		for i := 0; assignmentOf(t, c, "t") != nil; i++ {
			c.advance(100 * time.Microsecond)
			if i == 100_000 {
				t.Fatalf("seed %d: the topic stays\n%s", seed, c.reports())
			}
		}
		if id := controllerOf(t, c); seed%2 == 1 && id != 1 {
			c.model.Drop(fmt.Sprint(id))
		}
		again := kmsg.NewPtrCreateTopicsRequest()
		again.TimeoutMillis = 20_000
		ct := kmsg.NewCreateTopicsRequestTopic()
		ct.Topic, ct.NumPartitions, ct.ReplicationFactor = "t", 1, 2
		setting := kmsg.NewCreateTopicsRequestTopicConfig()
		setting.Name, setting.Value = "retention.ms", kmsg.StringPtr("100000")
		ct.Configs = append(ct.Configs, setting)
		again.Topics = append(again.Topics, ct)
		if r, _ := c.ask(1, again, 5, 30*time.Second).(*kmsg.CreateTopicsResponse); r == nil || r.Topics[0].ErrorCode != 0 {
			t.Fatalf("seed %d: %+v\n%s", seed, r, c.reports())
		}
		c.advance(10 * time.Second)
		if now := assignmentOf(t, c, "t"); now == nil || now.TopicID == had.TopicID {
			t.Fatalf("seed %d: the new topic went with the old one", seed)
		}
		if _, err := c.model.Tree().Exists(coord.TopicConfigPath("t")); err != nil {
			t.Fatalf("seed %d: the new topic's settings went with the old one: %v", seed, err)
		}
	}
}

// notController is a broker that is not the controller, nor the one that creates topics here.
func notController(t *testing.T, c *cluster) int32 {
	if controllerOf(t, c) == 3 {
		return 2
	}
	return 3
}

func controllerOf(t *testing.T, c *cluster) int32 {
	data, _, err := c.model.Tree().Get(coord.ControllerPath)
	if err != nil {
		t.Fatal(err)
	}
	now, err := coord.DecodeController(data)
	if err != nil {
		t.Fatal(err)
	}
	return now.Broker
}

// assignmentOf is what the coordination service has of a topic; nil: nothing.
func assignmentOf(t *testing.T, c *cluster, topic string) *coord.TopicAssignment {
	data, _, err := c.model.Tree().Get(coord.TopicPath(topic))
	if err != nil {
		return nil
	}
	a, err := coord.DecodeTopicAssignment(data)
	if err != nil {
		t.Fatal(err)
	}
	return &a
}
