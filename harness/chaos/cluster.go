package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

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
	ctx context.Context // of the processes

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
	return &cluster{Cluster: c, ctx: ctx, states: make([]state, len(c.Brokers)+1), ask: make([]*kgo.Client, len(c.Brokers)+1)}
}

func (c *cluster) addrs() []string { return c.Addrs() }

// close ends everything, whatever state it is in.
func (c *cluster) close() {
	for _, client := range c.ask {
		if client != nil {
			client.Close()
		}
	}
	c.Kill()
}

func (c *cluster) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
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

// metadata asks the brokers that are up, one after the other, until one answers.
func (c *cluster) metadata() (*kmsg.MetadataResponse, error) {
	last := errors.New("no broker is up")
	for i := range c.Brokers {
		id := int32(i) + 1
		if !c.is(id, up) {
			continue
		}
		if c.ask[id] == nil {
			client, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers[i].Addr))
			if err != nil {
				return nil, err
			}
			c.ask[id] = client
		}
		ctx, cancel := context.WithTimeout(c.ctx, 2*time.Second)
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = nil
		resp, err := c.ask[id].SeedBrokers()[0].Request(ctx, req)
		cancel()
		if err == nil {
			return resp.(*kmsg.MetadataResponse), nil
		}
		last = err
	}
	return nil, last
}

// holds says whether a condition holds now. Where nobody answers, it is not known to.
func (c *cluster) holds(when string, acked int) (bool, error) {
	m, err := c.metadata()
	if err != nil {
		return false, nil
	}
	for _, one := range strings.Split(when, " and ") {
		if is := parseCondition(one); is == nil || !is(m, acked) {
			return false, nil
		}
	}
	return true, nil
}

func (c *cluster) allUp() (bool, error) {
	for i := range c.Brokers {
		if !c.is(int32(i)+1, up) {
			return false, nil
		}
	}
	return true, nil
}

// act lets a fault happen, and says to whom.
func (c *cluster) act(ctx context.Context, f *experiments.Fault) ([]int32, error) {
	switch f.Kind {
	case experiments.FaultHeal:
		c.heal()
		return nil, nil
	case experiments.FaultAway:
		return nil, c.takeAway(f.For)
	}
	target, _ := f.Targets()
	var whom []int32
	for limit := time.Now().Add(stepMax); ; time.Sleep(lookEvery) {
		m, err := c.metadata()
		if err == nil {
			whom = inRole(m, target, len(c.Brokers))
		}
		if len(whom) > 0 || ctx.Err() != nil || time.Now().After(limit) {
			break
		}
	}
	if len(whom) == 0 {
		return nil, fmt.Errorf("nobody is %s", target)
	}
	for _, id := range whom {
		c.actOn(id, f)
	}
	return whom, nil
}

func (c *cluster) actOn(id int32, f *experiments.Fault) {
	b := c.Brokers[id-1]
	if f.Kind == experiments.FaultRestart {
		c.forget(lasting{down, id})
		c.start(id)
		return
	}
	if !c.is(id, up) {
		return // as in the simulator: what is not alive cannot be killed
	}
	switch f.Kind {
	case experiments.FaultKill, experiments.FaultBounce, experiments.FaultDiskSwap:
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
	case experiments.FaultStop:
		c.set(id, busy, nil)
		go func() { // a clean stop hands leaderships over first; then, as in the simulator, it comes back
			err := b.Stop()
			c.set(id, down, err)
			c.start(id)
		}()
	case experiments.FaultPause:
		pid := b.Process().PID()
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			c.set(id, up, err)
			return
		}
		c.set(id, paused, nil)
		c.takeBackAfter(f.For, lasting{paused, id}, func() { c.resume(id) })
	}
}

// start starts a broker that is down, beside the story: one that is back soon waits for its old session to end.
func (c *cluster) start(id int32) {
	c.mu.Lock()
	if c.states[id] != down {
		c.mu.Unlock()
		return
	}
	c.states[id] = busy
	c.mu.Unlock()
	go func() {
		err := c.Brokers[id-1].Start(c.ctx)
		s := up
		if err != nil {
			s = down
		}
		c.set(id, s, err)
	}()
}

func (c *cluster) resume(id int32) {
	if c.is(id, paused) {
		c.set(id, up, syscall.Kill(c.Brokers[id-1].Process().PID(), syscall.SIGCONT))
	}
}

// takeAway kills ZooKeeper, which keeps what it has on its disk.
func (c *cluster) takeAway(lasts time.Duration) error {
	if c.away {
		return nil
	}
	c.ZooKeeperProcess().Kill()
	c.away = true
	c.takeBackAfter(lasts, lasting{down, 0}, func() { c.bringBack() })
	return nil
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
