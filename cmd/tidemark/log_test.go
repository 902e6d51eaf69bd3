package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-log/tidemark/harness/sut"
	"github.com/tidemark-log/tidemark/storage/record"
)

// log diff sees no difference between the replicas that three brokers leave, whose segments begin elsewhere in each, and the
// one leader epoch that is changed in one of them, which no CRC covers.
func TestLogDiffSeesWhatReplicasHave(t *testing.T) {
	c := startClusterOf(t, sut.ClusterSpec{Brokers: 3, Per: func(id int) map[string]string {
		return map[string]string{"log.segment.bytes": strconv.Itoa(id * 5_000)}
	}})
	c.create("orders", 1)
	c.awaitISR("orders", 3)
	p := client(t, c, kgo.RequiredAcks(kgo.AllISRAcks()))
	for range 20 {
		produce(t, p, "orders", 100, 100)
	}
	if err := c.Cluster.Stop(); err != nil {
		t.Fatal(err)
	}
	args := []string{"log", "diff"}
	segments := map[int]bool{}
	var logs []string
	for _, b := range c.Brokers {
		dir := filepath.Join(b.DataDir(), "orders-0")
		args = append(args, dir)
		var err error
		if logs, err = filepath.Glob(filepath.Join(dir, "*.log")); err != nil {
			t.Fatal(err)
		}
		segments[len(logs)] = true
	}
	if len(segments) != 3 {
		t.Errorf("segments of the replicas: %v", segments)
	}
	out, err := tidemark(context.Background(), args...).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "3 copies, ") || !strings.HasSuffix(string(out), "from offset 0 to 2000: no differences\n") {
		t.Errorf("%v: %s", err, out)
	}
	raw, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	record.SetLeaderEpoch(raw, 77)
	if err := os.WriteFile(logs[0], raw, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err = tidemark(context.Background(), args...).CombinedOutput()
	want := fmt.Sprintf(" in %s, %s and 77 in %s\n", args[2], args[3], args[4])
	if err == nil || !strings.HasPrefix(string(out), "difference: at offset 0: leader epoch ") || !strings.Contains(string(out), want) || !strings.HasSuffix(string(out), "differences found: 1\n") {
		t.Errorf("%v: %s", err, out)
	}
}

// log verify agrees with what a broker leaves, and ends with status 1 on the first flipped bit.
func TestLogVerifySeesDamageInABrokersDirectory(t *testing.T) {
	for _, offsets := range []string{"logical", "byte"} {
		t.Run(offsets, func(t *testing.T) {
			dir := t.TempDir()
			b := startBroker(t, dir, "lab.offsets="+offsets, "log.index.interval.bytes=512", "log.segment.bytes=50000")
			produce(t, client(t, b), "orders", 2000, 100)
			b.shutdown()
			run := func(args ...string) (string, error) {
				out, err := tidemark(context.Background(), append([]string{"log"}, args...)...).CombinedOutput()
				return string(out), err
			}
			if out, err := run("verify", dir); err != nil || !strings.Contains(out, "2000 records") || !strings.Contains(out, "no problems") {
				t.Fatalf("%v: %s", err, out)
			}
			if out, err := run("dump", "--records", dir); err != nil || strings.Count(out, "null = \"") != 2000 {
				t.Errorf("%v: %.2000s", err, out)
			}
			logs, err := filepath.Glob(filepath.Join(dir, "orders-0", "*.log"))
			if err != nil || len(logs) == 0 {
				t.Fatalf("%q, %v", logs, err)
			}
			raw, err := os.ReadFile(logs[0])
			if err != nil {
				t.Fatal(err)
			}
			raw[100] ^= 1
			if err := os.WriteFile(logs[0], raw, 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := run("verify", dir); err == nil || !strings.Contains(out, logs[0]+" at byte 0, offset 0: damaged batch: CRC") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	if out, err := tidemark(context.Background(), "log", "verify", t.TempDir()).CombinedOutput(); err == nil || strings.Count(string(out), "\n") != 1 {
		t.Errorf("an empty directory: %v: %s", err, out)
	}
}
