package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/rules"
)

// Kafka's own example: 10 partitions of 3 replicas on 5 brokers without racks, start and shift 0.
func TestPlaceWithoutRacks(t *testing.T) {
	var brokers []Broker
	for id := range int32(5) {
		brokers = append(brokers, Broker{ID: 4 - id})
	}
	got, err := Place(brokers, 10, 3, 0, 0, 0)
	if want := "[[0 1 2] [1 2 3] [2 3 4] [3 4 0] [4 0 1] [0 2 3] [1 3 4] [2 4 0] [3 0 1] [4 1 2]]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("got %v, %v, want %s", got, err, want)
	}
	more, _ := Place(brokers, 3, 3, 4, 0, 0)
	if !slices.Equal(more[0], got[4]) {
		t.Errorf("partition 4, added later, is on %v, want %v", more[0], got[4])
	}
	if _, err := Place(brokers, 1, 6, 0, 0, 0); err == nil {
		t.Error("6 replicas on 5 brokers: no error")
	}
	if one, err := Place(brokers[:1], 2, 1, 0, 7, -3); err != nil || fmt.Sprint(one) != "[[4] [4]]" {
		t.Errorf("one broker: %v, %v", one, err)
	}
}

// TestPlaceWithRacks: also from Kafka's tests. Each partition is in every rack, and load is even, from any start.
func TestPlaceWithRacks(t *testing.T) {
	racks := []string{"1", "3", "3", "2", "2", "1"}
	var brokers []Broker
	for id, rack := range racks {
		brokers = append(brokers, Broker{ID: int32(id), Rack: rack})
	}
	order, _ := alternate(brokers)
	var got []int32
	for _, b := range order {
		got = append(got, b.ID)
	}
	if !slices.Equal(got, []int32{0, 3, 1, 5, 4, 2}) {
		t.Errorf("alternately by rack: %v", got)
	}
	for start := range 36 {
		placed, err := Place(brokers, 6, 3, 0, start/6, start%6)
		if err != nil {
			t.Fatal(err)
		}
		leaders, replicas := make([]int, 6), make([]int, 6)
		for _, r := range placed {
			leaders[r[0]]++
			seen := map[string]bool{}
			for _, id := range r {
				replicas[id]++
				seen[racks[id]] = true
			}
			if len(seen) != 3 {
				t.Errorf("start %d: %v is in %d racks of 3", start, r, len(seen))
			}
		}
		if fmt.Sprint(leaders) != "[1 1 1 1 1 1]" || fmt.Sprint(replicas) != "[3 3 3 3 3 3]" {
			t.Errorf("start %d: leaders %v, replicas %v", start, leaders, replicas)
		}
	}
}

// TestNonsense: what no driver should say is ignored, and nothing ends the controller.
func TestNonsense(t *testing.T) {
	nothing := TopicPartition{"nothing", 3}
	inputs := []Input{
		BrokersRead{[]Broker{{ID: 1, Epoch: 5}, {ID: -4, Epoch: -9}}}, BrokersRead{[]Broker{{ID: 1, Epoch: 2}}},
		TopicsRead{Topics: []Topic{{Name: "t", Version: 1, Partitions: []Assignment{{}, {Replicas: []int32{7, 7, -1}}, {Replicas: []int32{1}, Adding: []int32{9}, Removing: []int32{1}}}}}},
		TopicsRead{Topics: []Topic{{Name: "t", ID: TopicID{1}, Version: 9}}, Missing: []string{"nothing", "t"}},
		StatesRead{[]StateRead{{Partition: nothing, Found: true}, {Partition: TopicPartition{"t", -1}}, {Partition: TopicPartition{"t", 0}, Found: true, State: State{Leader: 44, ISR: []int32{5, 5}, ELR: []int32{5}, LastLeader: -9}, Version: -3}}},
		StatesWritten{[]StateWritten{{nothing, Accepted, 3}, {TopicPartition{"t", 2}, Conflict, 0}}},
		StatesCreated{"nothing", []int32{-1, 8}, Accepted}, StatesCreated{"t", []int32{-1, 8}, Conflict},
		TopicWritten{Topic: "t"}, TopicDeleted{Topic: "t"}, HandledWritten{}, CommandDone{Broker: 99}, CommandDone{Broker: 1, Seq: 1 << 40},
		LogDirFailed{77}, LogDirFailed{1}, ControlledShutdown{Request: 1, Broker: 55},
		ElectLeaders{Request: 2}, ElectLeaders{Request: 3, Unclean: true, Partitions: []TopicPartition{nothing, {"t", 0}}},
		Reassign{Request: 4, Partitions: []Reassignment{{nothing, nil}, {TopicPartition{"t", 0}, []int32{1, 1}}, {TopicPartition{"t", 2}, nil}}},
		DeleteTopics{[]string{"", "t"}}, Tick{},
	}
	for first := range inputs {
		c := New(Config{Rules: rules.All(), ReplaceAfter: time.Second, PreferredCheck: time.Second})
		if out := c.Step(0, inputs[first]); out != nil {
			t.Errorf("before it is loaded: %v", out)
		}
		c.Step(0, Loaded{})
		for i := range inputs {
			c.Step(time.Duration(i)*time.Second, inputs[(first+i)%len(inputs)])
		}
	}
}
