package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-log/tidemark/internal/need"
	"github.com/tidemark-log/tidemark/storage"
)

// straceCounts runs f while strace counts the system calls of pid by name.
func straceCounts(t *testing.T, pid int, f func()) map[string]int64 {
	t.Helper()
	path := need.Tool(t, "strace")
	table := filepath.Join(t.TempDir(), "strace")
	cmd := exec.Command(path, "-c", "-f", "-U", "name,calls", "-o", table, "-p", strconv.Itoa(pid))
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		need.Skip(t, "strace", err.Error())
	}
	said := bufio.NewReader(stderr)
	line, _ := said.ReadString('\n')
	if !strings.Contains(line, "attached") {
		cmd.Wait()
		need.Skip(t, "strace", "may not trace here: "+strings.TrimSpace(line))
	}
	go io.Copy(io.Discard, said)
	f()
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	b, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int64{}
	for _, line := range strings.Split(string(b), "\n") {
		var name string
		var n int64
		if c, _ := fmt.Sscan(line, &name, &n); c == 2 {
			counts[name] = n
		}
	}
	return counts
}

// apart says by how much of b a differs from it.
func apart(a, b int64) float64 { return math.Abs(float64(a-b)) / math.Max(1, float64(b)) }

// The counters are what experiments state copies per byte from: they are held
// against what strace and the kernel see, for each way of transfer.
func TestCountersAgreeWithStraceAndTheKernel(t *testing.T) {
	const tolerance = 0.02
	does := map[storage.Transfer]string{storage.TransferSendfile: "sendfile", storage.TransferCopy: "pread64", storage.TransferMmap: "munmap"}
	for _, how := range transfers {
		t.Run(string(how), func(t *testing.T) {
			b := startBroker(t, t.TempDir(), "lab.fetch.transfer="+string(how))
			producer := client(t, b, kgo.ProducerBatchMaxBytes(16<<10), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
			produce(t, producer, "orders", 1, 1000)
			before, beforeIO := b.counters(), b.procIO()
			seen := straceCounts(t, b.cmd.Process.Pid, func() {
				for range 1500 {
					produce(t, producer, "orders", 8, 1000)
				}
				drain(t, b, "orders", 1500*8+1)
			})
			after, afterIO := b.counters(), b.procIO()

			if n := seen[does[how]]; n < 1000 {
				t.Errorf("%d calls of %s: the load does not show the transfer", n, does[how])
			}
			for _, name := range []string{"read", "write", "pread64", "pwrite64", "sendfile", "sendmsg", "mmap", "munmap"} {
				counted := after.Syscalls[name] - before.Syscalls[name]
				if counted < 1000 && seen[name] < 1000 {
					continue // not what this load does
				}
				t.Logf("%-8s counted %6d, strace saw %6d", name, counted, seen[name])
				if apart(counted, seen[name]) > tolerance {
					t.Errorf("%s: counted %d calls, strace saw %d", name, counted, seen[name])
				}
			}
			inKernel := after.InKernel - before.InKernel
			for name, counted := range map[string]int64{
				"rchar": after.ToUser - before.ToUser + inKernel,
				"wchar": after.ToKernel - before.ToKernel + inKernel,
			} {
				kernel := afterIO[name] - beforeIO[name]
				t.Logf("%-8s counted %d bytes, the kernel %d", name, counted, kernel)
				if apart(counted, kernel) > tolerance {
					t.Errorf("%s: counted %d bytes, the kernel %d", name, counted, kernel)
				}
			}
		})
	}
}

// drain consumes n records in fetches of at most 16 KiB.
func drain(t *testing.T, b *brokerProcess, topic string, n int) {
	t.Helper()
	c := client(t, b, kgo.ConsumeTopics(topic), kgo.FetchMaxPartitionBytes(8<<10), kgo.FetchMaxWait(100*time.Millisecond))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for got := 0; got < n; {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("after %d records: %v", got, err)
		}
		got += fetches.NumRecords()
	}
	c.Close()
}
