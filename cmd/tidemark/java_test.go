package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/internal/need"
	"github.com/tidemark-log/tidemark/storage/record"
)

// kafkaScripts is where the pom, the class path and the wrappers are.
const kafkaScripts = "../../scripts/kafka"

// javaClassPath gives the class path of Kafka's client and tools, or skips.
func javaClassPath(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			need.Skip(t, "java", tool+" is not installed (scripts/test installs openjdk-17-jdk-headless and maven with apt where it is root on Debian)")
		}
	}
	var stderr bytes.Buffer
	cmd := exec.Command(kafkaScripts + "/classpath")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		need.Skip(t, "java", fmt.Sprintf("Maven could not fetch Kafka's jars: %v: %.300s", err, stderr.String()))
	}
	return strings.TrimSpace(string(out))
}

// dumpLog runs Kafka's DumpLogSegments over partitions' directories. ok is false when it complains.
func dumpLog(t *testing.T, dirs ...string) (out string, ok bool) {
	t.Helper()
	javaClassPath(t)
	b, err := exec.Command(kafkaScripts+"/dump-log", dirs...).CombinedOutput()
	return string(b), err == nil
}

// Every codec's batches, ours to build, are read by Kafka to the last record; and the wrapper sees what is wrong.
func TestKafkaReadsBatchesOfEveryCodec(t *testing.T) {
	javaClassPath(t)
	dir := t.TempDir()
	var log, index []byte
	offset := int64(0)
	for _, codec := range []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		b := record.NewBuilder(codec)
		for i := range 50 {
			b.Append(1_700_000_000_000+int64(i), fmt.Appendf(nil, "key-%d", i), bytes.Repeat([]byte(codec.String()), 30*i), record.RecordHeader{Key: "h", Value: []byte("v")})
		}
		at := len(log)
		log = b.Build(log)
		record.SetBaseOffset(log[at:], offset)
		record.SetLeaderEpoch(log[at:], 0)
		offset += 50
		index = binary.BigEndian.AppendUint32(index, uint32(offset-1))
		index = binary.BigEndian.AppendUint32(index, uint32(at))
	}
	put := func(suffix string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, "00000000000000000000"+suffix), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(".log", log)
	put(".index", index)
	out, ok := dumpLog(t, dir)
	if !ok {
		t.Errorf("Kafka complains:\n%s", out)
	}
	if n := strings.Count(out, "payload:"); n != 250 {
		t.Errorf("Kafka saw %d records of 250", n)
	}
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		if !strings.Contains(out, "compresscodec: "+codec) {
			t.Errorf("no batch of codec %s in the dump", codec)
		}
	}

	// Planted faults: a bit of the last batch, an index entry one offset off.
	index[11]++
	put(".index", index)
	if out, ok := dumpLog(t, dir); ok || !strings.Contains(out, "Mismatches in") {
		t.Errorf("a wrong index entry went unnoticed:\n%.2000s", complaints(out))
	}
	if err := os.Remove(filepath.Join(dir, "00000000000000000000.index")); err != nil {
		t.Fatal(err)
	}
	log[len(log)-1] ^= 1
	put(".log", log)
	if out, ok := dumpLog(t, dir); ok {
		t.Errorf("damage went unnoticed:\n%.2000s", complaints(out))
	}
}

// runJavaCheck drives a broker with Kafka's Java client (scripts/kafka/src/Check.java) and reports each failed check.
func runJavaCheck(t *testing.T, b *brokerProcess, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	args = append([]string{"-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", javaClassPath(t), kafkaScripts + "/src/Check.java", b.addr}, args...)
	out, err := exec.CommandContext(ctx, "java", args...).Output()
	passed := 0
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "ok "):
			passed++
		case strings.HasPrefix(line, "FAIL "):
			t.Error(line)
		}
	}
	if err != nil && !t.Failed() {
		t.Errorf("the Java check ended with %v:\n%s", err, out)
	}
	if passed < 20 {
		t.Errorf("only %d checks passed", passed)
	}
}

// The stock Java client gets what it expects, and Kafka's own tool then reads
// what it left on disk: every record, every index.
func TestJavaClientAndKafkasToolAgree(t *testing.T) {
	javaClassPath(t)
	dir := t.TempDir()
	b := startBroker(t, dir, "log.index.interval.bytes=512", "log.segment.bytes=20000", "lab.validate=records")
	runJavaCheck(t, b)
	b.shutdown()
	partitions, err := filepath.Glob(filepath.Join(dir, "java-check-*"))
	if err != nil || len(partitions) != 8 {
		t.Fatalf("partition directories: %q, %v", partitions, err)
	}
	out, ok := dumpLog(t, partitions...)
	if !ok {
		t.Errorf("Kafka complains:\n%.4000s", complaints(out))
	}
	for i, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		// The codec bits on disk are the client's: nothing was recompressed or sent plain.
		of := codecsOnDisk(out, partitions[i])
		if len(of) != 1 || of[0] != codec {
			t.Errorf("%s holds batches of codecs %q, want %s alone", partitions[i], of, codec)
		}
	}
}

var codecInDump = regexp.MustCompile(`^baseOffset: .* compresscodec: (\w+)`)

// codecsOnDisk gives the codecs of a partition's batches, from Kafka's dump of several.
func codecsOnDisk(dump, partition string) (codecs []string) {
	mine := false
	for line := range strings.Lines(dump) {
		if file, ok := strings.CutPrefix(line, "Dumping "); ok {
			mine = strings.HasPrefix(file, partition+"/")
		}
		if m := codecInDump.FindStringSubmatch(line); mine && m != nil && !slices.Contains(codecs, m[1]) {
			codecs = append(codecs, m[1])
		}
	}
	return codecs
}

func TestJavaClientReadsByteOffsets(t *testing.T) {
	javaClassPath(t)
	runJavaCheck(t, startBroker(t, t.TempDir(), "lab.offsets=byte"), "byte")
}

// complaints are the lines of a dump that are not of records.
func complaints(dump string) string {
	var b strings.Builder
	for line := range strings.Lines(dump) {
		if !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "baseOffset: ") && !strings.HasPrefix(line, "offset: ") {
			b.WriteString(line)
		}
	}
	return b.String()
}
