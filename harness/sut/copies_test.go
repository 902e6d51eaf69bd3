package sut

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/storage/record"
)

// stopped is brokers that have stopped; each has a copy of so many batches of t-0, in one segment.
func stopped(t *testing.T, brokers int, batches int) *Cluster {
	t.Helper()
	c := &Cluster{}
	for range brokers {
		b := &Broker{spec: BrokerSpec{Dir: t.TempDir()}}
		c.Brokers = append(c.Brokers, b)
		var log []byte
		for i := range batches {
			build := record.NewBuilder(record.None)
			build.Append(1000, nil, fmt.Appendf(nil, "%d", i))
			batch := build.Build(nil)
			record.SetBaseOffset(batch, int64(i))
			record.SetLeaderEpoch(batch, 3)
			log = append(log, batch...)
		}
		put(t, b, log)
	}
	return c
}

func put(t *testing.T, b *Broker, log []byte) {
	t.Helper()
	dir := filepath.Join(b.DataDir(), "t-0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "00000000000000000000.log"), log, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestCopiesAreComparedOnTheBrokersThatHoldThem(t *testing.T) {
	c := stopped(t, 4, 5)
	placed := []kmsg.MetadataResponseTopicPartition{{Partition: 0, Replicas: []int32{4, 1, 3}}, {Partition: 1, Replicas: []int32{2}}}
	all, err := c.CompareCopies("t", placed)
	if err != nil || all.Partitions != 1 || all.Batches != 5 || all.Count != 0 {
		t.Errorf("%v: %+v", err, all)
	}
	name := filepath.Join(c.Brokers[2].DataDir(), "t-0", "00000000000000000000.log")
	log, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	size := len(log) / 5
	record.SetLeaderEpoch(log[2*size:], 4)
	put(t, c.Brokers[2], log[:4*size])
	put(t, c.Brokers[1], nil) // has no part in it
	all, err = c.CompareCopies("t", placed)
	want := []string{"t-0 at offset 2: leader epoch 3 in broker 4, broker 1 and 4 in broker 3", "t-0 at offset 4: log end 5 in broker 4, broker 1 and 4 in broker 3"}
	if err != nil || all.Count != 2 || !slices.Equal(all.Differences, want) {
		t.Errorf("%v: %+v, want %q", err, all, want)
	}
	if err := os.RemoveAll(c.Brokers[0].DataDir()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CompareCopies("t", placed); err == nil || !strings.Contains(err.Error(), "compare the copies of t-0") {
		t.Errorf("a replica without its directory: %v", err)
	}
	if _, err := c.CompareCopies("t", []kmsg.MetadataResponseTopicPartition{{Replicas: []int32{1, 5}}}); err == nil || !strings.Contains(err.Error(), "t-0 has a replica on broker 5 of 4") {
		t.Errorf("%v", err)
	}
}
