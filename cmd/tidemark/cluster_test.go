package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/server"
	"github.com/tidemark-log/tidemark/harness/sut"
)

// liveCluster is a cluster of processes.
type liveCluster struct {
	*sut.Cluster
	t   *testing.T
	dir string
	// drained: topics in which every replica has everything, and nobody writes any more; compared once the brokers have stopped.
	drained map[string][]kmsg.MetadataResponseTopicPartition
}

func (c *liveCluster) seeds() []string { return c.Addrs() }

// startCluster starts n brokers with settings "key=value" and the shortest session
// that ZooKeeper grants. zookeeper is a connect string, or empty for the embedded server.
// When the test ends all must end well, having recovered no panic.
func startCluster(t *testing.T, n int, zookeeper string, settings ...string) *liveCluster {
	t.Helper()
	return startClusterOf(t, sut.ClusterSpec{Brokers: n, ZooKeeper: zookeeper}, settings...)
}

// startClusterOf is startCluster with more said about the cluster. Its Dir may be there; broker N keeps its data in brokerData.
func startClusterOf(t *testing.T, spec sut.ClusterSpec, settings ...string) *liveCluster {
	t.Helper()
	t.Setenv(asMain, "1")
	if spec.Dir == "" {
		spec.Dir = t.TempDir()
	}
	spec.Binary, spec.Overrides = os.Args[0], map[string]string{
		"zookeeper.session.timeout.ms": "4000", "min.insync.replicas": "2", "replica.lag.time.max.ms": "3000",
	}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		spec.Overrides[key] = value
	}
	started, err := sut.StartCluster(context.WithoutCancel(t.Context()), spec)
	if err != nil {
		t.Fatal(err)
	}
	c := &liveCluster{Cluster: started, t: t, dir: spec.Dir, drained: map[string][]kmsg.MetadataResponseTopicPartition{}}
	t.Cleanup(c.end)
	return c
}

// brokerData is where a broker of a cluster in dir keeps its data.
func brokerData(dir string, id int) string {
	return filepath.Join(dir, fmt.Sprintf("broker-%d", id), "data")
}

func (c *liveCluster) end() {
	for i, b := range c.Brokers {
		select {
		case <-b.Process().Exited(): // stopped by the test
		default:
			if n := c.counters(i + 1).Panics; n != 0 {
				c.t.Errorf("broker %d recovered %d panics", i+1, n)
			}
		}
	}
	if err := c.Stop(); err != nil {
		c.t.Error(err)
	} else {
		c.sameCopies()
	}
	if c.t.Failed() {
		c.tellLogs()
	}
}

// compareAtTheEnd has the copies of a topic compared when the test ends and all brokers have stopped. The last write was
// acknowledged under acks=all; nobody writes to it any more, and no broker is killed.
func (c *liveCluster) compareAtTheEnd(topic string) {
	c.t.Helper()
	c.awaitISR(topic, len(c.Brokers))
	for _, t := range c.await(1, topic+" is in sync", isrOf(topic, len(c.Brokers))).Topics {
		if *t.Topic == topic {
			c.drained[topic] = t.Partitions
		}
	}
}

// sameCopies holds what the stopped brokers have on their disks against each other. What differs is kept.
func (c *liveCluster) sameCopies() {
	for _, topic := range slices.Sorted(maps.Keys(c.drained)) {
		all, err := c.CompareCopies(topic, c.drained[topic])
		if err != nil {
			c.t.Error(err)
			continue
		}
		c.t.Logf("%s: %d batches of %d partitions compared on all replicas", topic, all.Batches, all.Partitions)
		if all.Count == 0 {
			continue
		}
		c.t.Errorf("%s: replicas differ at %d offsets:\n%s", topic, all.Count, strings.Join(all.Differences, "\n"))
		kept, err := os.MkdirTemp("", "tidemark-replicas-differ-")
		if err == nil {
			err = os.CopyFS(kept, os.DirFS(c.dir))
		}
		c.t.Logf("what they have is kept in %s (%v)", kept, err)
	}
}

// tellLogs shows what the brokers said last.
func (c *liveCluster) tellLogs() {
	for i := range c.Brokers {
		log := c.log(i + 1)
		c.t.Logf("== broker %d ==\n%s", i+1, log[max(0, len(log)-6000):])
	}
}

func (c *liveCluster) log(id int) string {
	b, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("broker-%d", id), "log"))
	if err != nil {
		c.t.Error(err)
	}
	return string(b)
}

func (c *liveCluster) counters(id int) (s server.Snapshot) {
	resp, err := http.Get("http://" + c.Brokers[id-1].Admin + "/counters")
	if err != nil {
		c.t.Errorf("broker %d: %v", id, err)
		return s
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	if err != nil {
		c.t.Errorf("broker %d: %v", id, err)
	}
	return s
}

// create makes a topic with three replicas, or as many as there are brokers.
func (c *liveCluster) create(topic string, partitions int32) {
	c.t.Helper()
	if got, err := adminClient(c.t, c).CreateTopic(patient(c.t), partitions, int16(min(3, len(c.Brokers))), nil, topic); err != nil {
		c.t.Fatalf("topic %s: %v: %s", topic, err, got.ErrMessage)
	}
}

// metadata asks broker id.
func (c *liveCluster) metadata(ctx context.Context, id int) (*kmsg.MetadataResponse, error) {
	one, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers[id-1].Addr))
	if err != nil {
		return nil, err
	}
	defer one.Close()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = nil
	resp, err := one.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.MetadataResponse), nil
}

// await asks broker id for its metadata until they are as wanted. what says what is waited for.
func (c *liveCluster) await(id int, what string, wanted func(*kmsg.MetadataResponse) bool) *kmsg.MetadataResponse {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*patience)
	defer cancel()
	var last *kmsg.MetadataResponse
	for {
		m, err := c.metadata(ctx, id)
		if err == nil {
			if last = m; wanted(m) {
				return m
			}
		}
		if ctx.Err() != nil {
			text, _ := json.Marshal(last)
			c.t.Fatalf("broker %d was to see that %s (%v): %.3000s", id, what, err, text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// isrOf is true when each partition of the topic has so many in-sync replicas.
func isrOf(topic string, n int) func(*kmsg.MetadataResponse) bool {
	return func(m *kmsg.MetadataResponse) bool {
		for _, t := range m.Topics {
			if t.Topic != nil && *t.Topic == topic {
				return !slices.ContainsFunc(t.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return len(p.ISR) != n || p.Leader < 0 })
			}
		}
		return false
	}
}

// awaitISR waits until all brokers see n in-sync replicas of each partition.
func (c *liveCluster) awaitISR(topic string, n int) {
	c.t.Helper()
	for id := range c.Brokers {
		c.await(id+1, fmt.Sprintf("%s has %d in-sync replicas", topic, n), isrOf(topic, n))
	}
}

// TestEveryClientWorksOnACluster lets each client write and each read, in a topic of
// three replicas, through each broker.
func TestEveryClientWorksOnACluster(t *testing.T) {
	clients := stockClients(t)
	c := startCluster(t, 3, "")
	for _, writer := range clients {
		for i, codec := range allCodecs {
			topic := fmt.Sprintf("%s-%s", writer.name, codec)
			t.Run(topic, func(t *testing.T) {
				c.create(topic, 1)
				c.awaitISR(topic, 3)
				sent := someMessages(topic, 60)
				ctx := patient(t)
				for at := 0; at < len(sent); at += 20 {
					if err := writer.produce(ctx, c.Brokers[i%3].Addr, topic, codec, sent[at:at+20]); err != nil {
						t.Fatalf("produce: %v", err)
					}
				}
				for j, reader := range clients {
					got, err := reader.consume(ctx, c.Brokers[(i+j)%3].Addr, topic, 0, len(sent))
					if err != nil {
						t.Fatalf("%s: %v", reader.name, err)
					}
					checkMessages(t, reader.name, got, sent, true)
					if at, err := reader.offsetAt(ctx, c.Brokers[j%3].Addr, topic, got[20].timestamp); err != nil || at > 20 {
						t.Errorf("%s: the first record at or after record 20's time has offset %d, %v", reader.name, at, err)
					}
				}
				c.awaitISR(topic, 3)
			})
		}
	}
	sameOnAllReplicas(t, c, clients)
}

// sameOnAllReplicas holds the segment files of all brokers against each other, byte by byte.
func sameOnAllReplicas(t *testing.T, c *liveCluster, clients []namedClient) {
	for _, w := range clients {
		for _, codec := range allCodecs {
			dir := fmt.Sprintf("%s-%s-0", w.name, codec)
			var logs [][]byte
			for _, b := range c.Brokers {
				files, err := filepath.Glob(filepath.Join(b.DataDir(), dir, "*.log"))
				if err != nil || len(files) != 1 {
					t.Fatalf("%s: %d segments, %v", dir, len(files), err)
				}
				data, err := os.ReadFile(files[0])
				if err != nil {
					t.Fatal(err)
				}
				logs = append(logs, data)
			}
			if len(logs[0]) == 0 || !bytes.Equal(logs[0], logs[1]) || !bytes.Equal(logs[0], logs[2]) {
				t.Errorf("%s: the replicas differ: %d, %d and %d bytes", dir, len(logs[0]), len(logs[1]), len(logs[2]))
			}
		}
	}
}

// TestAcksOnACluster produces with each acks setting, idempotent or not.
func TestAcksOnACluster(t *testing.T) {
	c := startCluster(t, 3, "")
	for name, opts := range map[string][]kgo.Opt{
		"none":       {kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()},
		"leader":     {kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()},
		"all":        {kgo.DisableIdempotentWrite()},
		"idempotent": nil,
	} {
		c.create(name, 1)
		c.await(1, "the topic is there", isrOf(name, 3))
		produce(t, client(t, c, append(opts, kgo.DefaultProduceTopic(name))...), name, 500, 100)
		consume(t, client(t, c, kgo.ConsumeTopics(name)), 500)
	}
}

// TestTopicCommandsOnACluster runs the command line as a user does.
func TestTopicCommandsOnACluster(t *testing.T) {
	c := startCluster(t, 3, "")
	run := func(args ...string) string {
		t.Helper()
		out, err := tidemark(patient(t), append(args, "--bootstrap", c.Bootstrap())...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("topic", "create", "orders", "--partitions", "6", "--replicas", "3", "--set", "retention.ms=3600000")
	c.awaitISR("orders", 3)
	var described []struct {
		Partitions []struct {
			Leader   int32
			Replicas []int32
			ISR      []int32
		}
	}
	text := run("topic", "describe", "orders", "--json")
	if err := json.Unmarshal([]byte(text), &described); err != nil || len(described) != 1 || len(described[0].Partitions) != 6 {
		t.Fatalf("%v: %s", err, text)
	}
	leaders := map[int32]int{}
	for _, p := range described[0].Partitions {
		leaders[p.Leader]++
		slices.Sort(p.Replicas)
		slices.Sort(p.ISR)
		if !slices.Equal(p.Replicas, []int32{1, 2, 3}) || !slices.Equal(p.ISR, p.Replicas) {
			t.Errorf("replicas %v, ISR %v", p.Replicas, p.ISR)
		}
	}
	if len(leaders) != 3 || leaders[1] != 2 || leaders[2] != 2 {
		t.Errorf("leaders are not spread: %v", leaders)
	}
	for _, word := range []string{"LEADER", "REPLICAS", "ISR", "retention.ms=3600000"} {
		if text := run("topic", "describe", "orders"); !strings.Contains(text, word) {
			t.Errorf("no %s in: %s", word, text)
		}
	}
	run("topic", "alter", "orders", "--partitions", "9", "--set", "retention.ms=7200000")
	c.await(2, "there are nine partitions", func(m *kmsg.MetadataResponse) bool { return len(m.Topics[0].Partitions) == 9 && isrOf("orders", 3)(m) })
	if text := run("topic", "describe", "orders"); !strings.Contains(text, "retention.ms=7200000") {
		t.Errorf("the settings have not changed: %s", text)
	}
	out, err := tidemark(patient(t), "topic", "create", "four", "--replicas", "4", "--bootstrap", c.Bootstrap()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "INVALID_REPLICATION_FACTOR") || !strings.Contains(string(out), "3 live brokers") {
		t.Errorf("four replicas on three brokers: %v: %s", err, out)
	}
	run("topic", "delete", "orders")
	for id := range c.Brokers {
		c.await(id+1, "the topic is gone", func(m *kmsg.MetadataResponse) bool { return len(m.Topics) == 0 })
	}
	ctx := patient(t)
	for _, b := range c.Brokers {
		for dirs := []string{"?"}; len(dirs) > 0; { // renamed; the files go later
			if dirs, err = filepath.Glob(filepath.Join(b.DataDir(), "orders-?")); err != nil || ctx.Err() != nil {
				t.Fatal(dirs, err)
			}
		}
	}
}

// TestConfigsReachEveryBroker changes settings through one broker and reads them from each.
func TestConfigsReachEveryBroker(t *testing.T) {
	c := startCluster(t, 3, "")
	c.create("orders", 3)
	c.awaitISR("orders", 3)
	admin, ctx := adminClient(t, c), patient(t)
	if altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "segment.bytes", Value: kadm.StringPtr("1000000")}}, "orders"); err != nil || altered[0].Err != nil {
		t.Fatalf("%+v %v", altered, err)
	}
	for id, b := range c.Brokers {
		one, err := kgo.NewClient(kgo.SeedBrokers(b.Addr))
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		req := kmsg.NewPtrDescribeConfigsRequest()
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, "orders", []string{"segment.bytes"}
		req.Resources = append(req.Resources, r)
		for got := ""; got != "1000000"; {
			resp, err := one.SeedBrokers()[0].Request(ctx, req)
			if err != nil {
				t.Fatalf("broker %d, segment.bytes=%s: %v", id+1, got, err)
			}
			got = *resp.(*kmsg.DescribeConfigsResponse).Resources[0].Configs[0].Value
		}
	}
}

// TestBenchOnACluster runs each load through all addresses at once, the first of a broker that is dead.
func TestBenchOnACluster(t *testing.T) {
	c := startCluster(t, 3, "")
	c.create("bench", 6)
	c.awaitISR("bench", 3)
	c.Brokers[0].Kill()
	c.await(2, "others lead", func(m *kmsg.MetadataResponse) bool { return ledBy(m, "bench", 1) == 0 && ledBy(m, "bench", -1) == 0 })
	for _, args := range [][]string{
		{"produce", "--driver", "kgo", "--acks", "all"}, {"produce", "--driver", "raw", "--acks", "all"}, {"consume"},
	} {
		args = append(append([]string{"bench"}, args...), "--bootstrap", c.Bootstrap(), "--json")
		if args[1] == "produce" {
			args = append(args, "--warmup", "100ms", "--duration", "500ms")
		}
		out, err := tidemark(patient(t), args...).Output()
		var metrics map[string]float64
		if err != nil || json.Unmarshal(out, &metrics) != nil || metrics["records/s"] <= 0 {
			t.Errorf("%s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	c.restart(1)
}
