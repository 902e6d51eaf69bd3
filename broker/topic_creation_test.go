package broker_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/coord"
)

const codeRequestTimedOut = 7

// TestATopicDeletedSinceIsNotMadeAgain loses the answer to a creation. Before the broker that waits for it is heard again, the topic is
// made, and somebody deletes it: the deletion was answered, so the topic stays away.
func TestATopicDeletedSinceIsNotMadeAgain(t *testing.T) {
	c := newCluster(t, 3)
	asked := notController(t, c)
	lost := c.takeNext(asked, "multi", coord.TopicPath("t"))
	code := sendCreate(c, asked, "t")
	c.awaitTaken(lost)
	c.advance(2 * time.Second)
	if code := deleteThrough(t, c, controllerOf(t, c), "t"); code != 0 {
		t.Fatalf("delete: code %d\n%s", code, c.reports())
	}
	lost.lose()
	c.advance(20 * time.Second)
	if assignmentOf(t, c, "t") != nil {
		t.Errorf("the topic is there again\n%s", c.reports())
	}
	if *code != codeRequestTimedOut {
		t.Errorf("its creation is answered with code %d", *code)
	}
}

// TestATopicIsMadeThoughItsCreationWasLost: the creation, or the answer to it, is lost. What others make meanwhile does not
// matter; when others delete something, it is not certain that it was not this topic.
func TestATopicIsMadeThoughItsCreationWasLost(t *testing.T) {
	for _, k := range []struct {
		name           string
		made, deletion bool
		code           int16
	}{
		{"the answer", true, false, 0},
		{"the answer, and a deletion", true, true, 0},
		{"the creation", false, false, 0},
		{"the creation, and a deletion", false, true, codeRequestTimedOut},
	} {
		t.Run(k.name, func(t *testing.T) {
			c := newCluster(t, 3)
			c.create("u", 1, 2)
			asked := notController(t, c)
			var lost *answered
			if k.made {
				lost = c.takeNext(asked, "multi", coord.TopicPath("t"))
			} else {
				c.nodes[asked].swallow = coord.TopicPath("t")
			}
			code := sendCreate(c, asked, "t")
			c.advance(200 * time.Millisecond)
			if made := assignmentOf(t, c, "t") != nil; made != k.made {
				t.Fatalf("made: %v", made)
			}
			c.create("v", 1, 2)
			if k.deletion {
				if code := deleteThrough(t, c, controllerOf(t, c), "u"); code != 0 {
					t.Fatalf("delete: code %d", code)
				}
			}
			if k.made {
				lost.lose()
			}
			c.advance(5 * time.Second)
			if *code != k.code || (assignmentOf(t, c, "t") != nil) != (k.code == 0) {
				t.Errorf("code %d, %v\n%s", *code, assignmentOf(t, c, "t"), c.reports())
			}
		})
	}
}

// sendCreate has a broker make a topic; the code is -100 until it answers.
func sendCreate(c *cluster, id int32, topic string) *int16 {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 15_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, 1, 2
	req.Topics = append(req.Topics, t)
	req.SetVersion(5)
	code := int16(-100)
	c.send(nil, id, req, time.Minute, func(r kmsg.Response, _ error) {
		if r, _ := r.(*kmsg.CreateTopicsResponse); r != nil {
			code = r.Topics[0].ErrorCode
		}
	})
	return &code
}

func deleteThrough(t *testing.T, c *cluster, id int32, topic string) int16 {
	t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TopicNames, req.TimeoutMillis = []string{topic}, 15_000
	r, _ := c.ask(id, req, 5, 20*time.Second).(*kmsg.DeleteTopicsResponse)
	if r == nil {
		return -100
	}
	return r.Topics[0].ErrorCode
}
