package storage

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// writeFile writes a file as a whole, without making it durable.
func writeFile(fs vfs.FS, name string, content []byte) (err error) {
	f, err := fs.Open(name, vfs.Create|vfs.Truncate)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.WriteAt(content, 0)
	return err
}

// replaceFile puts content in the place of a file: a power cut leaves the old or
// the new one, never a mixture (H4). The new one is sure after a sync of the directory.
func replaceFile(fs vfs.FS, name string, content []byte) error {
	tmp := name + tmpSuffix
	f, err := fs.Open(tmp, vfs.Create|vfs.Truncate)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return fs.Rename(tmp, name)
}

// replaceFileDurably is replaceFile and the directory's sync.
func replaceFileDurably(fs vfs.FS, name string, content []byte) error {
	if err := replaceFile(fs, name, content); err != nil {
		return err
	}
	return fs.SyncDir(path.Dir(name))
}

// readFile reads a whole file of at most max bytes.
func readFile(fs vfs.FS, name string, max int64) ([]byte, error) {
	f, err := fs.Open(name, vfs.ReadOnly)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > max {
		return nil, fmt.Errorf("%s has %d bytes, more than the %d that it may have", name, size, max)
	}
	b := make([]byte, size)
	return b, readFull(f, b, 0)
}

// syncPath makes the file's bytes durable; a file that is gone needs nothing.
func syncPath(fs vfs.FS, name string) error {
	f, err := fs.Open(name, vfs.ReadWrite)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = f.Sync()
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// pathSyncer is a file to sync that nobody keeps open.
type pathSyncer struct {
	fs   vfs.FS
	name string
}

func (p pathSyncer) Sync() error { return syncPath(p.fs, p.name) }

func ignoreNotExist(err error) error {
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	return err
}

// checkpointBytesMax bounds a checkpoint file: a million partitions of long names fit.
const checkpointBytesMax = 256 << 20

// readCheckpoint reads Kafka's checkpoint format: a line with version 0, a line
// with the number of entries, and a line of fields for each.
func readCheckpoint(b []byte, entry func(fields []string) error) error {
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if len(lines) < 2 {
		return fmt.Errorf("checkpoint of %d bytes ends before its entries", len(b))
	}
	if lines[0] != "0" {
		return fmt.Errorf("checkpoint has version %.20q, not 0", lines[0])
	}
	n, err := strconv.Atoi(lines[1])
	if err != nil || n != len(lines)-2 {
		return fmt.Errorf("checkpoint says %.20q entries and has %d", lines[1], len(lines)-2)
	}
	for _, line := range lines[2:] {
		if err := entry(strings.Fields(line)); err != nil {
			return err
		}
	}
	return nil
}

// PartitionOffset is an offset of one partition: a line of a checkpoint file.
type PartitionOffset struct {
	Topic     string
	Partition int32
	Offset    int64
}

type topicPartition struct {
	topic     string
	partition int32
}

func encodeOffsets(all []PartitionOffset) []byte {
	b := fmt.Appendf(nil, "0\n%d\n", len(all))
	for _, o := range all {
		b = fmt.Appendf(b, "%s %d %d\n", o.Topic, o.Partition, o.Offset)
	}
	return b
}

// decodeOffsets reads an offset checkpoint, in which each partition stands once.
func decodeOffsets(b []byte) (map[topicPartition]int64, error) {
	all := make(map[topicPartition]int64)
	err := readCheckpoint(b, func(f []string) error {
		if len(f) != 3 {
			return fmt.Errorf("%.300q is not topic, partition and offset", strings.Join(f, " "))
		}
		partition, err1 := strconv.ParseInt(f[1], 10, 32)
		offset, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 != nil || err2 != nil || partition < 0 || offset < 0 {
			return fmt.Errorf("%.300q is not topic, partition and offset", strings.Join(f, " "))
		}
		tp := topicPartition{f[0], int32(partition)}
		if _, twice := all[tp]; twice {
			return fmt.Errorf("partition %s-%d stands in it twice", tp.topic, tp.partition)
		}
		all[tp] = offset
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// parseProperties reads lines "key=value" or "key: value"; # begins a comment.
func parseProperties(b []byte, separator string) (map[string]string, error) {
	m := make(map[string]string)
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		k, v, ok := strings.Cut(line, separator)
		if !ok {
			return nil, fmt.Errorf("line %.80q has no %q", line, separator)
		}
		m[strings.TrimSpace(k)] = strings.TrimSpace(v)
	}
	return m, nil
}
