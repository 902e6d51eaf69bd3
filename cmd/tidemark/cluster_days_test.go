package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/harness/sut"
)

// oneClearError runs a broker that cannot start: it must say why in one line that has all of words.
func oneClearError(t *testing.T, settings []string, words ...string) {
	t.Helper()
	args := []string{"broker", "--set", "listeners=PLAINTEXT://127.0.0.1:0"}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	out, err := tidemark(patient(t), args...).CombinedOutput()
	if err == nil {
		t.Fatalf("it started: %s", out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := lines[len(lines)-1]
	if strings.Contains(string(out), "ready listener") || !strings.HasPrefix(last, "tidemark: ") {
		t.Errorf("no error but %s", out)
	}
	for _, w := range words {
		if !strings.Contains(last, w) {
			t.Errorf("%q does not say %q", last, w)
		}
	}
	t.Logf("%s", last)
}

func TestABrokerWithoutZooKeeperSaysSo(t *testing.T) {
	oneClearError(t, []string{"log.dirs=" + t.TempDir(), "broker.id=1", "zookeeper.connect=127.0.0.1:1", "zookeeper.connection.timeout.ms=500"},
		"zookeeper.connect=127.0.0.1:1", "zookeeper.connection.timeout.ms=500")
}

// TestABrokerWaitsForZooKeeper starts ZooKeeper after the broker.
func TestABrokerWaitsForZooKeeper(t *testing.T) {
	c := startCluster(t, 1, "", "min.insync.replicas=1")
	if err := c.Brokers[0].Stop(); err != nil {
		t.Fatal(err)
	}
	c.ZooKeeperProcess().Kill()
	started := make(chan error, 1)
	go func() { started <- c.Brokers[0].Start(context.WithoutCancel(t.Context())) }()
	select {
	case err := <-started:
		t.Fatalf("started without ZooKeeper: %v", err)
	case <-time.After(300 * time.Millisecond): // any time will do
	}
	c.startZooKeeper()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	c.create("orders", 1)
}

func (c *liveCluster) startZooKeeper() {
	c.t.Helper()
	if err := c.StartZooKeeper(context.WithoutCancel(c.t.Context())); err != nil {
		c.t.Fatal(err)
	}
}

// TestProduceGoesOnWithoutZooKeeper kills ZooKeeper under load and starts it again: nobody
// was in need of it, and afterwards topics are made and brokers replaced as before.
func TestProduceGoesOnWithoutZooKeeper(t *testing.T) {
	c := startCluster(t, 3, "")
	l := startLoad(t, c)
	l.everyPartition()
	c.ZooKeeperProcess().Kill()
	for limit := time.Now().Add(5 * time.Second); time.Now().Before(limit); { // more than a session
		l.everyPartition()
	}
	c.startZooKeeper()
	l.everyPartition()
	c.create("after", 3)
	id := c.find("leader", "kills", 0)
	c.Brokers[id-1].Kill()
	l.everyPartition()
	c.restart(id)
	c.awaitISR("kills", 3)
	l.stop()
}

// TestAPausedBrokerComesBack stops the leader, and then the controller, with SIGSTOP for longer than
// its session: it goes on as a new incarnation, and what it acknowledges then is in order.
func TestAPausedBrokerComesBack(t *testing.T) {
	c := startCluster(t, 3, "")
	l := startLoad(t, c)
	for _, role := range []string{"leader", "controller"} {
		l.everyPartition()
		id := c.find(role, "kills", 0)
		process := c.Brokers[id-1].Process().PID()
		if err := syscall.Kill(process, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		c.await(id%3+1, "the others lead", func(m *kmsg.MetadataResponse) bool {
			return isrOf("kills", 2)(m) && int(m.ControllerID) != id
		})
		l.everyPartition()
		if err := syscall.Kill(process, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		c.awaitISR("kills", 3)
		if !strings.Contains(c.log(id), "expired") {
			t.Errorf("broker %d was paused, and its session has not expired", id)
		}
	}
	l.stop()
}

func TestABrokerIDUsedTwiceIsAClearError(t *testing.T) {
	c := startCluster(t, 3, "")
	l := startLoad(t, c)
	l.everyPartition()
	oneClearError(t, []string{"log.dirs=" + t.TempDir(), "broker.id=2", "zookeeper.connect=" + c.ZooKeeper, "zookeeper.session.timeout.ms=4000", "zookeeper.connection.timeout.ms=1000"},
		"broker.id=2 is in use", c.Brokers[1].Addr)
	l.everyPartition()
	c.awaitISR("kills", 3)
	l.stop()
}

// TestABrokerWithAnEmptyDiskIsFilledAgain takes away all that a dead broker has.
func TestABrokerWithAnEmptyDiskIsFilledAgain(t *testing.T) {
	c := startCluster(t, 3, "")
	l := startLoad(t, c)
	for id := 1; id <= 3; id++ {
		l.everyPartition()
		c.Brokers[id-1].Kill()
		if err := os.RemoveAll(c.Brokers[id-1].DataDir()); err != nil {
			t.Fatal(err)
		}
		c.restart(id)
		c.awaitISR("kills", 3)
	}
	l.stop()
}

func TestAnotherClustersDiskIsAClearError(t *testing.T) {
	c := startCluster(t, 1, "", "min.insync.replicas=1")
	dir := t.TempDir()
	b, err := sut.StartBroker(context.WithoutCancel(t.Context()), sut.BrokerSpec{Binary: os.Args[0], Dir: dir, Overrides: map[string]string{"broker.id": "2"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	oneClearError(t, []string{"log.dirs=" + b.DataDir(), "broker.id=2", "zookeeper.connect=" + c.ZooKeeper}, b.DataDir(), "cluster")
	oneClearError(t, []string{"log.dirs=" + b.DataDir(), "broker.id=3", "zookeeper.connect=" + c.ZooKeeper}, b.DataDir(), "broker.id")
}

// TestADamagedZnodeHurtsNobodyElse writes nonsense into the state of one partition, into
// another topic's assignment and into a registration that is nobody's. The controller dies; the next one has to live with it.
func TestADamagedZnodeHurtsNobodyElse(t *testing.T) {
	c := startCluster(t, 3, "")
	c.create("hurt", 2)
	c.create("lost", 1)
	l := startLoad(t, c)
	conn, _, err := zk.Connect([]string{c.ZooKeeper}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, path := range []string{coord.PartitionStatePath("hurt", 1), coord.TopicPath("lost")} {
		if _, err := conn.Set(path, []byte(`{"version":1,"lead`), -1); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	if _, err := conn.Create("/brokers/ids/9", []byte("?"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		id := c.find("controller", "", 0)
		c.Brokers[id-1].Kill()
		l.everyPartition()
		c.restart(id)
		c.awaitISR("kills", 3)
		c.create("new-"+strconv.Itoa(id), 1)
		next := c.find("controller", "", 0)
		for _, what := range []string{"state of hurt-1", "topic lost", "/brokers/ids/9"} {
			if !strings.Contains(c.log(next), what) {
				t.Errorf("the controller, broker %d, does not say that it found %s damaged", next, what)
			}
		}
	}
	l.stop()
	// The copies are still there.
	if files, err := filepath.Glob(filepath.Join(c.dir, "broker-*", "data", "lost-0")); err != nil || len(files) != 3 {
		t.Errorf("of the topic whose assignment is damaged %v are left, %v", files, err)
	}
}
