package sut

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ClusterSpec says what cluster to start: processes on loopback, each on free ports.
type ClusterSpec struct {
	Binary    string // the tidemark executable
	Dir       string // broker N keeps its data in Dir/broker-N/data and what it says in Dir/broker-N/log, the embedded ZooKeeper in Dir/zookeeper
	Brokers   int
	Overrides map[string]string // settings of every broker
	// Per gives broker id more settings; nil: none.
	Per func(id int) map[string]string
	// ZooKeeper is the connect string of a service that is there; empty: the embedded one is started.
	ZooKeeper string
	// InMemory keeps nothing of the embedded ZooKeeper on disk.
	InMemory bool
	// Descriptors is how many files each broker may have open; 0: as many as this process.
	Descriptors int
	// Slow, when it is not nil, is told once what a start waits for that has not ended after slowAfter.
	Slow func(Waits)
}

// slowAfter is when a start is slow: some ten times as long as one takes that waits for nothing.
const slowAfter = time.Second

// Waits is what a start waits for.
type Waits struct {
	ZooKeeper string // its connect string; empty: the embedded one does not serve yet
	Brokers   []int  // the ids of those that do not serve yet; none: they do not know each other
}

// Cluster is a started cluster.
type Cluster struct {
	ZooKeeper string // connect string
	Brokers   []*Broker

	spec      ClusterSpec
	zookeeper *Process
}

// zookeeperReady is what the embedded ZooKeeper says when it serves.
var zookeeperReady = regexp.MustCompile(`^tidemark zookeeper ready listener=(\S+)`)

// StartCluster starts everything and waits until each broker knows of all. What has started is stopped when something does not.
func StartCluster(ctx context.Context, s ClusterSpec) (*Cluster, error) {
	c := &Cluster{ZooKeeper: s.ZooKeeper, spec: s}
	waits := watchStart(s)
	defer waits.end()
	if c.ZooKeeper == "" {
		if err := c.StartZooKeeper(ctx); err != nil {
			return nil, err
		}
	}
	waits.zookeeperServes(c.ZooKeeper)
	c.Brokers = make([]*Broker, s.Brokers)
	failed := make([]error, s.Brokers)
	var all sync.WaitGroup
	for i := range c.Brokers {
		all.Go(func() {
			c.Brokers[i], failed[i] = StartBroker(ctx, s.broker(i+1, c.ZooKeeper))
			waits.brokerServes(i + 1)
		})
	}
	all.Wait()
	err := errors.Join(failed...)
	if err == nil {
		err = c.awaitAll(ctx)
	}
	if err != nil {
		c.Kill()
		return nil, err
	}
	for _, b := range c.Brokers {
		b.Set("listeners", "PLAINTEXT://"+b.Addr) // a broker that is started again is where clients know it
	}
	return c, nil
}

// acquaintWithin bounds the wait for brokers to know each other.
const acquaintWithin = time.Minute

// awaitAll waits until every broker has been told of all of them: a registration is
// there before the controller has spread it, and a topic cannot be placed on who is not known.
func (c *Cluster) awaitAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, acquaintWithin)
	defer cancel()
	for i, b := range c.Brokers {
		client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr))
		if err != nil {
			return fmt.Errorf("sut: %w", err)
		}
		defer client.Close()
		for known := 0; known < len(c.Brokers); {
			resp, err := client.SeedBrokers()[0].Request(ctx, kmsg.NewPtrMetadataRequest())
			if err == nil {
				known = len(resp.(*kmsg.MetadataResponse).Brokers)
			}
			if ctx.Err() != nil {
				return fmt.Errorf("sut: broker %d knows %d brokers of %d: %w", i+1, known, len(c.Brokers), ctx.Err())
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}

// StartZooKeeper starts the embedded ZooKeeper; again at the same address, once its process has ended.
func (c *Cluster) StartZooKeeper(ctx context.Context) error {
	args := []string{"zookeeper", "--listen", cmp.Or(c.ZooKeeper, "127.0.0.1:0")}
	if !c.spec.InMemory {
		args = append(args, "--dir", filepath.Join(c.spec.Dir, "zookeeper"))
	}
	p, err := Start(ctx, ProcessSpec{Path: c.spec.Binary, Args: args, Ready: zookeeperReady.MatchString})
	if err == nil {
		c.zookeeper, c.ZooKeeper = p, zookeeperReady.FindStringSubmatch(p.ReadyLine())[1]
	}
	return err
}

// broker is how broker id is started.
func (s *ClusterSpec) broker(id int, zookeeper string) BrokerSpec {
	settings := map[string]string{
		"zookeeper.connect": zookeeper, "broker.id": strconv.Itoa(id),
		"default.replication.factor": strconv.Itoa(min(3, s.Brokers)),
	}
	maps.Copy(settings, s.Overrides)
	if s.Per != nil {
		maps.Copy(settings, s.Per(id))
	}
	dir := filepath.Join(s.Dir, "broker-"+strconv.Itoa(id))
	return BrokerSpec{Binary: s.Binary, Dir: dir, Overrides: settings, Log: filepath.Join(dir, "log"), Descriptors: s.Descriptors}
}

// Bootstrap is where clients connect first: every broker's address, with commas.
func (c *Cluster) Bootstrap() string { return strings.Join(c.Addrs(), ",") }

// Addrs are the addresses of the brokers, in order of their ids.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Brokers))
	for i, b := range c.Brokers {
		addrs[i] = b.Addr
	}
	return addrs
}

// Stop shuts the brokers down cleanly, all at once, and then ZooKeeper.
func (c *Cluster) Stop() error {
	errs := make([]error, len(c.Brokers))
	var all sync.WaitGroup
	for i, b := range c.Brokers {
		if b != nil && b.Process() != nil {
			all.Go(func() { errs[i] = b.Stop() })
		}
	}
	all.Wait()
	if c.zookeeper != nil {
		errs = append(errs, c.zookeeper.Stop(10*time.Second))
	}
	return errors.Join(errs...)
}

// Kill ends everything with kill -9.
func (c *Cluster) Kill() {
	for _, b := range c.Brokers {
		if b != nil && b.Process() != nil {
			b.Kill()
		}
	}
	if c.zookeeper != nil {
		c.zookeeper.Kill()
	}
}

// ZooKeeperProcess is the embedded ZooKeeper's process; nil with another service.
func (c *Cluster) ZooKeeperProcess() *Process { return c.zookeeper }

// StopLiving is Stop for a cluster of which processes may have ended before.
func (c *Cluster) StopLiving() error {
	living := *c
	living.Brokers = slices.Clone(c.Brokers)
	for i, b := range living.Brokers {
		if b.Process().HasExited() {
			living.Brokers[i] = nil
		}
	}
	if c.zookeeper != nil && c.zookeeper.HasExited() {
		living.zookeeper = nil
	}
	return living.Stop()
}

// Ended is a process of a cluster that has ended.
type Ended struct {
	Broker  int // its id; 0: the embedded ZooKeeper
	Process *Process
}

// Exited receives each of the cluster's processes of now, when it ends; nothing more once ctx has ended.
func (c *Cluster) Exited(ctx context.Context) <-chan Ended {
	ended := make(chan Ended, len(c.Brokers)+1)
	watch := func(id int, p *Process) {
		go func() {
			select {
			case <-p.Exited():
				ended <- Ended{id, p}
			case <-ctx.Done():
			}
		}()
	}
	for i, b := range c.Brokers {
		watch(i+1, b.Process())
	}
	if c.zookeeper != nil {
		watch(0, c.zookeeper)
	}
	return ended
}
