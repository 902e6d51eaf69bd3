package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/internal/need"
	"github.com/tidemark-log/tidemark/storage/record"
)

// refusesToStart demands that a broker over dir exits with one line that says all of what.
func refusesToStart(t *testing.T, dir string, what []string, settings ...string) {
	t.Helper()
	args := []string{"broker", "--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "log.dirs=" + dir}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	out, err := tidemark(patient(t), args...).CombinedOutput()
	if err == nil || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%v, and not one line: %s", err, out)
	}
	for _, w := range what {
		if !strings.Contains(string(out), w) {
			t.Errorf("%q is not said: %s", w, out)
		}
	}
}

func TestADataDirectoryOfARunningBrokerIsRefused(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir)
	refusesToStart(t, dir, []string{dir, "in use", fmt.Sprint(b.cmd.Process.Pid)})
	produce(t, client(t, b), "orders", 1, 10) // the first is unharmed
}

func TestADataDirectoryOfAnotherClusterIsRefused(t *testing.T) {
	one, other := t.TempDir(), t.TempDir()
	startBroker(t, one).shutdown()
	startBroker(t, other).shutdown()
	b, err := os.ReadFile(filepath.Join(other, "meta.properties"))
	if err == nil {
		err = os.WriteFile(filepath.Join(one, "meta.properties"), b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	refusesToStart(t, one, []string{one, "cluster"})
}

func TestADataDirectoryOfAnotherBrokerIsRefused(t *testing.T) {
	dir := t.TempDir()
	startBroker(t, dir, "broker.id=7").shutdown()
	refusesToStart(t, dir, []string{dir, "broker 7"})
}

func TestDirectIOWhereThereIsNoneIsRefused(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	if err := syscall.Mount("tidemark-test", dir, "ramfs", 0, ""); err != nil {
		need.Skip(t, "mount", err.Error())
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	refusesToStart(t, dir, []string{dir, "O_DIRECT", "lab.cache=process"}, "lab.cache=direct", "lab.fetch.transfer=copy")
}

// TestAFullDiskTakesNothingAcknowledgedAway fills a small file system. Produce
// fails with Kafka's error, the broker goes on answering, and after more room
// and a restart all that was acknowledged is there, and more can be written.
func TestAFullDiskTakesNothingAcknowledgedAway(t *testing.T) {
	need.Root(t)
	for _, settings := range [][]string{nil, {"lab.storage.engine=btree", "lab.fetch.transfer=copy"}} {
		t.Run(strings.Join(settings, "+"), func(t *testing.T) {
			dir := t.TempDir()
			if err := syscall.Mount("tidemark-test", dir, "tmpfs", 0, "size=8m"); err != nil {
				need.Skip(t, "mount", err.Error())
			}
			t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
			b := startBroker(t, dir, settings...)
			createTopic(t, b, "orders")
			acked := produceUntilRefused(t, b)
			if _, err := adminClient(t, b).ListTopics(patient(t)); err != nil {
				t.Errorf("with the disk full: %v", err)
			}
			b.kill()
			if err := syscall.Mount("tidemark-test", dir, "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
				t.Fatal(err)
			}
			b = startBroker(t, dir, settings...)
			if got := readValues(t, b, acked); got < acked {
				t.Errorf("after the restart %d of %d acknowledged records are there", got, acked)
			}
			if err := (franz{}).produce(patient(t), b.addr, "orders", record.None, someMessages("more", 3)); err != nil {
				t.Errorf("with room again: %v", err)
			}
		})
	}
}

// produceUntilRefused writes numbered records until the broker refuses, and gives how many it acknowledged.
func produceUntilRefused(t *testing.T, b *brokerProcess) int {
	t.Helper()
	c := client(t, b, kgo.DisableIdempotentWrite(), kgo.RecordRetries(0), kgo.ProducerBatchMaxBytes(200_000), kgo.RequiredAcks(kgo.LeaderAck()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	ctx := patient(t)
	for n := 0; ; n++ {
		r := &kgo.Record{Topic: "orders", Value: fmt.Appendf(make([]byte, 0, 100_000), "%08d", n)[:100_000]}
		if err := c.ProduceSync(ctx, r).FirstErr(); err != nil {
			if !errors.Is(err, kerr.KafkaStorageError) || n == 0 || n > 84 {
				t.Fatalf("%d records of 100 kB went into 8 MiB; then %v", n, err)
			}
			return n
		}
	}
}

// readValues reads the records of produceUntilRefused from the beginning and gives how many are there, at least n of them.
func readValues(t *testing.T, b *brokerProcess, n int) int {
	t.Helper()
	got, err := franz{}.consume(patient(t), b.addr, "orders", 0, n)
	if err != nil {
		t.Errorf("after %d records: %v", len(got), err)
	}
	for i, m := range got {
		if want := fmt.Sprintf("%08d", i); m.offset != int64(i) || m.value[:8] != want {
			t.Fatalf("record %d is at offset %d and begins %q", i, m.offset, m.value[:8])
		}
	}
	return len(got)
}

// TestBrokenFramesHarmNobodyElse sends what no client would, on connection after
// connection, while another one keeps producing and must notice nothing.
func TestBrokenFramesHarmNobodyElse(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir, "socket.request.max.bytes=1000000")
	good := client(t, b)
	produce(t, good, "orders", 10, 100)
	rng := rand.New(rand.NewPCG(11, 12))
	batch := record.NewBuilder(record.None)
	batch.Append(1, nil, bytes.Repeat([]byte("x"), 100))
	req := produceRequest("orders", batch.Build(nil))
	req.Version = 7
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version = 11
	valid := [][]byte{frame(req), frame(fetch), frame(kmsg.NewPtrMetadataRequest()), frame(kmsg.NewPtrApiVersionsRequest())}
	for i := range 300 {
		sendBroken(t, b.addr, brokenFrame(rng, valid[rng.IntN(len(valid))], i))
		if i%50 == 0 {
			produce(t, good, "orders", 1, 100)
		}
	}
	if got := endOffset(t, b, "orders"); got < 16 {
		t.Errorf("%d records of the good client are there, of 16", got)
	}
	batchesOnDisk(t, dir, "orders") // each passes its CRC: nothing broken was stored
	if rss := b.residentBytes(); rss > 200<<20 {
		t.Errorf("the broker holds %d MB after broken frames", rss>>20)
	}
}

// frame encodes a request as it goes over the wire.
func frame(r kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("broken")).AppendRequest(nil, r, 1)
}

// brokenFrame damages a valid frame in one of several ways.
func brokenFrame(rng *rand.Rand, valid []byte, i int) []byte {
	b := bytes.Clone(valid)
	switch i % 6 {
	case 0: // flipped bits, the length left alone
		for range 1 + rng.IntN(8) {
			b[4+rng.IntN(len(b)-4)] ^= 1 << rng.IntN(8)
		}
	case 1: // cut off
		b = b[:rng.IntN(len(b))]
	case 2: // a length that claims gigabytes
		binary.BigEndian.PutUint32(b, 0x7fffffff)
	case 3: // a negative length
		binary.BigEndian.PutUint32(b, 0x80000000+rng.Uint32N(1000))
	case 4: // nothing but noise
		for k := range b {
			b[k] = byte(rng.Uint32())
		}
	case 5: // a shorter frame than its content
		binary.BigEndian.PutUint32(b, uint32(rng.IntN(len(b))))
	}
	return b
}

// sendBroken sends and reads until the broker has had enough, or has answered.
func sendBroken(t *testing.T, addr string, b []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatalf("no further connection: %v", err)
	}
	defer conn.Close()
	_, _ = conn.Write(b) // the broker may have closed already
	_ = conn.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, conn)
}

// TestConnectionsOverTheLimitAreClosed opens more than max.connections; those within it work.
func TestConnectionsOverTheLimitAreClosed(t *testing.T) {
	b := startBroker(t, t.TempDir(), "max.connections=20")
	good := client(t, b)
	produce(t, good, "orders", 10, 100)
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range 60 {
		c, err := net.Dial("tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	closed := 0
	for _, c := range conns {
		if answersApiVersions(c) {
			continue
		}
		closed++
	}
	if closed < 40 || closed == 60 {
		t.Errorf("%d of 60 connections were closed where 20 in all are allowed", closed)
	}
	produce(t, good, "orders", 10, 100)
}

func answersApiVersions(c net.Conn) bool {
	if _, err := c.Write(frame(kmsg.NewPtrApiVersionsRequest())); err != nil {
		return false
	}
	var length [4]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return false
	}
	_, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(length[:])))
	return err == nil
}

// TestClientsThatNeverReadDoNotFillTheBroker asks again and again for megabytes and takes none of them.
func TestClientsThatNeverReadDoNotFillTheBroker(t *testing.T) {
	for _, how := range [][]string{
		{"lab.fetch.transfer=sendfile"}, {"lab.fetch.transfer=copy"}, {"lab.fetch.transfer=copy", "lab.cache=process"}, {"lab.fetch.transfer=copy", "lab.storage.engine=btree"},
	} {
		t.Run(strings.Join(how, "+"), func(t *testing.T) {
			b := startBroker(t, t.TempDir(), append(how, "socket.send.buffer.bytes=65536")...)
			good := client(t, b)
			produce(t, good, "orders", 20_000, 1000)
			req := kmsg.NewPtrFetchRequest()
			req.Version, req.MaxBytes = 11, 20<<20
			rt := kmsg.NewFetchRequestTopic()
			rt.Topic = "orders"
			rp := kmsg.NewFetchRequestTopicPartition()
			rp.PartitionMaxBytes = 20 << 20
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			asks := bytes.Repeat(frame(req), 1000)
			for range 20 {
				c, err := net.Dial("tcp", b.addr)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				go c.Write(asks) // until the broker reads no further, or c is closed
			}
			produce(t, good, "others", 1000, 1000)
			consume(t, client(t, b, kgo.ConsumeTopics("others")), 1000)
			if rss := b.residentBytes(); rss > 128<<20 {
				t.Errorf("the broker holds %d MB for clients that never read", rss>>20)
			} else {
				t.Logf("resident: %d MB", rss>>20)
			}
		})
	}
}

// residentBytes is VmRSS.
func (p *brokerProcess) residentBytes() int64 {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kB int64
	fmt.Sscan(rest, &kB)
	return kB << 10
}
