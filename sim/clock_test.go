package sim

import (
	"testing"

	"github.com/tidemark-log/tidemark/experiments"
)

// TestAClockThatJumpsAnHour: the leader's wall clock jumps an hour ahead, past the retention, under load; then a
// follower's an hour back, and it leads next. What retention deletes is below the high watermark and old by the
// clock of whoever deletes (S23); nothing else is harmed, and timers, which are monotonic, go on.
func TestAClockThatJumpsAnHour(t *testing.T) {
	s, err := experiments.ParseScenario("clock", []byte(`
entry    = "H15"
breaks   = ["S23"]
brokers  = 3
settings = { "min.insync.replicas" = "2", "log.retention.minutes" = "30", "log.retention.check.interval.ms" = "1000", "log.segment.bytes" = "8192" }
[[steps]]
fault  = "clock-jump"
target = "leader of t/0"
by     = "1h"
when   = "acked 20"
[[steps]]
fault  = "clock-jump"
target = "follower of t/0"
by     = "-1h"
wait   = "5s"
[[steps]]
fault  = "kill"
target = "leader of t/0"
for    = "10s"
wait   = "5s"
[[steps]]
fault  = "clock-jump"
target = "leader of t/0"
by     = "1h"
wait   = "5s"
`))
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(5) {
		r := Run(seed, Options{Scenario: s})
		if r.Violation != "" || r.StepsLeft > 0 || r.Probes["segments deleted by retention"] == 0 || r.Cluster.Acked < 100 {
			t.Errorf("seed %d: %q, %d steps left, deletions: %d, %d acknowledged", seed, r.Violation, r.StepsLeft, r.Probes["segments deleted by retention"], r.Cluster.Acked)
		}
	}
}
