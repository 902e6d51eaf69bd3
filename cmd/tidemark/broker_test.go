package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-log/tidemark/internal/need"
	"github.com/tidemark-log/tidemark/storage"
)

// served is what clients can be pointed at: a broker, or a cluster.
type served interface{ seeds() []string }

func (p *brokerProcess) seeds() []string { return []string{p.addr} }

func client(t testing.TB, b served, o ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.seeds()...), kgo.AllowAutoTopicCreation()}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// produce sends n records of the given size and waits for their acks.
func produce(t testing.TB, c *kgo.Client, topic string, n, size int) {
	t.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		value := fmt.Appendf(make([]byte, 0, size), "%d ", i)
		records[i] = &kgo.Record{Topic: topic, Value: value[:size]}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// consume reads n records and checks that they are the ones that produce sent, in order.
func consume(t testing.TB, c *kgo.Client, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for next := 0; next < n; {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("after %d records: %v", next, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if want := strconv.Itoa(next) + " "; !strings.HasPrefix(string(r.Value), want) || r.Offset != int64(next) {
				t.Fatalf("record at offset %d begins %.10q, want offset %d and %q", r.Offset, r.Value, next, want)
			}
			next++
		})
	}
}

func TestBrokerServesProduceAndConsume(t *testing.T) {
	b := startBroker(t, t.TempDir())
	produce(t, client(t, b), "orders", 5000, 100)
	consume(t, client(t, b, kgo.ConsumeTopics("orders")), 5000)
	t.Logf("ready in %v", b.ready)
}

func TestKcatProducesAndConsumes(t *testing.T) {
	need.Tool(t, "kcat")
	b := startBroker(t, t.TempDir())
	want := bytes.Repeat([]byte("a line\n"), 1000)
	in := exec.Command("kcat", "-b", b.addr, "-t", "lines", "-P")
	in.Stdin = bytes.NewReader(want)
	if out, err := in.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := exec.Command("kcat", "-b", b.addr, "-t", "lines", "-C", "-e", "-q", "-o", "beginning").Output()
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back of %d, %v", len(got), len(want), err)
	}
}

func TestAPortInUseIsOneClearLine(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := filepath.Join(t.TempDir(), "data")
	out, err := tidemark(context.Background(), "broker", "--set", "log.dirs="+dir, "--set", "listeners=PLAINTEXT://"+l.Addr().String()).CombinedOutput()
	if err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "the port is in use") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the data directory was touched before the port was had")
	}
	out, err = tidemark(context.Background(), "zookeeper", "--listen", l.Addr().String()).CombinedOutput()
	if err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "the port is in use") {
		t.Errorf("zookeeper: %v: %s", err, out)
	}
}

func TestBadSettingsAreOneClearLine(t *testing.T) {
	for _, set := range []string{"no.such.setting=1", "log.segment.bytes=1GB", "lab.fetch.transfer=teleport", "listeners=SSL://127.0.0.1:0", "listeners=nonsense", "lab.admin.listener=127.0.0.1:99999"} {
		out, err := tidemark(context.Background(), "broker", "--set", "log.dirs="+t.TempDir(), "--set", set).CombinedOutput()
		key, _, _ := strings.Cut(set, "=")
		if err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), key) {
			t.Errorf("%s: %v: %s", set, err, out)
		}
	}
}

func TestASignalShutsDownGracefullyUnderLongPolls(t *testing.T) {
	b := startBroker(t, t.TempDir())
	produce(t, client(t, b), "orders", 10, 100)
	c := client(t, b, kgo.ConsumeTopics("orders"), kgo.FetchMaxWait(time.Minute))
	consume(t, c, 10) // its next fetch waits
	b.shutdown()      // SIGTERM, and exit status 0
}

func TestTwoSignalsTogetherEndABroker(t *testing.T) {
	b := startBroker(t, t.TempDir())
	conn, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := b.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	b.cmd.Process.Signal(syscall.SIGTERM)
	b.cmd.Process.Signal(syscall.SIGINT)
	b.cmd.Process.Signal(syscall.SIGCONT)
	<-b.ended // by either way, but it ends
	b.cmd = nil
}

func TestAnIdleBrokerIsSmall(t *testing.T) {
	b := startBroker(t, t.TempDir())
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	// The process's own memory. The executable's pages are resident too, but here they are
	// those of a test binary with every client in it; bench ceiling looks at tidemark's whole.
	var kB int
	for _, line := range strings.Split(string(status), "\n") {
		if strings.HasPrefix(line, "RssAnon:") {
			fmt.Sscan(strings.TrimPrefix(line, "RssAnon:"), &kB)
		}
	}
	t.Logf("anonymous memory: %d kB", kB)
	if kB == 0 || kB > 8<<10 {
		t.Errorf("an idle broker holds %d kB of its own", kB)
	}
}

// transfers are the valid values of lab.fetch.transfer over files.
var transfers = []storage.Transfer{storage.TransferSendfile, storage.TransferCopy, storage.TransferMmap}
