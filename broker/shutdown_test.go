package broker_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
)

// TestAShutdownEndsThoughASyncOutlivesItsFlush: the flush that the shutdown asks
// for is answered by the sync in flight, and that sync begins another one, for the
// leader epochs that DeleteRecords changed. The log is closed after it.
func TestAShutdownEndsThoughASyncOutlivesItsFlush(t *testing.T) {
	e, b := started(t, "lab.flush.group=on")
	e.HoldSyncs = true
	b.Handle(broker.Request{Body: produceRequest(batchOf(3))}, func(broker.Answer) {})
	del := kmsg.NewPtrDeleteRecordsRequest()
	del.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: 1}}}}
	b.Handle(broker.Request{Body: del}, func(broker.Answer) {})
	ended := false
	b.Shutdown(func(err error) {
		if err != nil {
			t.Error(err)
		}
		ended = true
	})
	e.Run()
	syncs := 0
	for e.SyncsPending() > 0 {
		e.FinishSync(nil)
		syncs++
	}
	if !ended || syncs < 2 {
		t.Errorf("ended %v after %d syncs", ended, syncs)
	}
}
