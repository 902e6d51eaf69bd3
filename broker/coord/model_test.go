package coord_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// process is a client's Scheduler that can stand still, as a paused process does: what is due waits.
type process struct {
	*timeline
	paused bool
	held   []func()
}

func (p *process) After(d time.Duration, f func()) {
	p.timeline.After(d, func() {
		if p.paused {
			p.held = append(p.held, f)
			return
		}
		f()
	})
}

func (p *process) resume() {
	p.paused = false
	for _, f := range p.held {
		p.timeline.After(0, f)
	}
	p.held = nil
}

// told is a session opened in a process, with what it was told.
type told struct {
	*coord.ModelClient
	states []coord.SessionState
}

func (s *modelService) openIn(p coord.Scheduler, peer string, timeout time.Duration) *told {
	c := &told{}
	c.ModelClient = s.m.Open(p, peer, timeout, func(st coord.SessionState) { c.states = append(c.states, st) })
	s.run(s.now+time.Minute, func() bool { return len(c.states) > 0 })
	return c
}

// create makes a node and waits for it.
func (s *modelService) create(t *testing.T, c coord.Client, path string, mode coord.CreateMode) {
	t.Helper()
	err := errors.New("no answer")
	answered := false
	c.Create(path, nil, mode, func(_ string, _ coord.Stat, e error) { err, answered = e, true })
	s.run(s.now+time.Minute, func() bool { return answered })
	if err != nil {
		t.Fatalf("create %s: %v", path, err)
	}
}

func (s *modelService) pass(d time.Duration) { s.run(s.now+d, never) }

func (s *modelService) there(path string) bool {
	_, err := s.m.Tree().Exists(path)
	return err == nil
}

var (
	connected = coord.Connected
	lost      = coord.Disconnected
	expired   = coord.Expired
)

// A process that stands still past its session learns of the end when it wakes; until it has, it believes to be connected.
func TestAPausedProcessWakesAsAZombie(t *testing.T) {
	zombies := 0
	for seed := range uint64(20) {
		s := newModelService(seed, coord.DefaultModelConfig())
		p := &process{timeline: s.timeline}
		c := s.openIn(p, "p", 6*time.Second)
		s.create(t, c, "/controller", coord.Ephemeral)
		p.paused = true
		s.pass(10 * time.Second)
		if s.there("/controller") {
			t.Fatal("the ephemeral of a paused process stays")
		}
		p.resume()
		wrote := errors.New("no answer")
		c.Set("/c", nil, coord.AnyVersion, func(_ coord.Stat, err error) { wrote = err })
		if len(c.states) == 1 {
			zombies++
		}
		s.pass(10 * time.Second)
		if !slices.Equal(c.states, []coord.SessionState{connected, lost, expired}) {
			t.Errorf("seed %d: told %v", seed, c.states)
		}
		if !errors.Is(wrote, coord.ErrConnectionLoss) && !errors.Is(wrote, coord.ErrSessionExpired) {
			t.Errorf("seed %d: the zombie's write: %v", seed, wrote)
		}
		if st, _ := s.m.Tree().Exists("/c"); st.Version != 0 {
			t.Errorf("seed %d: the zombie's write was applied", seed)
		}
	}
	if zombies == 0 {
		t.Error("none woke as a zombie")
	}
}

func TestNoSessionExpiresWhileTheServiceIsDown(t *testing.T) {
	s := newModelService(3, coord.DefaultModelConfig())
	c := s.openIn(s.timeline, "p", 4*time.Second)
	dead := s.openIn(s.timeline, "q", 4*time.Second)
	s.create(t, c, "/e", coord.Ephemeral)
	s.create(t, dead, "/dead", coord.Ephemeral)
	s.m.Down()
	dead.Abandon()
	s.pass(10 * time.Minute)
	if !slices.Equal(c.states, []coord.SessionState{connected, lost}) || !s.there("/e") || !s.m.IsDown() {
		t.Fatalf("down: told %v", c.states)
	}
	var refused error
	c.Delete("/e", 0, func(err error) { refused = err })
	s.pass(time.Second)
	if !errors.Is(refused, coord.ErrConnectionLoss) {
		t.Errorf("a call meanwhile: %v", refused)
	}
	s.m.Up()
	s.pass(3 * time.Second)
	if !slices.Equal(c.states, []coord.SessionState{connected, lost, connected}) || !s.there("/dead") {
		t.Errorf("up: told %v; every session has its whole timeout again", c.states)
	}
	s.pass(10 * time.Second)
	if s.there("/dead") || !s.there("/e") || len(dead.states) != 1 {
		t.Errorf("in the end: dead's node %v, the other's %v, dead was told %v", s.there("/dead"), s.there("/e"), dead.states)
	}
}

func TestADroppedConnectionComesBack(t *testing.T) {
	s := newModelService(4, coord.DefaultModelConfig())
	c := s.openIn(s.timeline, "p", 40*time.Second)
	s.create(t, c, "/e", coord.Ephemeral)
	s.m.Drop("p")
	s.pass(35 * time.Second)
	if !slices.Equal(c.states, []coord.SessionState{connected, lost, connected}) || !s.there("/e") {
		t.Errorf("told %v", c.states)
	}
}

// zombieWrites lets a client write without pause while its session is expired, and says how often something was
// applied after that, and how often a call was under way.
func zombieWrites(t *testing.T, seed uint64, fault coord.ModelFault) (applied int32, underWay int) {
	cfg := coord.DefaultModelConfig()
	cfg.Fault = fault
	s := newModelService(seed, cfg)
	c := s.openIn(s.timeline, "p", 40*time.Second)
	pending := 0
	var write func()
	write = func() {
		if _, ended := s.m.ExpiredAt(c.Session()); !ended {
			pending++
			c.Set("/c", nil, coord.AnyVersion, func(coord.Stat, error) { pending-- })
			s.After(300*time.Microsecond, write)
		}
	}
	write()
	s.pass(time.Second)
	s.m.ExpireSession(c.Session())
	if !s.run(s.now+time.Minute, func() bool { _, ok := s.m.ExpiredAt(c.Session()); return ok }) {
		t.Fatal("not expired")
	}
	then, _ := s.m.Tree().Exists("/c")
	underWay = pending
	s.pass(time.Minute)
	now, _ := s.m.Tree().Exists("/c")
	if pending != 0 || c.states[len(c.states)-1] != expired {
		t.Errorf("seed %d: %d calls have no end, told %v", seed, pending, c.states)
	}
	return now.Version - then.Version, underWay
}

func TestNothingOfASessionIsAppliedAfterItsEnd(t *testing.T) {
	underWay, planted := 0, int32(0)
	for seed := range uint64(10) {
		applied, n := zombieWrites(t, seed, coord.FaultNone)
		if applied != 0 {
			t.Errorf("seed %d: %d writes were applied after the end", seed, applied)
		}
		underWay += n
		n2, _ := zombieWrites(t, seed, coord.FaultZombieWrites)
		planted += n2
	}
	if underWay == 0 || planted == 0 {
		t.Errorf("nothing could be seen: %d calls under way, %d writes with the fault planted", underWay, planted)
	}
}

// What the contract leaves open happens both ways: order of answers, of a watch and the answer to the change that fires it.
func TestTheModelShufflesWhatIsOpen(t *testing.T) {
	overtaken, watchFirst, watchLast := 0, 0, 0
	for seed := range uint64(10) {
		s := newModelService(seed, coord.DefaultModelConfig())
		c := s.openIn(s.timeline, "p", 40*time.Second)
		last := -1
		for i := range 20 {
			c.Exists(fmt.Sprint("/c/", i), nil, func(coord.Stat, error) {
				if i < last {
					overtaken++
				}
				last = max(last, i)
			})
		}
		s.pass(time.Second)
		for i := range 20 {
			path := fmt.Sprint("/c/", i)
			var order []string
			c.Exists(path, func(coord.Event) { order = append(order, "watch") }, func(coord.Stat, error) {
				c.Create(path, nil, coord.Persistent, func(string, coord.Stat, error) { order = append(order, "done") })
			})
			s.pass(time.Second)
			switch {
			case slices.Equal(order, []string{"watch", "done"}):
				watchFirst++
			case slices.Equal(order, []string{"done", "watch"}):
				watchLast++
			default:
				t.Errorf("%v", order)
			}
		}
	}
	if overtaken == 0 || watchFirst == 0 || watchLast == 0 {
		t.Errorf("%d answers overtook others, watches came first %d times and last %d times", overtaken, watchFirst, watchLast)
	}
}

// Rare paths are reached: reads behind the leader, writes whose answer is lost, applied and not, changes missed.
func TestTheModelReachesItsRarePaths(t *testing.T) {
	var sum coord.ModelCounts
	for seed := range uint64(20) {
		s := newModelService(seed, coord.DefaultModelConfig())
		clients := []*told{}
		for i := range 4 {
			clients = append(clients, s.openIn(s.timeline, fmt.Sprint(i), 10*time.Second))
		}
		for round := range 60 {
			for i, c := range clients {
				c.Get("/c", func(coord.Event) {}, func([]byte, coord.Stat, error) {})
				c.Set("/c", nil, coord.AnyVersion, func(coord.Stat, error) {})
				c.Delete(fmt.Sprint("/none-", i), 0, func(error) {})
			}
			s.pass(2 * time.Millisecond)
			if round%5 == 0 {
				s.m.Drop(fmt.Sprint(round / 5 % 4))
			}
			s.pass(time.Second)
		}
		n := s.m.Counts()
		sum.StaleReads += n.StaleReads
		sum.AppliedUnanswered += n.AppliedUnanswered
		sum.DroppedUnanswered += n.DroppedUnanswered
		sum.MissedWatches += n.MissedWatches
		sum.Reattached += n.Reattached
		sum.Refused += n.Refused
		sum.Watches += n.Watches
	}
	for name, n := range map[string]int64{
		"stale reads": sum.StaleReads, "writes applied without an answer": sum.AppliedUnanswered, "writes dropped": sum.DroppedUnanswered,
		"missed watches": sum.MissedWatches, "reattached": sum.Reattached, "refused": sum.Refused, "watches": sum.Watches,
	} {
		if n == 0 {
			t.Errorf("never: %s", name)
		}
	}
	t.Logf("%+v", sum)
}

// What a sim spends on coordination: events of a write with a watch and a read after it.
func BenchmarkModel(b *testing.B) {
	s := newModelService(1, coord.DefaultModelConfig())
	c := s.openIn(s.timeline, "p", 40*time.Second)
	before := s.events
	for b.Loop() {
		done := false
		c.Get("/c", func(coord.Event) {}, func([]byte, coord.Stat, error) {
			c.Set("/c", nil, coord.AnyVersion, func(coord.Stat, error) { done = true })
		})
		s.run(s.now+time.Hour, func() bool { return done })
	}
	b.ReportMetric(float64(s.events-before)/float64(b.N), "events/op")
}
