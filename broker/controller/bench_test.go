package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/rules"
)

// benchmarkDeath is one of three brokers dying, until every write that follows is given out and accepted and
// every command made. The world around answers at once, so that this is the controller alone.
func benchmarkDeath(b *testing.B, partitions, others int) {
	for b.Loop() {
		b.StopTimer()
		c, l := loadedForBench(partitions, others)
		answer(c, c.Step(0, l))
		b.StartTimer()
		writes, sends := answer(c, c.Step(time.Second, BrokersRead{l.Brokers[1:]}))
		if writes != partitions {
			b.Fatalf("%d writes for %d partitions", writes, partitions)
		}
		b.ReportMetric(float64(sends), "commands/op")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(partitions), "ns/partition")
}

func BenchmarkBrokerDies(b *testing.B) {
	for _, partitions := range []int{1000, 10000, 100000} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) { benchmarkDeath(b, partitions, 0) })
	}
	b.Run("partitions=1000/others=100000", func(b *testing.B) { benchmarkDeath(b, 1000, 100000) })
}

// loadedForBench has three brokers with replicas of all partitions, and two more with the others.
func loadedForBench(partitions, others int) (*Controller, Loaded) {
	l := Loaded{ControllerEpoch: 1, EpochVersion: 1}
	for id := range int32(5) {
		l.Brokers = append(l.Brokers, Broker{ID: id + 1, Epoch: 1})
		l.Handled = append(l.Handled, BrokerEpoch{id + 1, 1})
	}
	add := func(name string, n int, replicas ...int32) {
		t := Topic{Name: name, MinISR: 2}
		for i := range n {
			r := make([]int32, len(replicas))
			for j := range r {
				r[j] = replicas[(i+j)%len(replicas)]
			}
			t.Partitions = append(t.Partitions, Assignment{Replicas: r})
			l.States = append(l.States, StateRead{Partition: TopicPartition{name, int32(i)}, Found: true, State: State{Leader: r[0], LeaderEpoch: 3, ISR: r, LastLeader: NoLeader}, Version: 7})
		}
		l.Topics = append(l.Topics, t)
	}
	add("t", partitions, 1, 2, 3)
	add("others", others, 4, 5)
	return New(Config{Rules: rules.All()}), l
}

// answer accepts everything, a batch of writes as one input, and counts.
func answer(c *Controller, effects []Effect) (writes, sends int) {
	for len(effects) > 0 {
		var next []Effect
		for _, e := range effects {
			switch e := e.(type) {
			case WriteStates:
				in := StatesWritten{Results: make([]StateWritten, len(e.Writes))}
				for i, w := range e.Writes {
					in.Results[i] = StateWritten{w.Partition, Accepted, w.Version + 1}
				}
				writes += len(e.Writes)
				next = append(next, c.Step(time.Second, in)...)
			case Send:
				sends++
				next = append(next, c.Step(time.Second, CommandDone{Broker: e.To.ID, Seq: e.Seq})...)
			case WriteHandled:
				next = append(next, c.Step(time.Second, HandledWritten{Accepted})...)
			}
		}
		effects = next
	}
	return writes, sends
}
