package logdump

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path"
	"strconv"
	"strings"
)

// Snapshot begins the explanation of a producer snapshot.
type Snapshot struct {
	File      string `json:"file"`
	Offset    int64  `json:"offset"` // the state is that before this offset
	Version   int16  `json:"version"`
	Producers int    `json:"producers"`
}

// Producer is one idempotent producer's state.
type Producer struct {
	ProducerID   int64           `json:"producer_id"`
	Epoch        int16           `json:"epoch"`
	LastSequence int32           `json:"last_sequence"`
	LastOffset   int64           `json:"last_offset"`
	Timestamp    int64           `json:"timestamp_ms"`
	Batches      []ProducerBatch `json:"batches,omitempty"` // Tidemark's addition: what a resend is compared with
}

// ProducerBatch is one of a producer's last batches.
type ProducerBatch struct {
	FirstSequence int32 `json:"first_sequence"`
	LastSequence  int32 `json:"last_sequence"`
	LastOffset    int64 `json:"last_offset"`
	OffsetDelta   int32 `json:"offset_delta"`
	Timestamp     int64 `json:"timestamp_ms"`
}

// Checkpoint begins the explanation of a checkpoint file.
type Checkpoint struct {
	File    string `json:"file"`
	Entries int    `json:"entries"`
}

// PartitionOffset is a line of an offset checkpoint.
type PartitionOffset struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`
}

// Epoch is a line of a leader-epoch-checkpoint.
type Epoch struct {
	Epoch int32 `json:"leader_epoch"`
	Start int64 `json:"start_offset"`
}

// Properties is partition.metadata or meta.properties.
type Properties struct {
	File string `json:"file"`
}

// Property is one line of it.
type Property struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func problemf(file string, pos, offset int64, format string, args ...any) Problem {
	return Problem{file, pos, offset, fmt.Sprintf(format, args...)}
}

// Kafka's producer snapshot: version int16, CRC-32C uint32 of all that follows,
// count int32, then entries of 46 bytes. Tidemark adds "TMK1" and each producer's last batches.
const (
	snapshotHeaderSize = 10
	snapshotEntrySize  = 46
	snapshotBatchSize  = 28
	snapshotAddition   = "TMK1"
)

func (d *dumper) snapshot(name string, after *segmentEnd) error {
	b, err := d.read(name)
	if err != nil {
		return err
	}
	offset, _ := baseOffset(path.Base(name))
	if len(b) < snapshotHeaderSize {
		d.problem(name, 0, offset, "%d bytes cannot hold a producer snapshot", len(b))
		return nil
	}
	be := binary.BigEndian
	s := Snapshot{name, offset, int16(be.Uint16(b)), int(int32(be.Uint32(b[6:])))}
	sum := crc32.Checksum(b[6:], crc32.MakeTable(crc32.Castagnoli))
	rest := b[snapshotHeaderSize:]
	switch {
	case s.Version != 1:
		d.problem(name, 0, offset, "producer snapshot of version %d", s.Version)
		return nil
	case sum != be.Uint32(b[2:]):
		d.problem(name, 2, offset, "CRC is %08x, the snapshot says %08x", sum, be.Uint32(b[2:]))
		return nil
	case s.Producers < 0 || s.Producers*snapshotEntrySize > len(rest):
		d.problem(name, 6, offset, "%d producers do not fit into %d bytes", s.Producers, len(rest))
		return nil
	}
	d.out.print(s)
	producers := make([]Producer, s.Producers)
	for i := range producers {
		producers[i] = Producer{
			ProducerID: int64(be.Uint64(rest)), Epoch: int16(be.Uint16(rest[8:])), LastSequence: int32(be.Uint32(rest[10:])),
			LastOffset: int64(be.Uint64(rest[14:])), Timestamp: int64(be.Uint64(rest[26:])),
		}
		if producers[i].LastOffset >= offset {
			d.problem(name, int64(len(b)-len(rest)), offset, "producer %d's last offset %d is not below the snapshot's", producers[i].ProducerID, producers[i].LastOffset)
		}
		rest = rest[snapshotEntrySize:]
	}
	if added, ok := strings.CutPrefix(string(rest), snapshotAddition); ok {
		if left := readAddition([]byte(added), producers); left != 0 {
			d.problem(name, int64(len(b)-left), offset, "%d bytes are not the batches of %d producers", left, s.Producers)
		}
	}
	for _, p := range producers {
		d.out.print(p)
	}
	if after != nil && offset > after.next {
		d.problem(name, 0, offset, "it is of offset %d, the log ends at %d", offset, after.next)
	}
	return nil
}

// readAddition reads each producer's batches; left is how many bytes did not fit.
func readAddition(b []byte, producers []Producer) (left int) {
	be := binary.BigEndian
	for i := range producers {
		if len(b) < 9 || len(b) < 9+int(b[8])*snapshotBatchSize {
			return max(len(b), 1)
		}
		n := int(b[8])
		b = b[9:]
		for range n {
			producers[i].Batches = append(producers[i].Batches, ProducerBatch{
				int32(be.Uint32(b)), int32(be.Uint32(b[4:])), int64(be.Uint64(b[8:])), int32(be.Uint32(b[16:])), int64(be.Uint64(b[20:])),
			})
			b = b[snapshotBatchSize:]
		}
	}
	return len(b)
}

// checkpointLines reads a checkpoint: a line "0", a line with the number of entries, the entries. pos is each line's place.
func (d *dumper) checkpointLines(name string) (lines []string, pos []int64, err error) {
	b, err := d.read(name)
	if err != nil {
		return nil, nil, err
	}
	at := int64(0)
	for line := range strings.Lines(string(b)) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
		pos = append(pos, at)
		at += int64(len(line))
	}
	if len(lines) < 2 || lines[0] != "0" {
		d.problem(name, 0, -1, "it does not begin with version 0 and a count")
		return nil, nil, nil
	}
	n, err := strconv.Atoi(lines[1])
	if err != nil || n != len(lines)-2 {
		d.problem(name, pos[1], -1, "it says %.20q entries and has %d", lines[1], len(lines)-2)
	}
	d.out.print(Checkpoint{name, len(lines) - 2})
	return lines[2:], pos[2:], nil
}

// offsets explains an offset checkpoint and holds it against the ends of the logs that were read.
func (d *dumper) offsets(name string) error {
	lines, pos, err := d.checkpointLines(name)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for i, line := range lines {
		f := strings.Fields(line)
		if len(f) != 3 {
			d.problem(name, pos[i], -1, "%.200q is not topic, partition and offset", line)
			continue
		}
		partition, err1 := strconv.ParseInt(f[1], 10, 32)
		offset, err2 := strconv.ParseInt(f[2], 10, 64)
		dir := f[0] + "-" + f[1]
		switch {
		case err1 != nil || err2 != nil || partition < 0 || offset < 0:
			d.problem(name, pos[i], -1, "%.200q is not topic, partition and offset", line)
			continue
		case seen[dir]:
			d.problem(name, pos[i], offset, "partition %s stands in it twice", dir)
		}
		seen[dir] = true
		d.out.print(PartitionOffset{f[0], int(partition), offset})
		end, known := d.logEnds[dir]
		switch {
		case !known || offset <= end:
		case path.Base(name) == "recovery-point-offset-checkpoint":
			d.problem(name, pos[i], offset, "%s was on disk up to offset %d, its log ends at %d", dir, offset, end)
		case path.Base(name) == "log-start-offset-checkpoint":
			d.problem(name, pos[i], offset, "%s starts at offset %d, its log ends at %d", dir, offset, end)
		}
		// A high watermark may be above the end: a power cut takes what was committed but not flushed.
	}
	return nil
}

func (d *dumper) epochs(name string, after *segmentEnd) error {
	lines, pos, err := d.checkpointLines(name)
	if err != nil {
		return err
	}
	last := Epoch{-1, -1}
	for i, line := range lines {
		f := strings.Fields(line)
		if len(f) != 2 {
			d.problem(name, pos[i], -1, "%.200q is not leader epoch and start offset", line)
			continue
		}
		epoch, err1 := strconv.ParseInt(f[0], 10, 32)
		start, err2 := strconv.ParseInt(f[1], 10, 64)
		if err1 != nil || err2 != nil {
			d.problem(name, pos[i], -1, "%.200q is not leader epoch and start offset", line)
			continue
		}
		e := Epoch{int32(epoch), start}
		d.out.print(e)
		if e.Epoch <= last.Epoch || e.Start < last.Start {
			d.problem(name, pos[i], start, "leader epoch %d from offset %d comes after epoch %d from %d", e.Epoch, e.Start, last.Epoch, last.Start)
		}
		if after != nil && start > after.next {
			d.problem(name, pos[i], start, "leader epoch %d begins at offset %d, the log ends at %d", e.Epoch, start, after.next)
		}
		last = e
	}
	return nil
}

func (d *dumper) properties(name string) error {
	b, err := d.read(name)
	if err != nil {
		return err
	}
	d.out.print(Properties{name})
	pos := int64(0)
	for line := range strings.Lines(string(b)) {
		at := pos
		pos += int64(len(line))
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		i := strings.IndexAny(line, ":=")
		if i < 0 {
			d.problem(name, at, -1, "%.200q is not key and value", line)
			continue
		}
		d.out.print(Property{strings.TrimSpace(line[:i]), strings.TrimSpace(line[i+1:])})
	}
	return nil
}
