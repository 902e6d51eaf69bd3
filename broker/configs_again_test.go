package broker_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// TestAChangeTriedAgainTakesNobodysBack loses the answer to a change of settings. Before it is tried again, another
// broker changes another setting, and says so: that stays.
func TestAChangeTriedAgainTakesNobodysBack(t *testing.T) {
	for seed := range uint64(8) {
		c := newClusterOf(t, seed, 3)
		c.create("t", 1, 2)
		settings := func() []byte {
			data, _, _ := c.model.Tree().Get(coord.TopicConfigPath("t"))
			return data
		}
		set := func(name, value string) {
			if r, _ := c.ask(1, alterTopic("t", name, value), 1, 15*time.Second).(*kmsg.IncrementalAlterConfigsResponse); r == nil || r.Resources[0].ErrorCode != 0 {
				t.Fatalf("seed %d: %s: %+v\n%s", seed, name, r, c.reports())
			}
		}
		set("max.message.bytes", "3000000")
		c.advance(3 * time.Second)
		asked := notController(t, c)
		answered := false
		c.send(nil, asked, alterTopic("t", "retention.ms", "111111"), 60*time.Second, func(r kmsg.Response, _ error) { answered = r != nil })
		for !bytes.Contains(settings(), []byte("111111")) {
			c.advance(100 * time.Microsecond)
		}
		away := true
		var drop func()
		drop = func() {
			if away {
				c.model.Drop(fmt.Sprint(asked))
				c.loop.After(time.Millisecond, drop)
			}
		}
		drop()
		c.advance(500 * time.Millisecond)
		set("segment.bytes", "2000000")
		away = false
		c.advance(20 * time.Second)
		if !answered {
			t.Errorf("seed %d: the first change is not answered\n%s", seed, c.reports())
		}
		if !bytes.Contains(settings(), []byte("2000000")) {
			t.Fatalf("seed %d: the other's change is gone: %s", seed, settings())
		}
	}
}

func alterTopic(topic, name, value string) *kmsg.IncrementalAlterConfigsRequest {
	setting := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	setting.Name, setting.Value = name, &value
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	resource.Configs = append(resource.Configs, setting)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, resource)
	req.SetVersion(1)
	return req
}
