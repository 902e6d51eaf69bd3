package broker_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/coord"
)

const (
	codeInvalidPartitions        = 37
	codeInvalidReplicaAssignment = 39
)

// growing is a topic "t" of one partition and what a broker that is not the controller is asked: to grow it.
func growing(t *testing.T, count int32, assignment ...[]int32) (c *cluster, asked int32, ask func(id int32) *int16) {
	c = newCluster(t, 3)
	c.create("t", 1, 2)
	c.advance(time.Second)
	return c, notController(t, c), func(id int32) *int16 {
		grow := kmsg.NewPtrCreatePartitionsRequest()
		gt := kmsg.NewCreatePartitionsRequestTopic()
		gt.Topic, gt.Count = "t", count
		for _, replicas := range assignment {
			gt.Assignment = append(gt.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: replicas})
		}
		grow.Topics = append(grow.Topics, gt)
		grow.SetVersion(3)
		code := int16(-100)
		c.send(nil, id, grow, time.Minute, func(r kmsg.Response, _ error) {
			if r, _ := r.(*kmsg.CreatePartitionsResponse); r != nil {
				code = r.Topics[0].ErrorCode
			}
		})
		return &code
	}
}

func partitionsOf(t *testing.T, c *cluster) int { return len(assignmentOf(t, c, "t").Replicas) }

// TestAGrowthThatSomebodyElseMadeIsNobodysSuccess: a broker loses the answer to its look at a topic, before it has written anything.
// Meanwhile the topic grows to the same number of partitions through another.
func TestAGrowthThatSomebodyElseMadeIsNobodysSuccess(t *testing.T) {
	c, asked, ask := growing(t, 4)
	lost := c.takeNext(asked, "get", coord.TopicPath("t"))
	code := ask(asked)
	c.awaitTaken(lost)
	other := ask(6 - asked - controllerOf(t, c))
	c.advance(5 * time.Second)
	if *other != 0 || partitionsOf(t, c) != 4 {
		t.Fatalf("the other growth: code %d, %d partitions\n%s", *other, partitionsOf(t, c), c.reports())
	}
	lost.lose()
	c.advance(5 * time.Second)
	if *code != codeInvalidPartitions {
		t.Errorf("the growth that was not made: code %d\n%s", *code, c.reports())
	}
}

// TestAGrowthWhoseAnswerWasLostIsASuccess: what was written is known again, also when the topic has grown further since.
func TestAGrowthWhoseAnswerWasLostIsASuccess(t *testing.T) {
	for _, further := range []bool{false, true} {
		c, asked, ask := growing(t, 4)
		lost := c.takeNext(asked, "set", coord.TopicPath("t"))
		code := ask(asked)
		c.awaitTaken(lost)
		want := 4
		if further {
			data, st, err := c.model.Tree().Get(coord.TopicPath("t"))
			if err != nil {
				t.Fatal(err)
			}
			a, err := coord.DecodeTopicAssignment(data)
			if err != nil {
				t.Fatal(err)
			}
			a.Replicas = append(a.Replicas, []int32{1, 2})
			c.nodes[asked].client.Set(coord.TopicPath("t"), a.Encode(), st.Version, func(_ coord.Stat, err error) {
				if err != nil {
					t.Error(err)
				}
			})
			want = 5
			c.advance(time.Second)
		}
		lost.lose()
		c.advance(5 * time.Second)
		if *code != 0 || partitionsOf(t, c) != want {
			t.Errorf("grown further %v: code %d, %d partitions\n%s", further, *code, partitionsOf(t, c), c.reports())
		}
	}
}

// TestAGrowthThatMeetsAnotherLooksAgain: somebody else changes the topic between the look and the write.
func TestAGrowthThatMeetsAnotherLooksAgain(t *testing.T) {
	for _, k := range []struct {
		assignment [][]int32
		code       int16
		partitions int
	}{
		{nil, 0, 4},
		// Of three lists two would be one too many for four.
		{[][]int32{{1, 2}, {2, 3}, {3, 1}}, codeInvalidReplicaAssignment, 2},
	} {
		c, asked, ask := growing(t, 4, k.assignment...)
		late := c.takeNext(asked, "get", coord.TopicPath("t"))
		code := ask(asked)
		c.awaitTaken(late)
		a := assignmentOf(t, c, "t")
		a.Replicas = append(a.Replicas, []int32{1, 2})
		c.nodes[asked].client.Set(coord.TopicPath("t"), a.Encode(), coord.AnyVersion, func(_ coord.Stat, err error) {
			if err != nil {
				t.Error(err)
			}
		})
		c.advance(time.Second)
		late.give()
		c.advance(5 * time.Second)
		if *code != k.code || partitionsOf(t, c) != k.partitions {
			t.Errorf("assignment %v: code %d, %d partitions\n%s", k.assignment, *code, partitionsOf(t, c), c.reports())
		}
	}
}
