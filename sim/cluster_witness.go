package sim

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// What a broker hears of others that shows a rule at work: the witnesses of stories.

// witness counts the answers that refuse something, as the asking broker gets them.
func (c *Cluster) witness(r kmsg.Response) {
	switch r := r.(type) {
	case *kmsg.LeaderAndISRResponse:
		c.witnessCommand(r.ErrorCode)
	case *kmsg.StopReplicaResponse:
		c.witnessCommand(r.ErrorCode)
	case *kmsg.UpdateMetadataResponse:
		c.witnessCommand(r.ErrorCode)
	case *kmsg.ControlledShutdownResponse:
		if len(r.PartitionsRemaining) > 0 {
			c.trace.probe("controlled shutdown not yet")
		}
	case *kmsg.FetchResponse:
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				p := &r.Topics[i].Partitions[j]
				switch {
				case p.ErrorCode == 74 || p.ErrorCode == 76:
					c.trace.probe("follower of another epoch refused")
				case p.DivergingEpoch.EndOffset >= 0:
					c.trace.probe("follower told that it diverges")
				}
			}
		}
	}
}

func (c *Cluster) witnessCommand(code int16) {
	switch code {
	case codeStaleControllerEpoch:
		c.trace.probe("stale controller refused")
	case codeStaleBrokerEpoch:
		c.trace.probe("command to an earlier incarnation refused")
	}
}

const (
	codeStaleControllerEpoch int16 = 11
	codeStaleBrokerEpoch     int16 = 77
)

// witnessWrite counts transactions that were refused.
func (c *Cluster) witnessWrite(err error) {
	if errors.Is(err, coord.ErrBadVersion) {
		c.trace.probe("conditional write refused")
	}
}
