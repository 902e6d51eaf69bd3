package broker

import "github.com/twmb/franz-go/pkg/kmsg"

// FindCoordinator, versions 0-6. Groups get COORDINATOR_NOT_AVAILABLE: this
// broker coordinates none yet. Transactions get TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
// which no client tries again: there will be none.

const coordinatorTypeTransaction = 1

func (b *Broker) findCoordinator(req *kmsg.FindCoordinatorRequest) *kmsg.FindCoordinatorResponse {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	resp.Default()
	code, text := codeCoordinatorNotAvailable, "this broker has no group coordinator"
	if req.CoordinatorType == coordinatorTypeTransaction {
		code, text = codeTransactionalIDAuthFailed, "this broker has no transactions"
	}
	resp.ErrorCode, resp.ErrorMessage, resp.NodeID, resp.Port = code, &text, -1, -1
	if req.Version < 4 {
		return resp
	}
	resp.ErrorCode, resp.ErrorMessage = codeNone, nil
	resp.Coordinators = make([]kmsg.FindCoordinatorResponseCoordinator, len(req.CoordinatorKeys))
	for i, key := range req.CoordinatorKeys {
		c := &resp.Coordinators[i]
		c.Default()
		c.Key, c.NodeID, c.Port, c.ErrorCode, c.ErrorMessage = key, -1, -1, code, &text
	}
	return resp
}
