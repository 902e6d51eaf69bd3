package broker

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tidemark-log/tidemark/broker/controller"
	"github.com/tidemark-log/tidemark/broker/coord"
)

// Between the controller's words and those of the nodes.

func encodeState(s *controller.State) []byte {
	return coord.PartitionState{
		ControllerEpoch: s.ControllerEpoch, Leader: s.Leader, LeaderEpoch: s.LeaderEpoch,
		ISR: s.ISR, ELR: s.ELR, LastLeader: s.LastLeader, LastKnownELR: s.LastKnownELR,
	}.Encode()
}

func decodeState(s coord.PartitionState) controller.State {
	return controller.State{
		ControllerEpoch: s.ControllerEpoch, Leader: s.Leader, LeaderEpoch: s.LeaderEpoch,
		ISR: s.ISR, ELR: s.ELR, LastLeader: s.LastLeader, LastKnownELR: s.LastKnownELR,
	}
}

func decodeTopic(name string, data []byte, version int32) (controller.Topic, error) {
	a, err := coord.DecodeTopicAssignment(data)
	if err != nil {
		return controller.Topic{}, err
	}
	t := controller.Topic{Name: name, ID: a.TopicID, Version: version, Partitions: make([]controller.Assignment, len(a.Replicas))}
	for i := range t.Partitions {
		t.Partitions[i] = controller.Assignment{Replicas: a.Replicas[i], Adding: a.Adding[int32(i)], Removing: a.Removing[int32(i)]}
	}
	return t, nil
}

func encodeAssignment(e *controller.WriteTopic) []byte {
	a := coord.TopicAssignment{TopicID: e.ID, Replicas: make([][]int32, len(e.Partitions)), Adding: map[int32][]int32{}, Removing: map[int32][]int32{}}
	for i, p := range e.Partitions {
		a.Replicas[i] = p.Replicas
		if len(p.Adding) > 0 {
			a.Adding[int32(i)] = p.Adding
		}
		if len(p.Removing) > 0 {
			a.Removing[int32(i)] = p.Removing
		}
	}
	return a.Encode()
}

// handledJSON is the content of BrokersHandledPath.
type handledJSON struct {
	Version int                   `json:"version"`
	Brokers []controllerHandledID `json:"brokers"`
}

type controllerHandledID struct {
	Broker int32 `json:"broker"`
	Epoch  int64 `json:"epoch"`
}

func encodeHandled(handled []controller.BrokerEpoch) []byte {
	v := handledJSON{Version: 1, Brokers: make([]controllerHandledID, len(handled))}
	for i, h := range handled {
		v.Brokers[i] = controllerHandledID(h)
	}
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("BUG: broker: encode %T: %v", v, err))
	}
	return data
}

func decodeHandled(data []byte) ([]controller.BrokerEpoch, error) {
	var v handledJSON
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, fmt.Errorf("no valid JSON: %w", err)
	}
	handled := make([]controller.BrokerEpoch, len(v.Brokers))
	for i, h := range v.Brokers {
		handled[i] = controller.BrokerEpoch(h)
	}
	slices.SortFunc(handled, func(a, b controller.BrokerEpoch) int { return int(a.Broker) - int(b.Broker) })
	return handled, nil
}
