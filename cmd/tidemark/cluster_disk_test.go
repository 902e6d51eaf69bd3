package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/harness/sut"
	"github.com/tidemark-log/tidemark/internal/need"
)

// TestAFullDiskOnTheLeaderMovesLeadership fills the disk of a broker that leads partitions, under
// acks=all. Its process and its session live on; it says in one line what happened, others lead, nothing acknowledged is
// lost. With room again and a restart it is in every ISR, and can lead.
func TestAFullDiskOnTheLeaderMovesLeadership(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	data := brokerData(dir, 1)
	if err := os.MkdirAll(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tidemark-test", data, "tmpfs", 0, "size=64m"); err != nil {
		need.Skip(t, "mount", err.Error())
	}
	t.Cleanup(func() { syscall.Unmount(data, syscall.MNT_DETACH) })
	c := startClusterOf(t, sut.ClusterSpec{Dir: dir, Brokers: 3})
	l := startLoad(t, c)
	c.await(2, "broker 1 leads partitions", func(m *kmsg.MetadataResponse) bool { return ledBy(m, "kills", 1) > 0 })

	filler := fillDisk(t, data)
	l.everyPartition()
	c.await(2, "others lead, and broker 1 is out of every ISR", func(m *kmsg.MetadataResponse) bool {
		return ledBy(m, "kills", 1) == 0 && isrOf("kills", 2)(m)
	})
	l.everyPartition()
	var said []string
	for line := range strings.Lines(c.log(1)) {
		if strings.Contains(line, "no space left") {
			said = append(said, line)
		}
	}
	if len(said) != 1 || !strings.Contains(said[0], "log directory "+data+" is offline until the broker is restarted") {
		t.Errorf("of the full disk it says %q", said)
	}
	select {
	case <-c.Brokers[0].Process().Exited():
		t.Error("the broker has ended")
	default:
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := c.Brokers[0].Stop(); err == nil || !strings.Contains(err.Error(), "could not be flushed; the next start recovers it") {
		t.Errorf("it ends with %v", err)
	}
	c.restart(1)
	c.awaitISR("kills", 3)
	for _, id := range []int{2, 3} { // what it has now is good enough to lead with
		c.Brokers[id-1].Kill()
		l.everyPartition()
		c.restart(id)
		c.awaitISR("kills", 3)
	}
	l.stop()
}

// ledBy counts the partitions of a topic that a broker leads.
func ledBy(m *kmsg.MetadataResponse, topic string, id int32) (n int) {
	for _, t := range m.Topics {
		if t.Topic == nil || *t.Topic != topic {
			continue
		}
		for _, p := range t.Partitions {
			if p.Leader == id {
				n++
			}
		}
	}
	return n
}

// fillDisk writes a file until the file system of dir has no room, and gives its name.
func fillDisk(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := slices.Repeat([]byte{1}, 4096); ; {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			return name
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
