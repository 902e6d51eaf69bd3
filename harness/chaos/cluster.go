package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/sut"
)

// state of a broker's process. Only up and paused are left by a fault; the others end by themselves.
type state int

const (
	up state = iota
	down
	paused
	busy // starts or stops
)

// cluster is the processes, and what was done to them.
type cluster struct {
	*sut.Cluster
	ctx  context.Context // of the processes
	end  context.CancelFunc
	work sync.WaitGroup // brokers that start or stop beside the story

	mu     sync.Mutex // guards what follows: brokers start and stop beside the story
	states []state    // by broker id, from 1
	away   bool       // ZooKeeper is down
	err    error      // the first thing that could not be done

	later []undo        // what is to be taken back; of the story's goroutine alone
	ask   []*kgo.Client // one for each broker, for metadata
}

// undo is the end of a fault that lasts for a while.
type undo struct {
	at time.Time
	of lasting
	do func()
}

// lasting is what a fault with an end leaves: a process that is down or paused, or ZooKeeper, which has id 0, down.
type lasting struct {
	left state
	id   int32
}

func newCluster(ctx context.Context, c *sut.Cluster) *cluster {
	ctx, end := context.WithCancel(ctx)
	return &cluster{Cluster: c, ctx: ctx, end: end, states: make([]state, len(c.Brokers)+1), ask: make([]*kgo.Client, len(c.Brokers)+1)}
}

func (c *cluster) addrs() []string { return c.Addrs() }

// close ends everything, whatever state it is in.
func (c *cluster) close() {
	for _, client := range c.ask {
		if client != nil {
			client.Close()
		}
	}
	c.end() // or a broker that is being started would be there after all
	c.work.Wait()
	c.Kill()
}

// failed says what could not be done, or who has died without our doing: a later kill, or a restart, would hide that.
func (c *cluster) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	for i, b := range c.Brokers {
		if s := c.states[i+1]; (s == up || s == paused) && b != nil && b.Process().HasExited() {
			return violated("L3: broker %d has ended by itself: %s", i+1, b.Process().End())
		}
	}
	if z := c.ZooKeeperProcess(); z != nil && !c.away && z.HasExited() {
		return violated("L3: zookeeper has ended by itself: %s", z.End())
	}
	return nil
}

func (c *cluster) is(id int32, s state) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.states[id] == s
}

func (c *cluster) set(id int32, s state, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.states[id] = s
	if err != nil && c.err == nil {
		c.err = fmt.Errorf("broker %d: %w", id, err)
	}
}

func (c *cluster) createTopic(ctx context.Context, partitions int32, replicas int16) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.addrs()...))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err = kadm.NewClient(client).CreateTopic(ctx, partitions, replicas, nil, topic)
	return err
}

// allUp says whether every broker serves.
func (c *cluster) allUp() (bool, error) {
	for i := range c.Brokers {
		if !c.is(int32(i)+1, up) {
			return false, nil
		}
	}
	return true, nil
}

// whom gives the brokers that a fault is for; none while nobody is known to be in that role.
func (c *cluster) whom(f *experiments.Fault) []int32 {
	target, _ := f.Targets()
	m := newest(c.metadata())
	if m == nil {
		return nil
	}
	return inRole(m, target, len(c.Brokers))
}

// act lets a fault happen to brokers, and gives those to whom it did.
func (c *cluster) act(f *experiments.Fault, whom []int32) []int32 {
	var done []int32
	for _, id := range whom {
		if c.actOn(id, f) {
			done = append(done, id)
		}
	}
	return done
}

// actOn says whether there was anything to do: as in the simulator, what is not alive cannot be killed, and what is cannot be started.
func (c *cluster) actOn(id int32, f *experiments.Fault) bool {
	b := c.Brokers[id-1]
	switch f.Kind {
	case experiments.FaultRestart:
		c.forget(lasting{down, id})
		return c.start(id)
	case experiments.FaultKill, experiments.FaultBounce, experiments.FaultDiskSwap:
		if !c.is(id, up) && !c.is(id, paused) || b.Process().HasExited() { // by itself: failed says so
			return false
		}
		c.forget(lasting{paused, id})
		b.Kill()
		c.set(id, down, nil)
		if f.Kind == experiments.FaultDiskSwap {
			if err := os.RemoveAll(b.DataDir()); err != nil {
				c.set(id, down, err)
			}
		}
		if f.Kind == experiments.FaultBounce {
			c.start(id)
		} else {
			c.takeBackAfter(f.For, lasting{down, id}, func() { c.start(id) })
		}
		return true
	}
	if !c.is(id, up) || b.Process().HasExited() {
		return false
	}
	switch f.Kind {
	case experiments.FaultStop:
		c.set(id, busy, nil)
		c.work.Go(func() { // a clean stop hands leaderships over first; then, as in the simulator, it comes back
			err := b.Stop()
			c.set(id, down, err)
			c.start(id)
		})
	case experiments.FaultPause:
		pid := b.Process().PID()
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			c.set(id, up, err)
			return true
		}
		c.set(id, paused, nil)
		c.takeBackAfter(f.For, lasting{paused, id}, func() { c.resume(id) })
	}
	return true
}

// start starts a broker that is down, beside the story: one that is back soon waits for its old session to end.
func (c *cluster) start(id int32) bool {
	c.mu.Lock()
	if c.states[id] != down {
		c.mu.Unlock()
		return false
	}
	c.states[id] = busy
	c.mu.Unlock()
	c.work.Go(func() {
		err := c.Brokers[id-1].Start(c.ctx)
		s := up
		if err != nil {
			s = down
		}
		c.set(id, s, err)
	})
	return true
}

func (c *cluster) resume(id int32) {
	if c.is(id, paused) {
		c.set(id, up, syscall.Kill(c.Brokers[id-1].Process().PID(), syscall.SIGCONT))
	}
}

// takeAway kills ZooKeeper, which keeps what it has on its disk.
func (c *cluster) takeAway(lasts time.Duration) bool {
	if c.away {
		return false
	}
	c.ZooKeeperProcess().Kill()
	c.away = true
	c.takeBackAfter(lasts, lasting{down, 0}, func() { c.bringBack() })
	return true
}

func (c *cluster) bringBack() {
	if !c.away {
		return
	}
	c.away = false
	if err := c.StartZooKeeper(c.ctx); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err = errors.Join(c.err, fmt.Errorf("zookeeper: %w", err))
	}
}

// takeBackAfter ends a fault after a while; 0: only the heal does.
func (c *cluster) takeBackAfter(d time.Duration, of lasting, do func()) {
	if d > 0 {
		c.later = append(c.later, undo{time.Now().Add(d), of, do})
	}
}

// forget cancels the ends of faults that have ended otherwise: one that came late would end the next fault of its kind before its time.
func (c *cluster) forget(of lasting) {
	c.later = slices.DeleteFunc(c.later, func(u undo) bool { return u.of == of })
}

// takeBack ends the faults whose time is over.
func (c *cluster) takeBack(now time.Time) {
	due := c.later
	c.later = nil
	for _, u := range due {
		if now.Before(u.at) {
			c.later = append(c.later, u)
		} else {
			u.do()
		}
	}
}

// healAll takes back everything.
func (c *cluster) healAll() {
	for i := range c.Brokers {
		c.resume(int32(i) + 1)
	}
	c.later = nil
	c.heal()
}

// heal brings back what is dead or away; what stands still goes on when its time is over.
func (c *cluster) heal() {
	c.forget(lasting{down, 0})
	c.bringBack()
	for i := range c.Brokers {
		id := int32(i) + 1
		c.forget(lasting{down, id})
		c.start(id)
	}
}
