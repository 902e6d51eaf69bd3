package broker_test

import (
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/broker"
)

// TestAFetchThatWaitsLongerThanTheLagIsRefused: followers would leave the ISR whenever nothing comes.
func TestAFetchThatWaitsLongerThanTheLagIsRefused(t *testing.T) {
	for wait, refused := range map[string]bool{"1000": false, "1001": true} {
		_, err := broker.ParseConfig(nil, []string{"log.dirs=/data", "zookeeper.connect=z:2181", "replica.lag.time.max.ms=1000", "replica.fetch.wait.max.ms=" + wait})
		if (err != nil) != refused || refused && (!strings.Contains(err.Error(), "replica.fetch.wait.max.ms=1001") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("replica.fetch.wait.max.ms=%s: %v", wait, err)
		}
	}
}
