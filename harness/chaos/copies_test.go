package chaos

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/storage/record"
)

// TestAFollowerWithOtherBytesIsAViolation gives one of three brokers another value at an offset, under a CRC that holds:
// no client that reads from the leader sees that.
func TestAFollowerWithOtherBytesIsAViolation(t *testing.T) {
	c := standIn(t, 3, sleeps)
	c.Kill()
	plant := func(values ...string) {
		for i, b := range c.Brokers {
			batch := encode(values[i], 0, 0)
			record.SetBaseOffset(batch, 0)
			record.SetLeaderEpoch(batch, 1)
			dir := filepath.Join(b.DataDir(), topic+"-0")
			err := os.MkdirAll(dir, 0o755)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "00000000000000000000.log"), batch, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	var said []string
	r := &run{cluster: c, report: &Report{}, o: Options{Say: func(_ time.Duration, what string) { said = append(said, what) }}}
	m := metadataOf(1, 1, 1, 2, 3)
	plant("0/0/0", "0/0/0", "0/0/0")
	if err := r.sameCopies(m); err != nil || r.report.Compared != 1 || len(said) > 0 {
		t.Errorf("%v: %+v, %q", err, r.report, said)
	}
	plant("0/0/0", "0/0/0", "0/0/1")
	err := r.sameCopies(m)
	if broken := (*violationError)(nil); !errors.As(err, &broken) || !strings.HasPrefix(broken.text, "S3: replicas have 1 difference, first t-0 at offset 0: CRC ") {
		t.Errorf("%v", err)
	}
	if len(said) != 1 || !strings.HasSuffix(said[0], " in broker 3") || !slices.Equal(said, r.report.Differences) {
		t.Errorf("%q, %q", said, r.report.Differences)
	}
}
