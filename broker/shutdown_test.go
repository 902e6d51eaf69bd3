package broker

import (
	"testing"

	"github.com/tidemark-log/tidemark/broker/brokertest"
)

// A request may pass the look at the broker's state just before Shutdown sets it,
// and queue its change behind the shutdown. Unanswered it would hold up the end of its connection.
func TestChangesQueuedBehindAShutdownAreAnswered(t *testing.T) {
	cfg, err := ParseConfig(nil, []string{"log.dirs=/data"})
	if err != nil {
		t.Fatal(err)
	}
	e := brokertest.New(nil, 1)
	b := New(e, cfg)
	b.Start(func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	})
	e.Run()
	codes := map[string]int16{}
	create := func(name string) {
		b.createTopics([]topicSpec{{name: name, partitions: 1}}, func(r []topicResult) { codes[name] = r[0].code })
	}
	create("before")
	e.HoldSyncs = true
	stopped := false
	b.Shutdown(func(err error) { stopped = true })
	create("during")
	e.HoldSyncs = false
	for e.SyncsPending() > 0 {
		e.FinishSync(nil)
	}
	e.Run()
	create("after")
	e.Run()
	if !stopped || len(codes) != 3 || codes["before"] != codeNone || codes["during"] != codeStorageError || codes["after"] != codeStorageError {
		t.Errorf("stopped %v, answers %v", stopped, codes)
	}
}
