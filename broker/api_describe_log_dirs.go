package broker

import "github.com/twmb/franz-go/pkg/kmsg"

// DescribeLogDirs, versions 0-4. Left out: the disks' total and usable bytes
// (-1), future replicas (none move).

func (b *Broker) describeLogDirs(req *kmsg.DescribeLogDirsRequest) *kmsg.DescribeLogDirsResponse {
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	resp.Default()
	m := b.meta.Load()
	for _, d := range b.dirs {
		dir := kmsg.NewDescribeLogDirsResponseDir()
		dir.Dir, dir.TotalBytes, dir.UsableBytes = d.path, -1, -1
		if d.isOffline() {
			dir.ErrorCode = codeStorageError
		} else {
			dir.Topics = d.describe(m, req.Topics)
		}
		resp.Dirs = append(resp.Dirs, dir)
	}
	return resp
}

// describe lists the directory's partitions: of all topics, or of those asked for.
func (d *logDir) describe(m *metadata, asked []kmsg.DescribeLogDirsRequestTopic) []kmsg.DescribeLogDirsResponseDirTopic {
	var topics []kmsg.DescribeLogDirsResponseDirTopic
	add := func(name string, partitions []*partition) {
		t := kmsg.NewDescribeLogDirsResponseDirTopic()
		t.Topic = name
		for _, p := range partitions {
			if p == nil || p.dir != d {
				continue
			}
			if size, ok := p.size(); ok {
				part := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
				part.Partition, part.Size = p.index, size
				t.Partitions = append(t.Partitions, part)
			}
		}
		if len(t.Partitions) > 0 {
			topics = append(topics, t)
		}
	}
	if asked == nil {
		for _, t := range m.sorted {
			add(t.name, t.partitions)
		}
		return topics
	}
	for _, a := range asked {
		var partitions []*partition
		for _, i := range a.Partitions {
			partitions = append(partitions, m.partition(a.Topic, i))
		}
		add(a.Topic, partitions)
	}
	return topics
}

// size is the partition's bytes on disk; ok is false when it is gone.
func (p *partition) size() (bytes int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.usable() != nil {
		return 0, false
	}
	return p.log.Size(), true
}
