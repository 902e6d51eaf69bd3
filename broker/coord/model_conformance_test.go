package coord_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/coord/coordtest"
)

// timeline is a Scheduler: a queue of events in virtual time.
type timeline struct {
	now    time.Duration
	next   int64
	queue  timelineHeap
	events int64
}

type timelineEvent struct {
	at time.Duration
	n  int64
	f  func()
}

type timelineHeap []timelineEvent

func (h timelineHeap) Len() int { return len(h) }
func (h timelineHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].n < h[j].n
}
func (h timelineHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *timelineHeap) Push(x any)   { *h = append(*h, x.(timelineEvent)) }
func (h *timelineHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

func (l *timeline) Now() time.Duration { return l.now }

func (l *timeline) After(d time.Duration, f func()) {
	l.next++
	heap.Push(&l.queue, timelineEvent{l.now + d, l.next, f})
}

// run lets events happen until cond holds or the time has come to end, and says whether cond holds.
func (l *timeline) run(end time.Duration, cond func() bool) bool {
	for !cond() {
		if len(l.queue) == 0 || l.queue[0].at > end {
			l.now = max(l.now, end)
			return cond()
		}
		e := heap.Pop(&l.queue).(timelineEvent)
		l.now = e.at
		l.events++
		e.f()
	}
	return true
}

func never() bool { return false }

// modelService is the model as a coordtest.Service.
type modelService struct {
	*timeline
	m     *coord.Model
	peers map[coord.Client]string
}

func newModelService(seed uint64, cfg coord.ModelConfig) *modelService {
	s := &modelService{timeline: &timeline{}, peers: map[coord.Client]string{}}
	s.m = coord.NewModel(s.timeline, rand.New(rand.NewPCG(seed, 7)), cfg)
	root := s.Open(time.Minute, nil)
	made := false
	s.run(time.Minute, func() bool { return root.Session() != 0 })
	root.Create(s.Root(), nil, coord.Persistent, func(string, coord.Stat, error) { made = true })
	if !s.run(time.Minute, func() bool { return made }) {
		panic("BUG: the root was not made")
	}
	root.Close(func(error) {})
	s.Settle()
	return s
}

func (s *modelService) Open(timeout time.Duration, state func(coord.SessionState)) coord.Client {
	peer := fmt.Sprint("client ", len(s.peers))
	c := s.m.Open(s.timeline, peer, timeout, state)
	s.peers[c] = peer
	return c
}

func (s *modelService) Wait(cond func() bool) bool { return s.run(s.now+time.Hour, cond) }
func (s *modelService) Settle()                    { s.run(s.now+time.Minute, never) }
func (s *modelService) Root() string               { return "/c" }
func (s *modelService) Tick() time.Duration        { return coord.TickMs * time.Millisecond }
func (s *modelService) Cut(c coord.Client)         { s.m.Block(s.peers[c]) }
func (s *modelService) Heal(c coord.Client)        { s.m.Unblock(s.peers[c]) }
func (s *modelService) ExpiredAt(id coord.SessionID) (time.Duration, bool) {
	return s.m.ExpiredAt(id)
}

// modelConfigs are the ensembles that the suite runs on.
func modelConfigs() map[string]coord.ModelConfig {
	usual := coord.DefaultModelConfig()
	one, slow, still := usual, usual, usual
	one.Servers = 1
	slow.Servers, slow.Lag = 5, time.Second
	still.Latency, still.Lag, still.Jitter = 0, 0, 0
	return map[string]coord.ModelConfig{"usual": usual, "one server": one, "five that lag": slow, "no latency": still}
}

func modelFactory(seed uint64, cfg coord.ModelConfig) coordtest.Factory {
	return coordtest.Factory{New: func(testing.TB) coordtest.Service { return newModelService(seed, cfg) }}
}

func TestTheModelKeepsTheContract(t *testing.T) {
	coordtest.Run(t, modelFactory(1, coord.DefaultModelConfig()))
}

func TestTheModelKeepsTheContractUnderManySeeds(t *testing.T) {
	seeds := uint64(25)
	if testing.Short() {
		seeds = 4
	}
	for name, cfg := range modelConfigs() {
		for seed := range seeds {
			for _, failed := range coordtest.Failing(t, modelFactory(seed, cfg)) {
				t.Errorf("%s, seed %d: %s", name, seed, failed)
			}
		}
	}
}

// Every planted breach is caught by some test of the suite within a few seeds.
func TestTheSuiteCatchesEveryPlantedFault(t *testing.T) {
	configs := modelConfigs()
	for _, fault := range coord.ModelFaults {
		if fault == coord.FaultZombieWrites {
			continue // it takes an end that strikes a live connection: TestNothingOfASessionIsAppliedAfterItsEnd
		}
		t.Run(string(fault), func(t *testing.T) {
			for seed := range uint64(5) {
				for _, name := range []string{"usual", "five that lag"} {
					cfg := configs[name]
					cfg.Fault = fault
					if failing := coordtest.Failing(t, modelFactory(seed, cfg)); len(failing) > 0 {
						t.Logf("%s, seed %d: %d tests, the first: %s", name, seed, len(failing), failing[0])
						return
					}
				}
			}
			t.Errorf("not caught")
		})
	}
}

// The same seed gives the same history: what was told and when, to the last event.
func TestTheModelIsAFunctionOfItsSeed(t *testing.T) {
	history := func() string {
		var b strings.Builder
		s := newModelService(9, coord.DefaultModelConfig())
		for i := range 3 {
			c := s.Open(4*time.Second, func(st coord.SessionState) { fmt.Fprintln(&b, s.now, i, st) })
			s.run(s.now+time.Second, never)
			for j := range 20 {
				path := fmt.Sprint("/c/", j%7)
				c.Exists(path, func(e coord.Event) { fmt.Fprintln(&b, s.now, i, e) }, func(_ coord.Stat, err error) { fmt.Fprintln(&b, s.now, i, err) })
				c.Create(path, nil, coord.Ephemeral, func(_ string, st coord.Stat, err error) { fmt.Fprintln(&b, s.now, i, st, err) })
			}
			if i == 1 {
				s.Cut(c)
			}
		}
		s.run(s.now+20*time.Second, never)
		fmt.Fprintln(&b, s.events, s.m.Counts())
		return b.String()
	}
	first := history()
	for range 5 {
		if again := history(); again != first {
			t.Fatalf("two histories of one seed:\n%s\nand\n%s", first, again)
		}
	}
	if !strings.Contains(first, "disconnected") || strings.Count(first, "\n") < 60 {
		t.Errorf("the history shows too little:\n%s", first)
	}
}
