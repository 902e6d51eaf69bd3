package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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

// dumpLog runs Kafka's DumpLogSegments over a partition's directory. ok is false when it complains.
func dumpLog(t *testing.T, dir string) (out string, ok bool) {
	t.Helper()
	javaClassPath(t)
	b, err := exec.Command(kafkaScripts+"/dump-log", dir).CombinedOutput()
	return string(b), err == nil
}

// Every codec's batches, ours to build, are read by Kafka to the last record; and the wrapper sees damage.
func TestKafkaReadsBatchesOfEveryCodec(t *testing.T) {
	javaClassPath(t)
	dir := t.TempDir()
	var log []byte
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
	}
	name := filepath.Join(dir, "00000000000000000000.log")
	if err := os.WriteFile(name, log, 0o644); err != nil {
		t.Fatal(err)
	}
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

	log[len(log)-1] ^= 1 // the planted fault
	if err := os.WriteFile(name, log, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, ok := dumpLog(t, dir); ok {
		t.Errorf("damage went unnoticed:\n%.2000s", out)
	}
}
