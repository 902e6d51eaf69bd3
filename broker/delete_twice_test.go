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

// notController is a broker that is not the controller, nor the one that creates topics here.
func notController(t *testing.T, c *cluster) int32 {
	data, _, err := c.model.Tree().Get(coord.ControllerPath)
	if err != nil {
		t.Fatal(err)
	}
	now, err := coord.DecodeController(data)
	if err != nil {
		t.Fatal(err)
	}
	if now.Broker == 3 {
		return 2
	}
	return 3
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
