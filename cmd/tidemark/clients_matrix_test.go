package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/tidemark-log/tidemark/storage/record"
)

// patience bounds every wait for another process. A test that reaches it has
// failed; none passes because of it.
const patience = 30 * time.Second

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func adminClient(t testing.TB, b served) *kadm.Client { return kadm.NewClient(client(t, b)) }

// createTopic makes a topic of one partition with settings "key=value".
func createTopic(t testing.TB, b served, topic string, settings ...string) {
	t.Helper()
	configs := make(map[string]*string)
	for _, s := range settings {
		k, v, _ := strings.Cut(s, "=")
		configs[k] = &v
	}
	if _, err := adminClient(t, b).CreateTopic(patient(t), 1, 1, configs, topic); err != nil {
		t.Fatalf("creating %s: %v", topic, err)
	}
}

// batchesOnDisk reads the batch headers of a topic's partition 0 from its segment files.
func batchesOnDisk(t testing.TB, dir, topic string) []record.Header {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, topic+"-0", "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no segments of %s in %s (%v)", topic, dir, err)
	}
	slices.Sort(files)
	var all []record.Header
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for h, batch := range record.Batches(b) {
			if _, err := record.Check(batch); err != nil {
				t.Fatalf("%s: batch at offset %d: %v", f, h.BaseOffset, err)
			}
			all = append(all, h)
		}
	}
	return all
}

var allCodecs = []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd}

// someMessages makes n messages of many sizes whose text compresses.
func someMessages(label string, n int) []message {
	var all []message
	for i := range n {
		// Each compresses by itself: librdkafka sends a batch as it is when compression gains nothing.
		value := fmt.Sprintf("%s %d ", label, i) + strings.Repeat("all work and no play ", 10+i%7*10)
		all = append(all, message{key: fmt.Sprintf("key-%d", i%5), value: value})
	}
	return all
}

// TestEveryClientReadsWhatEveryClientWrote lets each client write with each
// codec and each read the result: from the beginning, from the middle, and from a
// timestamp, with offsets that count records and with offsets that count bytes.
func TestEveryClientReadsWhatEveryClientWrote(t *testing.T) {
	clients := stockClients(t)
	for _, offsets := range []string{"logical", "byte"} {
		t.Run(offsets, func(t *testing.T) {
			dir := t.TempDir()
			settings := []string{"lab.offsets=" + offsets}
			if offsets == "logical" {
				settings = append(settings, "lab.validate=records") // the broker reads every client's records, too
			}
			b := startBroker(t, dir, settings...)
			for _, writer := range clients {
				for _, codec := range allCodecs {
					topic := fmt.Sprintf("%s-%s", writer.name, codec)
					t.Run(topic, func(t *testing.T) {
						t.Parallel()
						createTopic(t, b, topic)
						writeAndReadBack(t, b, dir, topic, writer, codec, codec, clients, offsets == "logical")
					})
				}
			}
		})
	}
}

// TestEveryEngineServesEveryClient lets each client write gzip and all read under
// the engines and caches that hold the data in the process, and where the broker compresses anew.
func TestEveryEngineServesEveryClient(t *testing.T) {
	clients := stockClients(t)
	for _, settings := range [][]string{
		{"lab.cache=process"}, {"lab.cache=direct"}, {"lab.cache=direct", "lab.offsets=byte"},
		{"lab.storage.engine=btree"}, {"lab.storage.engine=btree", "lab.btree.key=message-id"},
		{"lab.compression.path=recompress", "compression.type=zstd"},
	} {
		t.Run(strings.Join(settings, "+"), func(t *testing.T) {
			dir := t.TempDir()
			b := startBroker(t, dir, append(settings, "lab.fetch.transfer=copy", "lab.cache.bytes=1048576")...)
			for _, writer := range clients {
				t.Run(writer.name, func(t *testing.T) {
					t.Parallel()
					createTopic(t, b, writer.name)
					stored := record.Gzip
					if slices.Contains(settings, "compression.type=zstd") {
						stored = record.Zstd
					}
					writeAndReadBack(t, b, dir, writer.name, writer, record.Gzip, stored, clients, !slices.Contains(settings, "lab.offsets=byte"))
				})
			}
		})
	}
}

func writeAndReadBack(t *testing.T, b *brokerProcess, dir, topic string, writer namedClient, codec, stored record.Codec, readers []namedClient, dense bool) {
	ctx := patient(t)
	sent := someMessages(topic, 60)
	for at := 0; at < len(sent); at += 20 { // several batches
		if err := writer.produce(ctx, b.addr, topic, codec, sent[at:at+20]); err != nil {
			t.Fatalf("produce: %v", err)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(dir, topic+"-0", "btree.db")); len(files) == 0 {
		for _, h := range batchesOnDisk(t, dir, topic) {
			if h.Codec() != stored {
				t.Fatalf("the batch at offset %d, sent with codec %s, is stored with %s and not %s", h.BaseOffset, codec, h.Codec(), stored)
			}
		}
	}
	first, err := franz{}.consume(ctx, b.addr, topic, 0, len(sent))
	if err != nil {
		t.Fatal(err)
	}
	checkMessages(t, "franz-go", first, sent, dense)
	for _, reader := range readers {
		got, err := reader.consume(ctx, b.addr, topic, 0, len(sent))
		if err != nil {
			t.Errorf("%s: %v", reader.name, err)
			continue
		}
		if !slices.Equal(got, first) {
			t.Errorf("%s reads otherwise than franz-go: %s", reader.name, firstDifference(got, first))
		}
		// From the middle of the log, which with few batches is the middle of one, too.
		middle := first[33]
		got, err = reader.consume(ctx, b.addr, topic, middle.offset, 20)
		if err != nil || !slices.Equal(got, first[33:53]) {
			t.Errorf("%s from offset %d: %v %s", reader.name, middle.offset, err, firstDifference(got, first[33:53]))
		}
		at, err := reader.offsetAt(ctx, b.addr, topic, middle.timestamp)
		if want := firstAt(first, middle.timestamp); err != nil || at != want {
			t.Errorf("%s finds offset %d at timestamp %d, want %d (%v)", reader.name, at, middle.timestamp, want, err)
		}
	}
}

func firstAt(all []message, timestamp int64) int64 {
	for _, m := range all {
		if m.timestamp >= timestamp {
			return m.offset
		}
	}
	return -1
}

// checkMessages compares keys and values, and the offsets where they must be dense.
func checkMessages(t *testing.T, who string, got, sent []message, dense bool) {
	t.Helper()
	for i, m := range got {
		if m.key != sent[i].key || m.value != sent[i].value {
			t.Fatalf("%s: message %d is %.40q: %.40q, sent was %.40q: %.40q", who, i, m.key, m.value, sent[i].key, sent[i].value)
		}
		if dense && m.offset != int64(i) || i > 0 && m.offset <= got[i-1].offset {
			t.Fatalf("%s: message %d has offset %d, after %d", who, i, m.offset, got[max(0, i-1)].offset)
		}
	}
}

func firstDifference(got, want []message) string {
	for i := range want {
		if i >= len(got) {
			return fmt.Sprintf("%d messages, not %d", len(got), len(want))
		}
		if got[i] != want[i] {
			return fmt.Sprintf("message %d is at offset %d, time %d, %.40q, not at %d, %d, %.40q", i, got[i].offset, got[i].timestamp, got[i].value, want[i].offset, want[i].timestamp, want[i].value)
		}
	}
	return ""
}
