package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/controller"
)

// ControlledShutdown, version 3, to the controller: a broker that is about to stop gives
// its leaderships away and leaves the ISRs. The answer names those that it still leads.

func (b *Broker) handleControlledShutdown(req *kmsg.ControlledShutdownRequest, reply Reply) {
	resp := req.ResponseKind().(*kmsg.ControlledShutdownResponse)
	d := b.driver()
	if d == nil {
		resp.ErrorCode = codeNotController
		reply(Answer{Body: resp})
		return
	}
	d.ask(func(id uint64) controller.Input {
		return controller.ControlledShutdown{Request: id, Broker: req.BrokerID, Epoch: req.BrokerEpoch}
	}, func(a *controller.Answer) {
		if a == nil {
			resp.ErrorCode = codeNotController
		} else {
			resp.ErrorCode = a.Code
			for _, p := range a.Partitions {
				left := kmsg.NewControlledShutdownResponsePartitionsRemaining()
				left.Topic, left.Partition = p.Partition.Topic, p.Partition.Partition
				resp.PartitionsRemaining = append(resp.PartitionsRemaining, left)
			}
		}
		reply(Answer{Body: resp})
	})
}

// driver gives the controller's driver while this broker is the controller.
func (b *Broker) driver() *driver {
	if b.member == nil {
		return nil
	}
	return b.member.election.current()
}
