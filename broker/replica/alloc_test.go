package replica

import (
	"cmp"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/rules"
)

// What happens for every batch allocates nothing.
func TestHotPathsDoNotAllocate(t *testing.T) {
	l := NewLeader(rules.All(), 1, Settings{MinISR: 2, LagMax: time.Minute})
	if _, err := l.Become(BecomeLeader{State: State{Leader: 1, ISR: []BrokerID{1, 2, 3}}, Replicas: []BrokerID{1, 2, 3}}); err != nil {
		t.Fatal(err)
	}
	var at Offset
	cycle := func() {
		at++
		l.Appended(at)
		for _, id := range [2]BrokerID{2, 3} {
			if a, _ := l.Fetched(Fetch{From: id, Offset: at, EpochEnd: EpochEnd{0, at}, Now: time.Duration(at)}); a.Verdict != FetchOK {
				t.Fatal(a.Verdict)
			}
		}
		l.Tick(time.Duration(at))
	}
	if n := testing.AllocsPerRun(1000, cycle); n != 0 {
		t.Errorf("an append, two fetches and a tick allocate %v times", n)
	}
	if l.HighWatermark() != at {
		t.Errorf("high watermark %d of %d", l.HighWatermark(), at)
	}

	log := &memLog{}
	follower := NewFollower(rules.All(), log, false)
	if _, err := follower.Become(BecomeFollower{Leader: 1, LeaderEpoch: 0}); err != nil {
		t.Fatal(err)
	}
	f := NewFetcher(cmp.Compare[int])
	for p := range 100 {
		f.Add(p)
	}
	round := func() {
		for _, x := range f.Plan(Limits{Partitions: 1000}, func(int) Ask { return follower.Next(0) }).Fetches {
			follower.Fetched(FetchReply{LeaderEpoch: x.Ask.LeaderEpoch, Offset: x.Ask.Offset})
		}
	}
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("a round of a fetcher allocates %v times", n)
	}
}

func BenchmarkLeader(b *testing.B) {
	l := NewLeader(rules.All(), 1, Settings{MinISR: 2, LagMax: time.Minute})
	if _, err := l.Become(BecomeLeader{State: State{Leader: 1, ISR: []BrokerID{1, 2, 3}}, Replicas: []BrokerID{1, 2, 3}}); err != nil {
		b.Fatal(err)
	}
	for i := range b.N {
		at := Offset(i + 1)
		l.Appended(at)
		l.Fetched(Fetch{From: 2, Offset: at, EpochEnd: EpochEnd{0, at}})
		l.Fetched(Fetch{From: 3, Offset: at, EpochEnd: EpochEnd{0, at}})
	}
}
