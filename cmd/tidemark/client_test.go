package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/cmd/tidemark/internal/cli"
)

// run runs a client command against the broker and returns what it printed.
func (p *brokerProcess) run(stdin string, args ...string) (stdout, stderr string, err error) {
	cmd := tidemark(context.Background(), append(args, "--bootstrap", p.addr)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// must is run for a command that has to succeed.
func (p *brokerProcess) must(stdin string, args ...string) string {
	p.t.Helper()
	out, errs, err := p.run(stdin, args...)
	if err != nil {
		p.t.Fatalf("tidemark %s: %v: %s", strings.Join(args, " "), err, errs)
	}
	return out
}

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

func TestLinesProducedAreTheLinesConsumed(t *testing.T) {
	// Under byte offsets a read to the end ends by silence, three seconds each: two codecs will do.
	for offsets, codecs := range map[string][]string{"logical": {"none", "gzip", "snappy", "lz4", "zstd"}, "byte": {"none", "lz4"}} {
		b := startBroker(t, t.TempDir(), "lab.offsets="+offsets)
		for _, codec := range codecs {
			b.must("", "topic", "create", codec)
			b.must(numbers(500), "produce", codec, "--codec", codec)
			if got := b.must("", "consume", codec, "--exit"); got != numbers(500) {
				t.Errorf("offsets %s, %s: %d lines came back of 500", offsets, codec, strings.Count(got, "\n"))
			}
		}
	}
}

func TestAcksOneAndZeroArrive(t *testing.T) {
	b := startBroker(t, t.TempDir())
	for _, acks := range []string{"0", "1", "all"} {
		b.must("", "topic", "create", "acks"+acks)
		b.must(numbers(200), "produce", "acks"+acks, "--acks", acks)
		if got := b.must("", "consume", "acks"+acks, "--max", "200"); got != numbers(200) {
			t.Errorf("acks=%s: %d lines", acks, strings.Count(got, "\n"))
		}
	}
}

func TestConsumeBeginsWhereItIsTold(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.must(numbers(100), "produce", "t", "--linger", "0s")
	var times []int64
	for line := range strings.Lines(b.must("", "consume", "t", "--exit", "--json")) {
		var r struct{ Offset, Timestamp int64 }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		times = append(times, r.Timestamp)
	}
	if len(times) != 100 || !slices.IsSorted(times) {
		t.Fatalf("%d records, times %v", len(times), times)
	}
	from50 := slices.Index(times, times[50]) // the first of that millisecond
	for from, first := range map[string]int{
		"beginning": 0, "30": 30, "-7": 93, "@" + strconv.FormatInt(times[50], 10): from50, "2001-01-01T00:00:00Z": 0, "end": 100, "2100-01-01T00:00:00Z": 100, "-1000": 0,
	} {
		want := numbers(100)[len(numbers(first)):]
		if got := b.must("", "consume", "t", "--exit", "--from", from); got != want {
			t.Errorf("from %s: got %.20q…, want %.20q…", from, got, want)
		}
	}
	if got := b.must("", "consume", "t", "--from", "10", "--max", "2"); got != "10\n11\n" {
		t.Errorf("--max 2: %q", got)
	}
}

func TestKeysChooseThePartitionAndAreGivenBack(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.must("", "topic", "create", "t", "--partitions", "4")
	b.must("x:1\nx:2\nx:3\ny:4\n", "produce", "t", "--key-separator", ":")
	got := strings.Split(strings.TrimSpace(b.must("", "consume", "t", "--exit", "--keys")), "\n")
	var x []string
	for _, line := range got {
		if strings.HasPrefix(line, "x\t") {
			x = append(x, line)
		}
	}
	if len(got) != 4 || !slices.Equal(x, []string{"x\t1", "x\t2", "x\t3"}) {
		t.Errorf("%q", got)
	}
	if _, errs, err := b.run("no separator\n", "produce", "t", "--key-separator", ":"); err == nil || !strings.Contains(errs, "no key separator") {
		t.Errorf("%v: %s", err, errs)
	}
}

func TestTopicsAreCreatedDescribedAlteredAndDeleted(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.must("", "topic", "create", "orders", "--partitions", "3", "--set", "retention.ms=3600000")
	b.must(numbers(10), "produce", "orders", "--partition", "2")
	b.must("", "topic", "alter", "orders", "--partitions", "4", "--set", "segment.bytes=1000000", "--unset", "retention.ms")
	var topics []cli.Topic
	if err := json.Unmarshal([]byte(b.must("", "topic", "describe", "orders", "--json")), &topics); err != nil {
		t.Fatal(err)
	}
	if len(topics) != 1 || len(topics[0].Partitions) != 4 || topics[0].Config["segment.bytes"] != "1000000" || len(topics[0].Config) != 1 {
		t.Fatalf("%+v", topics)
	}
	if p := topics[0].Partitions[2]; p.HighWatermark != 10 || p.Bytes <= 0 {
		t.Errorf("%+v", p)
	}
	if got := b.must("", "topic", "list"); !strings.Contains(got, "orders") {
		t.Errorf("list: %s", got)
	}
	b.must("", "topic", "delete", "orders")
	if got := b.must("", "topic", "list", "--json"); strings.TrimSpace(got) != "[]" {
		t.Errorf("after delete: %s", got)
	}
}

func TestClientMistakesAreOneClearLine(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.must("", "topic", "create", "t")
	for want, args := range map[string][]string{
		"TOPIC_ALREADY_EXISTS":       {"topic", "create", "t"},
		"UNKNOWN_TOPIC_OR_PARTITION": {"topic", "delete", "nope"},
		"INVALID_TOPIC_EXCEPTION":    {"topic", "create", "../etc"},
		"INVALID_PARTITIONS":         {"topic", "alter", "t", "--partitions", "1"},
		"INVALID_CONFIG":             {"topic", "alter", "t", "--set", "no.such=1"},
		"nothing to alter":           {"topic", "alter", "t"},
		"--from yesterday":           {"consume", "t", "--from", "yesterday"},
		"has no partition 9":         {"consume", "t", "--partition", "9"},
		"topic nope":                 {"consume", "nope"},
		"--codec rar":                {"produce", "t", "--codec", "rar"},
		"--acks 2":                   {"produce", "t", "--acks", "2"},
	} {
		_, errs, err := b.run("", args...)
		if err == nil || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: %v: %s", args, err, errs)
		}
	}
	out, err := tidemark(context.Background(), "topic", "list", "--bootstrap", "127.0.0.1:1", "--timeout", "2s").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no broker answers at 127.0.0.1:1") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("nobody there: %v: %s", err, out)
	}
}
