package sut

import (
	"fmt"
	"path/filepath"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/storage/logdump"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// Copies is how the copies of partitions compare.
type Copies struct {
	Partitions  int
	Batches     int64    // that every replica of their partition has
	Count       int      // of differences
	Differences []string // the first of each partition: where, who, what
}

// CompareCopies holds the copies of a topic's partitions against each other, on the disks of the brokers that its
// metadata names. The brokers have stopped, in sync and with nothing under way: so each partition ends at one
// offset on all of them. What clients read comes from leaders alone; a follower that holds something else shows only here.
func (c *Cluster) CompareCopies(topic string, partitions []kmsg.MetadataResponseTopicPartition) (Copies, error) {
	var all Copies
	for i := range partitions {
		p := &partitions[i]
		if len(p.Replicas) < 2 {
			continue
		}
		name := fmt.Sprintf("%s-%d", topic, p.Partition)
		var copies []logdump.Copy
		for _, id := range p.Replicas {
			if id < 1 || int(id) > len(c.Brokers) {
				return all, fmt.Errorf("sut: %s has a replica on broker %d of %d", name, id, len(c.Brokers))
			}
			copies = append(copies, logdump.Copy{Name: fmt.Sprintf("broker %d", id), Dir: filepath.ToSlash(filepath.Join(c.Brokers[id-1].DataDir(), name))})
		}
		one, err := logdump.Compare(vfs.NewReal("", nil), copies, logdump.Options{})
		if err != nil {
			return all, fmt.Errorf("sut: compare the copies of %s: %w", name, err)
		}
		all.Partitions++
		all.Batches += one.Batches
		all.Count += one.Count
		for _, d := range one.Differences {
			all.Differences = append(all.Differences, name+" "+d.String())
		}
	}
	return all, nil
}
