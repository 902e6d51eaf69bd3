package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
